"""DCD-PSGD: difference compression with replicas that are exact.

Tang et al., "Communication compression for decentralized training", NeurIPS 2018, Algorithm 1:

    v_i = sum_j w_ij x_j - lr g_i,   q_i = C[v_i - x_i],   x_i <- x_i + q_i        send q_i

The node itself moves by what it sends, so its neighbours know its model exactly: x_j = x_0 + r_j with the common start
x_0 and r_j the running sum of q_j, and so sum_j w_ij x_j = x_i + sum_j w_ij r_j - r_i. The compressor must lose little:
DCD diverges where CHOCO, with its rate, does not.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from gossamer.compressors import Compressor, Quantize
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round


class State(NamedTuple):
    x: Tensor  # model (B, D)
    average: Tensor  # s, the weighted average of the neighbours' models, own included (B, D)
    step: Tensor  # lr * gradient of this round (B, D)


@dataclass(frozen=True)
class DcdPsgd(Algorithm):
    """Difference compression: nodes move by what they send."""

    compressor: Compressor = Quantize(bits=8)

    requires = frozenset({"symmetric", "one_local_step"})

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"q": replace(self.compressor.spec, cumulative=True)}

    def init(self, x0: Tensor) -> State:
        return State(x0, x0, x0 - x0)  # all start at one model, and the weights at a node sum to 1

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(step=round.learning_rate * gradient)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        q = self.compressor(state.average - state.step - state.x, round)
        return {"q": q}, state._replace(x=state.x + q.values)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state._replace(average=state.x + (inbox.sum("q") - inbox.own("q")))
