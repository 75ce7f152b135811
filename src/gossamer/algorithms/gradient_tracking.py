"""Gradient tracking: every node keeps an estimate of the average gradient of all.

Pu, Nedic, "Distributed stochastic gradient tracking methods", 2018 (DSGT), in the form that averages after the step:

    y_t = (W y_{t-1}) + g_t - g_{t-1},   x_{t+1} = W (x_t - lr y_t),   y_{-1} = g_{-1} = 0

The mean of y over all nodes is always the mean of their last gradients. Two vectors are sent.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round


class State(NamedTuple):
    x: Tensor  # model (B, D)
    y: Tensor  # estimate of the average gradient (B, D)
    gradient: Tensor  # own gradient of the last round (B, D)


@dataclass(frozen=True)
class GradientTracking(Algorithm):
    """Step along a gossiped estimate of the average gradient."""

    requires = frozenset({"symmetric", "reliable", "one_local_step", "one_exchange"})
    parts = {"x": PartSpec(), "y": PartSpec()}

    def init(self, x0: Tensor) -> State:
        return State(x0, torch.zeros_like(x0), torch.zeros_like(x0))

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        y = state.y + gradient - state.gradient
        return State(state.x - round.learning_rate * y, y, gradient)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x), "y": Part(state.y)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return State(inbox.sum("x"), inbox.sum("y"), state.gradient)
