"""D^2: decentralized SGD that is indifferent to how the data differ from node to node.

Tang et al., "D^2: decentralized training over decentralized data", ICML 2018, Algorithm 1:

    x_1 = W (x_0 - lr g_0),   x_{t+1} = W (2 x_t - x_{t-1} - lr g_t + lr g_{t-1})

With x_{-1} = x_0 and g_{-1} = 0 the first line is the second one. Each step keeps its own learning rate. The smallest
eigenvalue of W must be over -1/3; `lazy` averages half-way, (W + I) / 2, whose eigenvalues are never negative.

Here with c_t = x_t - x_{t-1} + lr g_{t-1}, whose mean over the nodes is 0:

    v_t = x_t + c_t - lr g_t,   x_{t+1} = W v_t,   c_{t+1} = c_t + (W v_t - v_t)

Rounding must not move the mean of c, because nothing brings it back and the mean of x would go on moving by it in every
round. So c is in float64, and what is added to it is a sum of differences, which cancel over the nodes. (As the paper
writes it, in float32, the distance of the mean from the optimum grew with the rounds.)
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round


class State(NamedTuple):
    x: Tensor  # model; between local_step and receive v, what will be averaged (B, D)
    correction: Tensor  # c, float64 (B, D)


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
        return State(x0, torch.zeros_like(x0, dtype=torch.float64))

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        step = round.learning_rate * gradient
        return state._replace(x=(state.x + state.correction - step).float())

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        move = torch.zeros_like(state.correction)  # W v - v
        for row, _, weight, part in inbox.edges("x"):
            move[row] += weight * (part.values[0].double() - state.x[row])
        move = move / 2 if self.lazy else move
        return State((state.x + move).float(), state.correction + move)
