"""Fewer entries: all of those that are sent are sent in float32."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.compressors.base import Compressor
from gossamer.compressors.selection import count, largest, random_entries
from gossamer.core import PartSpec, Round
from gossamer.core.rng import Streams


@dataclass(frozen=True)
class NoCompression(Compressor):
    """All entries, in float32."""

    kind = "unbiased"
    spec = PartSpec()

    def omega(self, width: int) -> float:
        return 0.0


@dataclass(frozen=True)
class TopK(Compressor):
    """The entries with the largest |x| of the whole row; of equals the first ones."""

    fraction: float  # kept; at least one entry is

    kind = "contraction"
    spec = PartSpec(sparse=True)

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)

    def choose(self, x: Tensor, round: Round) -> Tensor:
        return largest(x, torch.full((len(x), 1), self.fraction, dtype=torch.float64))

    def delta(self, width: int) -> float:
        return count(self.fraction, width) / width


@dataclass(frozen=True)
class LayerwiseTopK(Compressor):
    """The entries with the largest |x| of each of the model's tensors, so that no layer is forgotten."""

    fraction: float  # kept of each tensor; at least one entry is

    kind = "contraction"
    spec = PartSpec(sparse=True)

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)

    def choose(self, x: Tensor, round: Round) -> Tensor:
        sizes = [size for size in round.layer_sizes if size]
        if sum(sizes) != x.shape[-1]:
            raise ValueError(f"layers of {sum(sizes)} entries in all cannot divide rows of {x.shape[-1]}; take top-k")
        fraction = torch.full((len(x), 1), self.fraction, dtype=torch.float64)
        return torch.cat([largest(layer, fraction) for layer in torch.split(x, sizes, dim=-1)], dim=-1)

    def delta(self, width: int) -> float:
        """That of the worst layer there could be: a layer of 14 entries keeps one of them at 10 %."""
        sizes = np.arange(1, width + 1)
        return float((np.clip(np.floor(self.fraction * sizes + 0.5), 1, sizes) / sizes).min())


@dataclass(frozen=True)
class RandomK(Compressor):
    """Entries at random, which the receiver draws too, so that no indices travel. Not scaled up, so biased."""

    fraction: float  # kept; at least one entry is

    kind = "contraction"

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)

    @property
    def spec(self) -> PartSpec:
        return PartSpec(seeded=self.draw)

    def draw(self, rng: Streams, width: int) -> Tensor:
        return random_entries(rng, self.fraction, width)

    def choose(self, x: Tensor, round: Round) -> Tensor:
        return self.draw(round.rng, x.shape[-1])

    def delta(self, width: int) -> float:
        return count(self.fraction, width) / width


@dataclass(frozen=True)
class Threshold(Compressor):
    """The entries with |x| over a value: many in rounds that matter, few in others. Off by at most value * sqrt(D)."""

    value: float

    kind = "contraction"
    spec = PartSpec(sparse=True)

    def __post_init__(self) -> None:
        if not 0 <= self.value < math.inf:
            raise ValueError(f"value must be at least 0 and finite, {self.value} was given")

    def choose(self, x: Tensor, round: Round) -> Tensor:
        return x.abs() > self.value

    def delta(self, width: int) -> float:
        return 0.0 if self.value else 1.0


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be over 0 and at most 1, {fraction} was given")
