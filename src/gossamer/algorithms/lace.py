"""Lace: pairs of nodes that share a memory, and say only what is not in it.

Gossamer's own. Under CHOCO and Silk a node says everything twice: its data push it away from its neighbours, which it
tells them, and averaging pulls it back, which it must tell them too, because a neighbour cannot compute a pull that
came from others. A pair can. In every exchange a node meets one partner, in a sequence of pairings that returns (the
topology `matchings`). For each place s of the sequence both ends keep r_s, what the two agree on, 0 at first:

    d_i = T(x_i - x0) - r_s;   q_i = Q(d_i)                                send q_i to the partner p
    x_i <- x_i + T^-1((q_p - q_i) / 2);   r_s <- r_s + (q_i + q_p) / 2     the same numbers at both ends

T is the wavelet transform, x0 the common start, and Q sends the few entries that stand out, in few levels
(`dead-zone`). What a pair moves sums to 0, so the mean of all models is conserved. Nodes stay far from each other while
they train: the models to use are those after they have settled.

Because r_s must be the same at both ends, every message must arrive.
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
    memory: Any  # a NamedTuple of r_s for each place s of the sequence, each (B, D)


@dataclass(frozen=True)
class PairGossip(Algorithm):
    """Gossip compressed differences to what each pair has agreed on."""

    compressor: Compressor = DeadZone()
    transform: Transform = Identity()
    places: int = 0  # of the sequence of pairings; set by prepare

    requires = frozenset({"symmetric", "changing", "reliable"})

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"q": self.compressor.spec}

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "PairGossip":
        self.transform.check(sum(layer_sizes))
        if mixing.period < 1 or np.diff(mixing.indptr).max() > 2:
            raise ValueError("lace needs pairs of nodes that meet again; take topology matchings")
        return replace(self, places=mixing.period)

    def init(self, x0: Tensor) -> State:
        return State(x0, _memory(self.places)(*(torch.zeros_like(x0) for _ in range(self.places))))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        difference = self.transform.forward(state.x) - state.memory[self._place(round)]
        return {"q": self.compressor(difference, round)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        place, agreed = self._place(round), inbox.sum("q")  # the weights of a pair are 1/2 each
        moved = self.transform.inverse(agreed - inbox.own("q"))
        memory = state.memory._replace(**{f"place_{place}": state.memory[place] + agreed})
        return State(state.x + moved, memory)

    def _place(self, round: Round) -> int:
        return (round.number * round.exchanges + round.exchange) % self.places


@cache
def _memory(places: int) -> Any:
    return namedtuple("Memory", [f"place_{place}" for place in range(places)])


@dataclass(frozen=True)
class Lace(Alias):
    """Pairs that share a memory, and say only what stands out from it."""

    step: float = 3.0  # of the dead zone: larger is fewer bytes
    family: str = "sym2"  # the wavelet
    levels: int = 4
    wavelet: bool = True

    @property
    def composition(self) -> RelativeToInit:
        transform = Wavelet(self.family, self.levels) if self.wavelet else Identity()
        return RelativeToInit(PairGossip(DeadZone(self.step), transform))
