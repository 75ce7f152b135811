"""Push-sum: any algorithm that averages, on directed graphs.

Kempe, Dobra, Gehrke, "Gossip-based computation of aggregate information", FOCS 2003; for learning, Assran et al.,
"Stochastic gradient push for distributed deep learning", ICML 2019. On a directed graph a sender knows only to how many
it sends, so the weights of a sender sum to 1 and those at a receiver do not: averaging gives every node a different
share of the total. Each node therefore averages a number u, 1 at the start, in the very same way, and x / u is free of
the share. The sums of x and of u over all nodes are conserved by every exchange.

    gradient at z_i = x_i / u_i;  x as in the wrapped algorithm;  u_i <- u_i + eta * sum_j (w_ij - 1[i = j]) u_j

The papers' directed algorithms are each the push-sum of an undirected one. SGP: Assran et al. Sparse-Push and SCSP:
Aketi, Singh, Rabaey, "Sparse-Push: communication- and energy-efficient decentralized distributed learning over directed
and time-varying graphs with non-IID datasets", 2021, Algorithms 1 and 2. Quant-SGP: Taheri et al., "Quantized
decentralized stochastic learning over directed graphs", ICML 2020, Algorithm 1, in CHOCO's form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms import rates
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.composition import Alias, Wrapper, expand
from gossamer.algorithms.deep_squeeze import DeepSqueeze
from gossamer.algorithms.dpsgd import Dpsgd
from gossamer.compressors import Compressor, TopK
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round
from gossamer.transforms import Identity, Transform


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's; its model is x
    u: Tensor  # push-sum weight (B, 1), float64: it is one number, and its mass must not drift


@dataclass(frozen=True)
class PushSum(Wrapper):
    """Any averaging algorithm on directed graphs."""

    inner: Algorithm  # one whose model is what it averages; RelativeToInit and momentum go around a PushSum

    on_missing = "lose_mass"  # what does not arrive is missing from x and from u alike
    asynchronous = True  # and what arrives late, or several at once, is added to both alike

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

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        x = self.inner.neighbours_view(last, x0)
        return None if x is None else x / last["u"].float()


@dataclass(frozen=True)
class Sgp(Alias):
    """Stochastic gradient push: full sharing on directed graphs."""

    @property
    def composition(self) -> PushSum:
        return PushSum(Dpsgd())


@dataclass(frozen=True)
class SparsePush(Alias):
    """Compressed models with error feedback, on directed and time-varying graphs."""

    compressor: Compressor = TopK(0.01)
    rate: rates.Rate = "table"  # eta
    transform: Transform = Identity()

    @property
    def composition(self) -> PushSum:
        return PushSum(DeepSqueeze(self.compressor, self.rate, self.transform))


@dataclass(frozen=True)
class Scsp(SparsePush):
    """Sparse-Push for most of the run, then some rounds of full sharing without training."""

    full_rounds: int = 40  # k

    @property
    def composition(self) -> PushSum:
        return PushSum(DeepSqueeze(self.compressor, self.rate, self.transform, self.full_rounds))


@dataclass(frozen=True)
class QuantSgp(Alias):
    """CHOCO's compressed differences on directed graphs."""

    compressor: Compressor = TopK(0.1)
    rate: rates.Rate = "auto"  # gamma
    transform: Transform = Identity()

    @property
    def composition(self) -> PushSum:
        return PushSum(Choco(self.compressor, self.rate, self.transform))
