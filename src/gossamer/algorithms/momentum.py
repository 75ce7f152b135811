"""Local momentum and weight decay, for any algorithm: they change the gradient that it steps with.

As in torch.optim.SGD: g <- g + decay * x;  v <- beta * v + g;  step with v, or with g + beta * v (Nesterov).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper
from gossamer.core import Round


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    velocity: Tensor  # v (B, D)


@dataclass(frozen=True)
class Momentum(Wrapper):
    """Local (heavy-ball or Nesterov) momentum and weight decay around an algorithm."""

    beta: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def init(self, x0: Tensor) -> State:
        return State(self.inner.init(x0), torch.zeros_like(x0))

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        gradient = gradient + self.weight_decay * self.model(state)
        velocity = self.beta * state.velocity + gradient
        step = gradient + self.beta * velocity if self.nesterov else velocity
        return State(self.inner.local_step(state.inner, step, round), velocity)
