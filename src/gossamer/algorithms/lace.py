"""Lace: pairs of nodes that share a memory, and say only what is not in it.

Gossamer's own. Under CHOCO and Silk a node sends everything twice: its data push it away from its neighbours, which it
sends, and averaging pulls it back, which it must send too, because a neighbour cannot compute a pull that came from
others. In a pair both ends can. In every exchange a node meets one partner, in a sequence of pairings that repeats (the
topology `matchings`). Each pairing of the sequence is a channel: H_i is the sum of all that node i has sent in it, and
both ends know H_i and H_p. a_i is what both know of x_i: all that i has sent in the channel, plus every averaging step
that the pair has taken. A node sends only the compressed difference to it; the step is computed at both ends:

    q_i = Q(T(x_i - x0) - a_i);   a_i <- a_i + q_i;   H_i <- H_i + q_i           send q_i to the partner p
    r = (H_i + H_p) / 2;   x_i <- x_i + T^-1(r - a_i);   a_i <- r                if p was heard

T is the wavelet transform, x0 the common start, and Q sends the few entries that stand out, in few levels
(`dead-zone`). If all messages arrive, a_i is r at both ends, what the pair agrees on, and a meeting moves x_i by
T^-1(q_p - q_i) / 2 and its partner by the opposite, so the mean of all models is conserved.

If a message is lost, its sender or its receiver moves later, not wrongly: what a node has been moved by in a channel is
always (H_p - H_i) / 2 as of when it last heard p, and what p missed is resent at the next meeting (wire/resync.py). A
node whose partner is gone stays where it is. So nodes need no common round, either.

Nodes stay far from each other while they train: the models to use are those after they have settled.
"""

from collections import namedtuple
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms.composition import Alias
from gossamer.algorithms.silk import RelativeToInit
from gossamer.compressors import Compressor, DeadZone
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round
from gossamer.core.settings import check_types
from gossamer.transforms import Identity, Transform, Wavelet


class State(NamedTuple):
    x: Tensor  # model (B, D)
    told: Any  # a NamedTuple of a, what both ends know of x, for each channel, each (B, D)


@dataclass(frozen=True)
class PairGossip(Algorithm):
    """Gossip compressed differences to what each pair has agreed on."""

    compressor: Compressor = DeadZone()
    transform: Transform = Identity()
    channels: int = 1  # pairings until the first returns; set by prepare

    requires = frozenset({"symmetric", "changing"})
    asynchronous = True  # what a pair has moved is a function of sums, whenever they were sent

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"q": replace(self.compressor.spec, cumulative=True, channels=self.channels)}

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "PairGossip":
        self.transform.check(sum(layer_sizes))
        in_halves = np.isin(mixing.weights, (0.5, 1.0)).all()  # else what the pair moved depends on the order
        if mixing.period < 1 or np.diff(mixing.indptr).max() > 2 or not in_halves:
            raise ValueError("lace needs pairs of nodes that meet again and average; take topology matchings")
        return replace(self, channels=mixing.period)

    def init(self, x0: Tensor) -> State:
        return State(x0, _channels(self.channels)(*(torch.zeros_like(x0) for _ in range(self.channels))))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        told = state.told[self._channel(round)]
        q = self.compressor(self.transform.forward(state.x) - told, round)
        return {"q": q}, self._with(state, round, told + q.values)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        told = state.told[self._channel(round)]
        agreed = torch.where(inbox.heard(), inbox.sum("q"), told)  # the weights of a pair are 1/2 each
        x = state.x + self.transform.inverse(agreed - told)
        return self._with(state._replace(x=x), round, agreed)

    def _channel(self, round: Round) -> int:
        return (round.number * round.exchanges + round.exchange) % self.channels

    def _with(self, state: State, round: Round, told: Tensor) -> State:
        return state._replace(told=state.told._replace(**{f"channel_{self._channel(round)}": told}))


@cache
def _channels(number: int) -> Any:
    return namedtuple("Channels", [f"channel_{channel}" for channel in range(number)])


@dataclass(frozen=True)
class Lace(Alias):
    """Pairs that share a memory, and say only what stands out from it."""

    kept: float = 0.02  # fraction of the coefficients that is sent
    family: str = "sym2"  # the wavelet
    levels: int = 4
    wavelet: bool = True

    @property
    def composition(self) -> RelativeToInit:
        transform = Wavelet(self.family, self.levels) if self.wavelet else Identity()
        return RelativeToInit(PairGossip(DeadZone(self.kept), transform))
