"""JWINS: share the wavelet coefficients that changed most, with a randomized cut-off.

Dhasade et al., "Get more for less in decentralized learning systems", ICDCS 2023, Algorithm 1. Per round and node,
T the wavelet transform, V the scores, x the model at the start of the round and x' after the local steps:

    V <- V + T(x') - T(x)                                   score every coefficient by its change
    alpha ~ the cut-off distribution; send the alpha * D coefficients T(x') with the largest |V|
    y_i = T(x'_i) + sum_j w_ij sent_j (T(x'_j) - T(x'_i))   what a neighbour did not send counts as one's own
    x <- T^-1(y)
    V <- V (1 - sent) + the round's change, averaging included

The last line is the rule of the paper's implementation: V <- V_before (1 - sent) + T(x_next) - T(x).

What differs here is bookkeeping only. T is linear and T(x_next) = y, so V = T(x) - reference, where `reference` is
T(x) as it was at the start of the round in which the coefficient was last sent. Keeping T(x) and the reference instead
of V costs one forward and one inverse transform per round, not three and one. And T is periodized, so that D parameters
give exactly D coefficients; the paper's library pads.

Gossamer's own QuantizedJwins sends coefficients of a few bits, with a scale for every 512 of them, so a receiver
averages in values that are off by up to half a step. With error feedback, node i sends

    Q[T(x'_i)[k] + e_i[k]]   and keeps   e_i[k] = T(x'_i)[k] + e_i[k] - what was sent

for every coefficient k that it sends, so the errors of successive messages cancel. All else is JWINS. A step is a
fraction of a bucket's largest coefficient, so put `RelativeToInit` around it: changes are smaller than coefficients.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import log2
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.compressors import Quantize, largest
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round, partial_average, sparse_part, where
from gossamer.core.rng import Streams
from gossamer.core.settings import check_types
from gossamer.transforms import Identity, Transform, Wavelet


class State(NamedTuple):
    x: Tensor  # model (B, D)
    coefficients: Tensor  # T(x) at the start of the round; between send and receive, T(x') (B, D)
    reference: Tensor  # the scores are V = T(x) - reference (B, D)


@dataclass(frozen=True)
class Jwins(Algorithm):
    """Share the wavelet coefficients that changed most, with a randomized cut-off."""

    budget: float | None = None  # bytes as a share of full sharing's; None: the paper's cut-off, 0.343 in values
    family: str = "sym2"  # the wavelet
    levels: int = 4
    wavelet: bool = True  # the paper's three ablations: False scores and sends plain parameters,
    accumulate: bool = True  # False forgets the scores after every round,
    randomize: bool = True  # False always sends the mean of the cut-off

    requires = frozenset({"symmetric"})

    def __post_init__(self) -> None:
        check_types(self)
        if self.budget is not None and not 0 < self.budget <= 1:
            raise ValueError(f"budget must be over 0 and at most 1, {self.budget} was given")
        Wavelet(self.family, self.levels)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"coefficients": PartSpec(sparse=True)}

    @cached_property
    def transform(self) -> Transform:
        return Wavelet(self.family, self.levels) if self.wavelet else Identity()

    def cutoff(self, num_parameters: int) -> "CutoffDistribution":
        if self.budget is not None:
            return cutoff_for_budget(self.budget, num_parameters, self.randomize)
        return PAPER_CUTOFF if self.randomize else PAPER_CUTOFF.deterministic()

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "Jwins":
        self.transform.check(sum(layer_sizes))
        self.cutoff(sum(layer_sizes))  # refuses a budget that is too small
        return self

    def init(self, x0: Tensor) -> State:
        coefficients = self.transform.forward(x0)
        return State(x0, coefficients, coefficients)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return self.share(state, self.fraction(round, state.x.shape[-1]))

    def fraction(self, round: Round, num_parameters: int) -> Tensor:
        """(B, 1): how much of the coefficients each node sends; all of them in rounds that settle."""
        drawn = self.cutoff(num_parameters).draw(round.rng)
        return torch.ones_like(drawn) if round.settling else drawn

    def share(self, state: State, fraction: Tensor) -> tuple[Message, State]:
        """Share this fraction, (B, 1), of the coefficients."""
        coefficients = self.transform.forward(state.x)
        sent = largest(coefficients - state.reference, fraction)
        reference = where(sent, state.coefficients, state.reference)
        return {"coefficients": sparse_part(coefficients, sent)}, State(state.x, coefficients, reference)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        averaged = partial_average(state.coefficients, inbox, "coefficients")
        return State(
            x=self.transform.inverse(averaged),
            coefficients=averaged,
            reference=state.reference if self.accumulate else averaged,
        )

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        sent = last["coefficients"]
        return self.transform.inverse(torch.where(sent.isnan(), self.transform.forward(x0), sent))


class QuantizedState(NamedTuple):
    inner: State
    error: Tensor  # e, what rounding has kept back of each coefficient (B, D)


@dataclass(frozen=True)
class QuantizedJwins(Algorithm):
    """JWINS with coefficients of a few bits and error feedback."""

    bits: int = 8
    bucket: int = 512  # coefficients per scale
    budget: float | None = None  # this and the following as of Jwins; a share of what it would send in float32
    family: str = "sym2"
    levels: int = 4
    wavelet: bool = True
    accumulate: bool = True
    randomize: bool = True

    def __post_init__(self) -> None:
        _ = self._jwins, self._quantize  # check the settings

    @property
    def requires(self) -> frozenset[str]:
        return self._jwins.requires

    @property
    def parts(self) -> dict[str, PartSpec]:
        spec = self._jwins.parts["coefficients"]
        return {"coefficients": replace(spec, values=self._quantize.spec.values, bucket=self.bucket)}

    @cached_property
    def _jwins(self) -> Jwins:
        return Jwins(self.budget, self.family, self.levels, self.wavelet, self.accumulate, self.randomize)

    @cached_property
    def _quantize(self) -> Quantize:
        return Quantize(self.bits, self.bucket)

    @property
    def transform(self) -> Transform:
        return self._jwins.transform

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "QuantizedJwins":
        self._jwins.prepare(mixing, layer_sizes)
        return self

    def init(self, x0: Tensor) -> QuantizedState:
        return QuantizedState(self._jwins.init(x0), torch.zeros_like(x0))

    def fraction(self, round: Round, num_parameters: int) -> Tensor:
        return self._jwins.fraction(round, num_parameters)

    def model(self, state: QuantizedState) -> Tensor:
        return state.inner.x

    def local_step(self, state: QuantizedState, gradient: Tensor, round: Round) -> QuantizedState:
        return state._replace(inner=self._jwins.local_step(state.inner, gradient, round))

    def send(self, state: QuantizedState, round: Round) -> tuple[Message, QuantizedState]:
        message, inner = self._jwins.send(state.inner, round)
        sent = message["coefficients"].sent
        assert sent is not None
        wanted = inner.coefficients + state.error
        part = self._quantize.coarsen(wanted, sent, round)
        return {"coefficients": part}, QuantizedState(inner, where(sent, wanted - part.values, state.error))

    def receive(self, state: QuantizedState, inbox: Inbox, round: Round) -> QuantizedState:
        return state._replace(inner=self._jwins.receive(state.inner, inbox, round))

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        return self._jwins.neighbours_view(last, x0)


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
    if randomize:
        return CutoffDistribution((low, 1.0), (1 - everything, everything))
    return CutoffDistribution((low,), (1.0,))
