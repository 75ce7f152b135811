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
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from gossamer.algorithms.cutoff import PAPER_CUTOFF, CutoffDistribution, cutoff_for_budget
from gossamer.compressors import largest
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round, partial_average, sparse_part, where
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
        if self.budget is not None and not 0 < self.budget <= 1:
            raise ValueError(f"budget must be over 0 and at most 1, {self.budget} was given")
        Wavelet(self.family, self.levels)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"coefficients": PartSpec(sparse=True)}

    @cached_property
    def transform(self) -> Transform:
        return Wavelet(self.family, self.levels) if self.wavelet else Identity()

    def cutoff(self, num_parameters: int) -> CutoffDistribution:
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
        return self.share(state, self.cutoff(state.x.shape[-1]).draw(round.rng))

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
