"""Push-sum: any algorithm that averages, on directed graphs.

Kempe, Dobra, Gehrke, "Gossip-based computation of aggregate information", FOCS 2003; for learning, Assran et al.,
"Stochastic gradient push for distributed deep learning", ICML 2019. On a directed graph a sender knows only to how many
it sends, so the weights of a sender sum to 1 and those at a receiver do not: averaging gives every node a different
share of the total. Each node therefore averages a number u, 1 at the start, in the very same way, and x / u is free of
the share. The sums of x and of u over all nodes are conserved by every exchange.

    gradient at z_i = x_i / u_i;  x as in the wrapped algorithm;  u_i <- u_i + eta * sum_j (w_ij - 1[i = j]) u_j
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper, expand
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's; its model is x
    u: Tensor  # push-sum weight (B, 1), float64: it is one number, and its mass must not drift


@dataclass(frozen=True)
class PushSum(Wrapper):
    """Any averaging algorithm on directed graphs."""

    inner: Algorithm  # one whose model is what it averages; RelativeToInit and momentum go around a PushSum

    on_missing = "lose_mass"  # what does not arrive is missing from x and from u alike

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = expand(self.inner)
        if not inner.averages or isinstance(inner, Wrapper) or inner.on_missing == "lose_mass":
            raise ValueError(
                f"inner must be an algorithm that averages and wraps no other, such as dpsgd, deep-squeeze or choco, "
                f"{type(self.inner).__name__} was given"
            )

    @property
    def requires(self) -> frozenset[str]:
        return self.inner.requires - {"symmetric"} | {"column_stochastic"}

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {**self.inner.parts, "u": PartSpec(width=1, values="float64", push_sum_weight=True)}

    def init(self, x0: Tensor) -> State:
        return State(self.inner.init(x0), torch.ones(len(x0), 1, dtype=torch.float64))

    def model(self, state: State) -> Tensor:
        return self.inner.model(state.inner) / state.u.float()

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        message, inner = self.inner.send(state.inner, round)
        return {**message, "u": Part(state.u)}, state._replace(inner=inner)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        u = state.u + self.inner.averaging_rate(round) * (inbox.sum("u") - inbox.own("u"))
        return State(self.inner.receive(state.inner, inbox, round), u)

    def weights(self, state: State) -> Tensor:
        return state.u
