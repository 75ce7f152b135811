"""Randomized cut-off: what share of its coefficients a node sends is itself random, drawn anew every round."""

from functools import cache
from math import log2
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.core.rng import Streams


class CutoffDistribution(NamedTuple):
    """A distribution of the fraction that is sent, independent for every node and round."""

    fractions: tuple[float, ...]
    probabilities: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(f * p for f, p in zip(self.fractions, self.probabilities, strict=True))

    def draw(self, rng: Streams) -> Tensor:
        """(B, 1) fractions."""
        bounds = torch.tensor(self.probabilities, dtype=torch.float64).cumsum(0)[:-1]
        which = torch.searchsorted(bounds, rng.uniform("cutoff"), right=True)
        return torch.tensor(self.fractions)[which]

    def deterministic(self) -> "CutoffDistribution":
        """The same mean, always."""
        return CutoffDistribution((self.mean,), (1.0,))


_FRACTIONS = (0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 1.0)
PAPER_CUTOFF = CutoffDistribution(_FRACTIONS, (1 / 7,) * 7)  # mean 0.343

_VALUE_BITS = 26.5  # of a float32 on the wire, its exponent coded; the same for full sharing
_FRAME_BYTES = 40  # of a message besides values and indices


@cache
def cutoff_for_budget(budget: float, num_parameters: int, randomize: bool = True) -> CutoffDistribution:
    """The two-point distribution whose messages cost, in expectation, `budget` of full sharing's bytes.

    Half of the budget goes into sending everything now and then (probability budget / 2), which needs no indices. The
    other rounds send a small fraction f: f in values, and the entropy of f in indices. The paper's distributions
    (20 %: 1 with probability 0.1, else 0.10; 10 %: 1 with probability 0.05, else 0.05) are this one, rounded. Without
    `randomize` it is the one fraction that costs as much.
    """
    overhead = 8 * _FRAME_BYTES / (_VALUE_BITS * num_parameters)
    if budget == 1:
        return CutoffDistribution((1.0,), (1.0,))
    everything = budget / 2 if randomize else 0.0
    target = (budget - everything) / (1 - everything) - overhead
    if target * num_parameters < 1:
        least = 2 * (1 / num_parameters + overhead)
        raise ValueError(
            f"budget {budget} leaves no room for a single of {num_parameters} parameters; take at least {least:.2g}"
        )
    low, high = 0.0, target
    for _ in range(60):
        middle = (low + high) / 2
        index_bits = -middle * log2(middle) - (1 - middle) * log2(1 - middle)
        low, high = (middle, high) if middle + index_bits / _VALUE_BITS < target else (low, middle)
    return (
        CutoffDistribution((low, 1.0), (1 - everything, everything))
        if randomize
        else CutoffDistribution((low,), (1.0,))
    )
