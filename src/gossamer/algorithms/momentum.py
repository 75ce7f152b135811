"""Momentum and weight decay, for any algorithm: they change the gradient that it steps with.

Local momentum is that of torch.optim.SGD: g <- g + decay * x;  v <- beta * v + g;  step with v, or with g + beta * v
(Nesterov).

Quasi-global momentum follows the group's movement instead of the node's own gradients. Lin et al., "Quasi-global
momentum: accelerating decentralized deep learning on heterogeneous data", ICML 2021, Algorithm 1: a local step uses m,
but leaves it as it is; m follows what became of the model in the whole round.

    step with  mh = beta m + g     (Nesterov: g + beta mh)
    after the exchange  m <- mu m + (1 - mu) (x_t - x_{t+1}) / lr

with mu = beta. The paper has one local step per round; with more, the difference is divided by their number too.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper
from gossamer.core import Inbox, Round


class MomentumState(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    velocity: Tensor  # v (B, D)


@dataclass(frozen=True)
class Momentum(Wrapper):
    """Local (heavy-ball or Nesterov) momentum and weight decay around an algorithm."""

    beta: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def init(self, x0: Tensor) -> MomentumState:
        return MomentumState(self.inner.init(x0), torch.zeros_like(x0))

    def local_step(self, state: MomentumState, gradient: Tensor, round: Round) -> MomentumState:
        gradient = gradient + self.weight_decay * self.model(state)
        velocity = self.beta * state.velocity + gradient
        step = gradient + self.beta * velocity if self.nesterov else velocity
        return MomentumState(self.inner.local_step(state.inner, step, round), velocity)


class QuasiGlobalState(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    momentum: Tensor  # m (B, D)
    start: Tensor  # model at the start of the round (B, D)


@dataclass(frozen=True)
class QuasiGlobalMomentum(Wrapper):
    """Momentum along the group's movement, and weight decay, around an algorithm."""

    beta: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def init(self, x0: Tensor) -> QuasiGlobalState:
        return QuasiGlobalState(self.inner.init(x0), torch.zeros_like(x0), x0)

    def local_step(self, state: QuasiGlobalState, gradient: Tensor, round: Round) -> QuasiGlobalState:
        gradient = gradient + self.weight_decay * self.model(state)
        step = self.beta * state.momentum + gradient
        if self.nesterov:
            step = gradient + self.beta * step
        return state._replace(inner=self.inner.local_step(state.inner, step, round))

    def receive(self, state: QuasiGlobalState, inbox: Inbox, round: Round) -> QuasiGlobalState:
        inner = self.inner.receive(state.inner, inbox, round)
        if round.exchange < round.exchanges - 1:
            return state._replace(inner=inner)
        x = self.inner.model(inner)
        moved = (state.start - x) / (round.learning_rate * round.local_steps)
        return QuasiGlobalState(inner, self.beta * state.momentum + (1 - self.beta) * moved, x)
