"""Skew-Scout's idea without its server: share more where the data make the nodes' models differ, less elsewhere.

Hsieh et al., "The non-IID data quagmire of decentralized machine learning", ICML 2020, section 7: now and then models
travel, are tried on data they were not trained on, and the loss that this costs decides how much is communicated from
then on. There a server collects the losses and sets one knob for all. Here every node sets its own:

    every `every` rounds all nodes share their whole models, which costs what it costs, and
    lost = (loss of the average of what came - loss of the own model) / loss of the own model, both on own data
    fraction <- fraction * step if lost > tolerance, else fraction / step, within [least, most]

In the other rounds a node shares as in JWINS, the `fraction` of its coefficients that changed most.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms import jwins
from gossamer.algorithms.jwins import Jwins
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round
from gossamer.core.settings import check_types


class State(NamedTuple):
    inner: jwins.State
    fraction: Tensor  # of the coefficients that is sent (B, 1)
    own: Tensor  # model before the exchange (B, D)


@dataclass(frozen=True)
class SkewScout(Algorithm):
    """JWINS whose share follows what the nodes' models cost on each other's data."""

    every: int = 10  # rounds between two trials
    tolerance: float = 0.1  # relative loss that a model from outside may cost
    step: float = 1.5  # factor by which a fraction changes
    start: float = 0.2  # fraction at first
    least: float = 0.05
    most: float = 1.0
    family: str = "sym2"  # the wavelet
    levels: int = 4

    requires = frozenset({"symmetric", "one_exchange"})
    tries_models = True

    def __post_init__(self) -> None:
        check_types(self)
        if self.every < 1:
            raise ValueError(f"every must be at least 1, {self.every} was given")
        if not self.step > 1:
            raise ValueError(f"step must be over 1, {self.step} was given")
        if not 0 < self.least <= self.start <= self.most <= 1:
            given = f"{self.least}, {self.start} and {self.most} were given"
            raise ValueError(f"least, start and most must rise within (0, 1], {given}")
        _ = self._jwins  # checks the wavelet

    @property
    def parts(self) -> dict[str, PartSpec]:
        return self._jwins.parts

    @cached_property
    def _jwins(self) -> Jwins:
        return Jwins(family=self.family, levels=self.levels)

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "SkewScout":
        self._jwins.prepare(mixing, layer_sizes)
        return self

    def init(self, x0: Tensor) -> State:
        return State(self._jwins.init(x0), torch.full((len(x0), 1), self.start), x0)

    def model(self, state: State) -> Tensor:
        return state.inner.x

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(inner=self._jwins.local_step(state.inner, gradient, round))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        everything = self._is_trial(round) or round.settling
        fraction = torch.ones_like(state.fraction) if everything else state.fraction
        message, inner = self._jwins.share(state.inner, fraction)
        return message, State(inner, state.fraction, inner.x)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        inner, fraction = self._jwins.receive(state.inner, inbox, round), state.fraction
        if self._is_trial(round):
            own = round.loss(state.own)
            lost = (round.loss(inner.x) - own) / own
            fraction = torch.where(lost > self.tolerance, fraction * self.step, fraction / self.step)
        return State(inner, fraction.clamp(self.least, self.most), state.own)

    def _is_trial(self, round: Round) -> bool:
        return round.number % self.every == self.every - 1 and not round.settling
