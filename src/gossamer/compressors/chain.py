"""Fewer and coarser entries."""

from dataclasses import dataclass, replace

from torch import Tensor

from gossamer.compressors.compression import Compression
from gossamer.core import Part, PartSpec, Round


@dataclass(frozen=True)
class Chain(Compression):
    """One compression chooses entries, another coarsens those. The two errors are at right angles."""

    first: Compression  # top-k, layerwise-top-k, random-k or threshold
    then: Compression  # bfloat16, quantize, qsgd or sign

    kind = "contraction"

    def __post_init__(self) -> None:
        spec = self.first.spec
        if not (spec.indexed or spec.drawn) or spec.values != "float32":
            known = "top-k, layerwise-top-k, random-k or threshold"
            raise ValueError(f"first must choose entries, such as {known}; {self.first} was given")
        spec = self.then.spec
        if spec.indexed or spec.drawn:
            raise ValueError(f"then must coarsen: bfloat16, quantize, qsgd or sign; {self.then} was given")

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
