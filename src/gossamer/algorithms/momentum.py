"""Local momentum and weight decay, for any algorithm: they change the gradient that it steps with.

As in torch.optim.SGD: g <- g + decay * x;  v <- beta * v + g;  step with v, or with g + beta * v (Nesterov).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.core import Algorithm, Inbox, Message, Round


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    velocity: Tensor  # v (B, D)


@dataclass(frozen=True)
class Momentum(Algorithm):
    """Local (heavy-ball or Nesterov) momentum and weight decay around an algorithm."""

    inner: Algorithm
    beta: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def requires(self) -> frozenset[str]:
        return self.inner.requires

    @property
    def pools_data(self) -> bool:
        return self.inner.pools_data

    @property
    def parts(self) -> dict[str, core.PartSpec]:
        return dict(self.inner.parts)

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "Momentum":
        return replace(self, inner=self.inner.prepare(mixing, layer_sizes))

    def init(self, x0: Tensor) -> State:
        return State(self.inner.init(x0), torch.zeros_like(x0))

    def model(self, state: State) -> Tensor:
        return self.inner.model(state.inner)

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        gradient = gradient + self.weight_decay * self.model(state)
        velocity = self.beta * state.velocity + gradient
        step = gradient + self.beta * velocity if self.nesterov else velocity
        return State(self.inner.local_step(state.inner, step, round), velocity)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        message, inner = self.inner.send(state.inner, round)
        return message, state._replace(inner=inner)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state._replace(inner=self.inner.receive(state.inner, inbox, round))

    def weights(self, state: State) -> Tensor | None:
        return self.inner.weights(state.inner)

    def averaging_rate(self, round: Round) -> float:
        return self.inner.averaging_rate(round)
