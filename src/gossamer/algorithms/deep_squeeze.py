"""DeepSqueeze: share the compressed model, and add what compression lost to the next message.

Tang et al., "DeepSqueeze: decentralization meets error-compensated compression", 2019, Algorithm 1:

    v_i = x_i + d_i,  send C[v_i],  d_i = v_i - C[v_i]
    x_i <- x_i + eta * sum_j (w_ij - 1[i = j]) C[v_j]

x_i being the model after the local steps. T, a transform, is the identity in the paper. Rounds that settle share
everything and average plainly, if the compressor only chooses entries: the second phase of SCSP. With `full_rounds`
there are so many of them at least; then whatever is sent in fewer bits before is sent whole in a part of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms import rates
from gossamer.compressors import Compressor, TopK
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round
from gossamer.core.message import all_or_nothing
from gossamer.core.settings import check_types
from gossamer.transforms import Identity, Transform


class State(NamedTuple):
    x: Tensor  # model (B, D)
    error: Tensor  # d, what compression has kept back, of T(x) (B, D)


@dataclass(frozen=True)
class DeepSqueeze(Algorithm):
    """Share compressed models with error feedback."""

    compressor: Compressor = TopK(0.1)
    rate: rates.Rate = "table"  # eta
    transform: Transform = Identity()
    full_rounds: int = 0  # at the end of the run, of plain averaging without training

    requires = frozenset({"symmetric"})
    averages = True

    def __post_init__(self) -> None:
        check_types(self)
        rates.check(self.rate)
        if self.full_rounds < 0:
            raise ValueError(f"full_rounds must be at least 0, {self.full_rounds} was given")
        if self.full_rounds and self.compressor.spec.seeded:
            raise ValueError(
                "full_rounds cannot have random-k, which sends in every round; take another, such as top-k"
            )

    @property
    def final_rounds(self) -> int:
        return self.full_rounds

    @property
    def parts(self) -> dict[str, PartSpec]:
        spec = self.compressor.spec
        return {"v": replace(spec, sparse=True), "whole": PartSpec(sparse=True)} if self._has_whole else {"v": spec}

    @property
    def _has_whole(self) -> bool:
        """Is there a part for whole models, since the compressor's cannot hold them?"""
        spec = self.compressor.spec
        return self.full_rounds > 0 and not (spec.sparse and spec.values == "float32")

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "DeepSqueeze":
        self.transform.check(sum(layer_sizes))
        rates.check_contraction(self.compressor, layer_sizes)
        return replace(self, rate=rates.resolve(self.rate, self.compressor, mixing, layer_sizes, caution=8))

    def init(self, x0: Tensor) -> State:
        return State(x0, torch.zeros_like(x0))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        x = self.transform.forward(state.x)
        full = self._is_full(round)
        v = x if full else x + state.error
        compressed = self.compressor(v, round)
        if not full:
            state = state._replace(error=v - compressed.values)
        if not self._has_whole:
            return {"v": compressed}, state
        return {"v": all_or_nothing(compressed, not full), "whole": all_or_nothing(Part(x), full)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        step = inbox.sum("v") - inbox.own("v")
        if self._has_whole:  # while models settle; late messages of before have the other part then
            step = step + (inbox.sum("whole") - inbox.own("whole"))
        return state._replace(x=state.x + self.averaging_rate(round) * self.transform.inverse(step))

    def averaging_rate(self, round: Round) -> float:
        assert not isinstance(self.rate, str), "the rate is set by prepare"
        return 1.0 if self._is_full(round) else self.rate

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        return self.transform.inverse(torch.where(last["v"].isnan(), self.transform.forward(x0), last["v"]))

    def _is_full(self, round: Round) -> bool:
        """Are models shared as they are?"""
        return self.compressor.is_exact(round) or (self._has_whole and round.settling)
