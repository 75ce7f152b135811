"""D^2: decentralized SGD that is indifferent to how the data differ from node to node.

Tang et al., "D^2: decentralized training over decentralized data", ICML 2018, Algorithm 1:

    x_1 = W (x_0 - lr g_0),   x_{t+1} = W (2 x_t - x_{t-1} - lr g_t + lr g_{t-1})

With x_{-1} = x_0 and g_{-1} = 0 the first line is the second one. Each step keeps its own learning rate. The smallest
eigenvalue of W must be over -1/3; `lazy` averages half-way, (W + I) / 2, whose eigenvalues are never negative.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round


class State(NamedTuple):
    x: Tensor  # model; between local_step and receive, what will be averaged (B, D)
    before: Tensor  # model of the round before this one (B, D)
    step: Tensor  # lr * gradient of the round before this one (B, D)


@dataclass(frozen=True)
class D2(Algorithm):
    """D-PSGD corrected for data that differ from node to node."""

    lazy: bool = False  # mix with (W + I) / 2

    requires = frozenset({"symmetric", "static", "reliable", "one_local_step", "one_exchange"})
    parts = {"x": PartSpec()}

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "D2":
        smallest = mixing.smallest_eigenvalue()
        if not self.lazy and smallest <= -1 / 3 + 1e-9:
            raise ValueError(
                f"d2 needs weights whose smallest eigenvalue is over -1/3 and this graph's is {smallest:.3f}; "
                "set algorithm.lazy = true, or take another graph"
            )
        return self

    def init(self, x0: Tensor) -> State:
        return State(x0, x0, torch.zeros_like(x0))

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        step = round.learning_rate * gradient
        return State(2 * state.x - state.before - step + state.step, state.x, step)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        x = inbox.sum("x")
        return state._replace(x=(x + state.x) / 2 if self.lazy else x)
