"""Fewer entries, which are sent in float32."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.compressors.base import Compressor
from gossamer.core import PartSpec, Round
from gossamer.core.kernels import njit
from gossamer.core.rng import Streams
from gossamer.core.settings import check_types

Marks = NDArray[np.bool_]
FIRST_BITS, NEXT_BITS = 11, 10  # a float32 without its sign in three goes: the tables stay in the first cache


@njit(cache=True)
def _bin_of(counts: Any, num_bins: int, k: int) -> tuple[int, int]:
    """The bin of the k-th largest, counted from 1, and how many lie in higher bins."""
    above, place = 0, num_bins - 1
    while above + counts[place] < k:
        above += counts[place]
        place -= 1
    return place, above


@njit(cache=True)
def _threshold(row: Any, k: int, kept: Any, counts: Any) -> tuple[Any, int, int]:
    """The k-th largest magnitude's bits, how many of the k are equal to it, and how many entries are in all."""
    magnitude, shift = np.uint32(0x7FFFFFFF), np.uint32(31 - FIRST_BITS)
    counts[:] = 0
    for j in range(row.size):
        counts[(row[j] & magnitude) >> shift] += 1
    place, above = _bin_of(counts, 1 << FIRST_BITS, k)
    k -= above
    num_kept = 0
    for j in range(row.size):
        key = row[j] & magnitude
        kept[num_kept] = key  # overwritten by the next, unless it counts
        num_kept += key >> shift == place
    mask = np.uint32((1 << NEXT_BITS) - 1)
    while shift > 0:
        shift -= np.uint32(NEXT_BITS)
        counts[: 1 << NEXT_BITS] = 0
        for j in range(num_kept):
            counts[(kept[j] >> shift) & mask] += 1
        place, above = _bin_of(counts, 1 << NEXT_BITS, k)
        k -= above
        found = 0
        for j in range(num_kept):
            key = kept[j]
            kept[found] = key
            found += (key >> shift) & mask == place
        num_kept = found
    return kept[0], k, num_kept


@njit(cache=True)
def mark_largest(rows: NDArray[np.uint32], num_largest: NDArray[np.int64]) -> Marks:
    """(B, width): the num_largest[i] largest magnitudes of row i, float32 given by their bits; of equals the first."""
    num_rows, width = rows.shape
    magnitude = np.uint32(0x7FFFFFFF)
    marks = np.empty((num_rows, width), np.bool_)
    kept = np.empty(width, np.uint32)
    counts = np.empty(1 << FIRST_BITS, np.int64)
    for i in range(num_rows):
        row, out = rows[i], marks[i]
        if num_largest[i] >= width:
            out[:] = True
            continue
        threshold, left, num_equal = _threshold(row, num_largest[i], kept, counts)
        for j in range(width):
            out[j] = row[j] & magnitude >= threshold
        j = width
        while num_equal > left:  # the last of the equals are one too many
            j -= 1
            if row[j] & magnitude == threshold:
                out[j] = False
                num_equal -= 1
    return marks


def count(fraction: float, width: int) -> int:
    """How many of `width` entries a kept fraction means: the nearest whole number, and at least one."""
    return min(width, max(1, int(fraction * width + 0.5)))


def largest(x: Tensor, fraction: Tensor) -> Tensor:
    """(B, D) bool: the `fraction` (B, 1) of each row's entries, float32, with the largest |x|; of equals the first."""
    assert x.dtype == torch.float32
    num_largest = (fraction[:, 0].double().numpy() * x.shape[-1] + 0.5).astype(np.int64).clip(1, x.shape[-1])  # `count`
    return torch.from_numpy(mark_largest(x.contiguous().numpy().view(np.uint32), num_largest))


def random_entries(rng: Streams, fraction: float, width: int) -> Tensor:
    """(B, width) bool: a uniformly random `fraction` of the entries of each row, that anyone can draw again."""
    keys = rng.raw("entries", width)
    last = count(fraction, width) - 1
    return torch.from_numpy(keys <= np.partition(keys, last, axis=-1)[:, last : last + 1])


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
        check_types(self)
        _check_fraction(self.fraction)

    def choose(self, x: Tensor, round: Round) -> Tensor:
        return largest(x, torch.full((len(x), 1), self.fraction, dtype=torch.float64))

    def delta(self, width: int) -> float:
        return count(self.fraction, width) / width


@dataclass(frozen=True)
class LayerwiseTopK(TopK):
    """The entries with the largest |x| of each of the model's tensors, so that no layer is forgotten."""

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
        check_types(self)
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
        check_types(self)
        if not 0 <= self.value < math.inf:
            raise ValueError(f"value must be at least 0 and finite, {self.value} was given")

    def choose(self, x: Tensor, round: Round) -> Tensor:
        return x.abs() > self.value

    def delta(self, width: int) -> float:
        return 0.0 if self.value else 1.0


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be over 0 and at most 1, {fraction} was given")
