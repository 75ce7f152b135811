"""JWINS on directed, time-varying graphs: push-sum for each wavelet coefficient on its own.

What partial sharing does to mass. Push-sum conserves sum_i x_i because the weights of a sender sum to 1. JWINS' rule,
"what a neighbour did not send counts as one's own", breaks this: a coefficient that j did not send is still made up
for at every receiver. The exact rule is that what is not sent stays. For coefficient k of node j the column of W is
then the graph's if k is sent and the unit vector e_j if not: column stochastic either way, but different for every k.
So each coefficient has a push-sum weight of its own, which is mixed as the coefficient is:

    c_i <- sum_j w_ij sent_j c_j + (1 - sent_i) c_i,    u_i likewise,    z_i = T^-1(c_i / u_i)

and sum_i c_ik, sum_i u_ik are conserved for every k, whatever is sent. Gradients are taken at z and step in c.

Any part of a coefficient's mass may be sent, if c and u are split in the same proportion. Two uses are made of that. A
node keeps a quarter of a unit to itself: if u became small where a node sends often and hears little, a gradient step,
taken in c, would be large in c / u. And what is sent is a multiple of 1/16, which travels in a few bits.

Which coefficients are sent is decided as in JWINS, by the accumulated change of c / u.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms.jwins import Jwins
from gossamer.compressors import largest
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Quantized, Round, where
from gossamer.transforms import Transform

_GRAIN = 1 / 16  # what is sent of a weight is a multiple of it
_KEPT = 1 / 4  # of a weight is never sent
_MOST = 127  # grains: what fits in an int8


class State(NamedTuple):
    mass: Tensor  # c (B, D)
    weight: Tensor  # u (B, D)
    reference: Tensor  # the scores are V = c / u - reference (B, D)
    start: Tensor  # c / u at the start of the round (B, D)


@dataclass(frozen=True)
class JwinsPush(Algorithm):
    """JWINS on directed and time-varying graphs, exact in mass."""

    budget: float | None = None  # as of Jwins, whose settings these are; the weights take a quarter more
    family: str = "sym2"
    levels: int = 4
    wavelet: bool = True
    randomize: bool = True

    requires = frozenset({"column_stochastic"})
    on_missing = "lose_mass"
    asynchronous = True  # a share counts whenever it comes

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {
            "mass": PartSpec(sparse=True),
            "weight": PartSpec(same_indices_as="mass", values="int8", push_sum_weight=True),
        }

    @cached_property
    def _jwins(self) -> Jwins:
        return Jwins(self.budget, self.family, self.levels, self.wavelet, randomize=self.randomize)

    @property
    def transform(self) -> Transform:
        return self._jwins.transform

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "JwinsPush":
        self._jwins.prepare(mixing, layer_sizes)
        return self

    def __post_init__(self) -> None:
        _ = self._jwins  # checks the settings

    def fraction(self, round: Round, num_parameters: int) -> Tensor:
        return self._jwins.fraction(round, num_parameters)

    def init(self, x0: Tensor) -> State:
        c = self.transform.forward(x0)
        return State(c, torch.ones_like(c), c, c)

    def model(self, state: State) -> Tensor:
        return self.transform.inverse(state.mass / state.weight)

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(mass=state.mass - round.learning_rate * self.transform.forward(gradient))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        z = state.mass / state.weight
        sent = largest(z - state.reference, self._jwins.fraction(round, z.shape[-1]))
        whole = ((state.weight - _KEPT) / _GRAIN + 0.01).floor()  # 0.01: a multiple stays one in spite of rounding
        grains = where(sent, whole.clamp(0, _MOST))
        weight = grains * _GRAIN
        mass = where(sent, z * weight)
        scales = torch.full((len(z), 1), _GRAIN)
        message = {
            "mass": Part(mass, sent),
            "weight": Part(weight, sent, Quantized(grains.to(torch.int16), scales, 0)),
        }
        reference = where(sent, state.start, state.reference)
        return message, State(state.mass - mass, state.weight - weight, reference, state.start)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        mass, weight = state.mass + inbox.sum("mass"), state.weight + inbox.sum("weight")
        return State(mass, weight, state.reference, mass / weight)

    def weights(self, state: State) -> Tensor:
        return state.weight
