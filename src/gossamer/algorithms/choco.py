"""CHOCO-SGD: gossip the compressed difference between a model and what its neighbours believe it to be.

Koloskova, Stich, Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed communication",
ICML 2019, Algorithm 2. T is a transform (the identity in the paper),

    q_i = C[T(x_i) - xh_i],  xh_i <- xh_i + q_i            send q_i
    x_i <- x_i + gamma T^-1(sum_j w_ij xh_j - xh_i)

xh_j is the sum of all q_j, and every neighbour keeps it: q is a cumulative part. The paper's memory-efficient form
keeps the weighted sum of the replicas instead, which is right only as long as the weights are the same and nothing is
lost. The replicas xh start at 0 as in the paper. `RelativeToInit` makes them start at the common initial model, which
saves the rounds in which the whole model would have to be sent. Rounds that settle are plain averaging, if the
compressor only chooses entries: all of the difference is sent, and the rate is 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms import rates
from gossamer.compressors import Compressor, TopK
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round
from gossamer.core.settings import check_types
from gossamer.transforms import Identity, Transform


class State(NamedTuple):
    x: Tensor  # model (B, D)
    replica: Tensor  # xh, what neighbours believe T(x) to be (B, D)


@dataclass(frozen=True)
class Choco(Algorithm):
    """Gossip compressed differences to replicas that the neighbours keep."""

    compressor: Compressor = TopK(0.1)
    rate: rates.Rate = "auto"  # gamma
    transform: Transform = Identity()

    requires = frozenset({"symmetric"})
    averages = True

    def __post_init__(self) -> None:
        check_types(self)
        rates.check(self.rate)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"q": replace(self.compressor.spec, cumulative=True)}

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "Choco":
        self.transform.check(sum(layer_sizes))
        rates.check_contraction(self.compressor, layer_sizes)
        return replace(self, rate=rates.resolve(self.rate, self.compressor, mixing, layer_sizes, caution=2))

    def init(self, x0: Tensor) -> State:
        return State(x0, torch.zeros_like(x0))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        q = self.compressor(self.transform.forward(state.x) - state.replica, round)
        return {"q": q}, state._replace(replica=state.replica + q.values)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        gap = inbox.sum("q") - state.replica
        return state._replace(x=state.x + self.averaging_rate(round) * self.transform.inverse(gap))

    def averaging_rate(self, round: Round) -> float:
        assert not isinstance(self.rate, str), "the rate is set by prepare"
        return 1.0 if self.compressor.is_exact(round) else self.rate

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        return self.transform.inverse(last["q"])  # the replica
