"""What all compressions have in common: two steps and a promise."""

from typing import Literal

from torch import Tensor

from gossamer.core import Part, PartSpec, Round, chosen

Kind = Literal["contraction", "unbiased"]


class Compression:
    """A `core.Compressor` in two steps, of which a kind gives one or both: `choose` entries, `coarsen` them."""

    @property
    def kind(self) -> Kind:
        """Which promise it makes. Usually a plain class attribute."""
        raise NotImplementedError

    @property
    def spec(self) -> PartSpec:
        """How what it returns travels. Usually a plain class attribute."""
        raise NotImplementedError

    def __call__(self, x: Tensor, round: Round) -> Part:
        """What is sent in place of x (B, D)."""
        return self.coarsen(x, self.choose(x, round), round)

    def choose(self, x: Tensor, round: Round) -> Tensor | None:
        """(B, D) bool: which entries are sent; None: all."""
        return None

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        """The part that holds the sent entries, as far as they are told."""
        return Part(x) if sent is None else chosen(x, sent)

    def delta(self, width: int) -> float:
        """E |C(x) - x|^2 <= (1 - delta) |x|^2. Under 0 if it may be further off than sending nothing is."""
        return 1 - self.omega(width)

    def omega(self, width: int) -> float:
        """Of the unbiased: E |C(x) - x|^2 <= omega |x|^2. Others have only a delta."""
        raise NotImplementedError
