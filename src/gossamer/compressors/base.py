"""What all compressors have in common: two steps and a promise."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from gossamer.core import Part, PartSpec, Round, sparse_part
from gossamer.core.settings import check_types

Kind = Literal["contraction", "unbiased"]


class Compressor:
    """What is sent in place of (B, D) numbers, in two steps: `choose` entries, and `coarsen` them."""

    @property
    def kind(self) -> Kind:
        """Which promise it makes. Usually a plain class attribute."""
        raise NotImplementedError(f"{type(self).__name__} must define kind")

    @property
    def spec(self) -> PartSpec:
        """How what it returns travels. Usually a plain class attribute."""
        raise NotImplementedError(f"{type(self).__name__} must define spec")

    def __call__(self, x: Tensor, round: Round) -> Part:
        """What is sent in place of x (B, D)."""
        everything = self.is_exact(round) and self.spec.sparse
        sent = torch.ones_like(x, dtype=torch.bool) if everything else self.choose(x, round)
        if sent is not None and (sent.dtype != torch.bool or sent.shape != x.shape):
            dtype = str(sent.dtype).removeprefix("torch.")
            given = f"{dtype} {tuple(sent.shape)} was given"
            raise ValueError(f"choose must return a bool (B, D), here {tuple(x.shape)}; {given}")
        return self.coarsen(x, sent, round)

    def is_exact(self, round: Round) -> bool:
        """Is everything sent as it is? So it is in rounds that settle, unless values are coarse: few of those that
        matter bring models together sooner than all of them (signs of a fifth, on the digits, in half the rounds)."""
        return round.settling and self.spec.values == "float32" and not self.spec.seeded

    def choose(self, x: Tensor, round: Round) -> Tensor | None:
        """(B, D) bool: which entries are sent; None: all."""
        return None

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        """The part that holds the sent entries, in as many bits as it gives them."""
        return Part(x) if sent is None else sparse_part(x, sent)

    def delta(self, width: int) -> float:
        """E |C(x) - x|^2 <= (1 - delta) |x|^2. Under 0 if it may be further off than sending nothing is."""
        return 1 - self.omega(width)

    def omega(self, width: int) -> float:
        """Of the unbiased: E |C(x) - x|^2 <= omega |x|^2. Others have only a delta."""
        raise NotImplementedError(f"{type(self).__name__} must define omega, or else delta")


@dataclass(frozen=True)
class Chain(Compressor):
    """One compressor chooses entries, another coarsens those. The two errors are at right angles."""

    first: Compressor  # top-k, layerwise-top-k, random-k or threshold
    then: Compressor  # bfloat16, quantize, qsgd, scaled or sign

    kind = "contraction"

    def __post_init__(self) -> None:
        check_types(self)
        spec = self.first.spec
        if not (spec.sparse or spec.seeded) or spec.values != "float32":
            known = "top-k, layerwise-top-k, random-k or threshold"
            raise ValueError(f"first must choose entries, such as {known}; {self.first} was given")
        spec = self.then.spec
        if spec.sparse or spec.seeded:
            raise ValueError(f"then must coarsen: bfloat16, quantize, qsgd, scaled or sign; {self.then} was given")

    @property
    def spec(self) -> PartSpec:
        return replace(self.first.spec, values=self.then.spec.values, bucket=self.then.spec.bucket)

    def choose(self, x: Tensor, round: Round) -> Tensor | None:
        return self.first.choose(x, round)

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        return self.then.coarsen(x, sent, round)

    def delta(self, width: int) -> float:
        """As if the second had to do with all entries, which is never easier."""
        then = self.then.delta(width)
        return then if then < 0 else self.first.delta(width) * then
