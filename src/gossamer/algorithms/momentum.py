"""Momentum and weight decay, for any algorithm: they change the gradient that it steps with.

Local momentum is that of torch.optim.SGD: g <- g + decay * x;  v <- beta * v + g;  step with v, or with g + beta * v
(Nesterov).

Quasi-global momentum follows the group's movement instead of the node's own gradients. Lin et al., "Quasi-global
momentum: accelerating decentralized deep learning on heterogeneous data", ICML 2021, Algorithm 1: a local step uses m,
but leaves it as it is; m follows what became of the model in the whole round.

    step with  mh = beta m + g     (Nesterov: g + beta mh)
    after the exchange  m <- mu m + (1 - mu) (x_t - x_{t+1}) / lr

with mu = beta. The paper has one local step per round; with more, the difference is divided by their number too.

The paper's graphs are symmetric. On a directed graph averaging turns what nodes disagree on, from node to node, instead
of only shrinking it, and a momentum that repeats this late feeds it: nodes drift apart without end, at any averaging
rate (docs/decisions/0002-averaging-rates.md). So where an algorithm is not for symmetric graphs alone, m follows the
node's own steps, and what exchanges move is left out of x_t - x_{t+1}.
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
    start: Tensor  # model at the start of the round, or, without symmetry, moved along by exchanges (B, D)


@dataclass(frozen=True)
class QuasiGlobalMomentum(Wrapper):
    """Momentum along the group's movement, and weight decay, around an algorithm. On directed graphs the group is left
    out, because its movement would be amplified."""

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
        x = self.inner.model(inner)
        if "symmetric" not in self.inner.requires:
            state = state._replace(start=state.start + x - self.inner.model(state.inner))
        if round.exchange < round.exchanges - 1:
            return state._replace(inner=inner)
        moved = (state.start - x) / (round.learning_rate * round.local_steps)
        return QuasiGlobalState(inner, self.beta * state.momentum + (1 - self.beta) * moved, x)
