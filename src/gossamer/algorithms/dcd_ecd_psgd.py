"""DCD-PSGD and ECD-PSGD: compressed differences to exact replicas, or compressed extrapolations.

Tang et al., "Communication compression for decentralized training", NeurIPS 2018. Algorithm 1, DCD:

    v_i = sum_j w_ij x_j - lr g_i,   q_i = C[v_i - x_i],   x_i <- x_i + q_i        send q_i

The node itself moves by what it sends, so its neighbours know its model exactly: x_j = x_0 + r_j with the common start
x_0 and r_j the sum of all q_j, and so sum_j w_ij x_j = x_i + sum_j w_ij r_j - r_i. The compressor must lose little: DCD
diverges where CHOCO, with its rate, does not. Algorithm 2, ECD, for unbiased compressors, t = 1, 2, ...:

    x_i' = sum_j w_ij xt_j - lr g_i
    z_i = (1 - t/2) x_i + (t/2) x_i'                       send C[z_i]
    xt_j <- (1 - 2/t) xt_j + (2/t) C[z_j]                  every neighbour's estimate of x_j

Estimates enter only through s_i = sum_j w_ij xt_j, which follows the same recursion.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.compressors import Compressor, Qsgd, Quantize
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round
from gossamer.core.settings import check_types


class State(NamedTuple):
    x: Tensor  # model (B, D)
    average: Tensor  # s, of the neighbours' models as they are known, weighted, own included (B, D)
    step: Tensor  # lr * gradient of this round (B, D)


def step_of(state: State, round: Round) -> Tensor:
    """The step that this round takes: none if it settles."""
    return torch.zeros_like(state.step) if round.settling else state.step


@dataclass(frozen=True)
class DcdPsgd(Algorithm):
    """Difference compression: nodes move by what they send."""

    compressor: Compressor = Quantize(bits=8)

    requires = frozenset({"symmetric", "one_local_step", "one_exchange"})

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"q": replace(self.compressor.spec, cumulative=True)}

    def init(self, x0: Tensor) -> State:
        return State(x0, x0, x0 - x0)  # all start at one model, and the weights at a node sum to 1

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(step=round.learning_rate * gradient)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        q = self.compressor(state.average - step_of(state, round) - state.x, round)
        return {"q": q}, state._replace(x=state.x + q.values)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state._replace(average=state.x + (inbox.sum("q") - inbox.own("q")))


@dataclass(frozen=True)
class EcdPsgd(Algorithm):
    """Extrapolation compression: estimates whose noise dies out with time."""

    compressor: Compressor = Qsgd(bits=8)

    requires = frozenset({"symmetric", "static", "reliable", "one_local_step", "one_exchange"})

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"z": self.compressor.spec}

    def init(self, x0: Tensor) -> State:
        return State(x0, x0, x0 - x0)  # as above

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(step=round.learning_rate * gradient)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        t = round.number + 1
        x = state.average - step_of(state, round)
        z = self.compressor((1 - t / 2) * state.x + t / 2 * x, round)
        return {"z": z}, state._replace(x=x)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        t = round.number + 1
        return state._replace(average=(1 - 2 / t) * state.average + 2 / t * inbox.sum("z"))
