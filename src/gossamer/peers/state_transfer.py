"""What a peer that was away takes from its neighbours: when, from whom, and a state as one frame.

One listed peer that lies about its round must not be able to hand its state to the others. So nobody's word is enough:

- A peer looks for a state only if it knows by itself that it was away (`Absence`): it was just started, its process
  stood still, its own training took longer than the others wait, or none of its neighbours could be heard.
- Most of its neighbours must say that they are far ahead (`round_of_most`), those of the next rounds included where the
  graph changes. One that was never heard has not begun; one that is gone does not count, but is given time to return.
- Under an algorithm that bounds what a liar can do, it takes the median of several states (`median_state`).

A state says more than a message: together with the next message it shows what the giver's data alone have changed. So
it is given only to a neighbour that is far behind, twice in ten rounds at most, and never under privacy. Under Lace
nobody needs one: a peer goes on in the others' round with its own state, and its partners bring it up to date.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gossamer import wire
from gossamer.core import Part, PartSpec
from gossamer.training.block import NodeError
from gossamer.wire import WireError

MOST_GIVEN = 2  # states to the same peer within `away_rounds`: one may have got lost

if TYPE_CHECKING:
    from gossamer.peers.rounds import Node
    from gossamer.peers.transport import Transport


class StateTransfer:
    """A node's way to give its state away, and to take one."""

    def __init__(self, node: "Node", run_id: int):
        self._node = node
        self._codec = StateCodec(node.tensors(), node.experiment.seed, run_id)
        self._away_rounds = node.timeouts.away_rounds
        self.absence = Absence(2 * node.timeouts.dead_seconds)
        self.max_bytes = self._codec.max_bytes
        self._given: dict[int, list[int]] = {}  # in which of the last rounds each peer was given a state
        self._encoding = threading.Lock()
        self.offer()

    # Giving.

    def offer(self) -> None:
        """Keep the node's state of now for those who ask: transports do so while the next steps are taken."""
        self._offered = self._node.round, self._node.tensors()

    def frame_for(self, receiver: int, exchange: int | None) -> bytes | None:
        """The state, for a peer that has said that it is in this exchange; None if it is not to have it, or not now."""
        round, tensors = self._offered
        if self._node.experiment.privacy.on or exchange is None:
            return None
        its_round = exchange // self._node.experiment.exchanges
        lately = [given for given in self._given.get(receiver, []) if round - given < self._away_rounds]
        if round - its_round <= self._away_rounds or len(lately) >= MOST_GIVEN:
            return None
        if receiver not in self._node.near(round) | self._node.voters(its_round):
            return None
        if not self._encoding.acquire(blocking=False):
            return None  # one at a time
        try:
            self._given[receiver] = [*lately, round]  # whether or not it takes all of it
            return self._codec.encode(tensors, self._node.me, round)
        finally:
            self._encoding.release()

    # Taking.

    def catch_up(self, transport: "Transport") -> None:
        """If this peer was away, and most of its neighbours are far ahead, go on in their round, from their state."""
        if transport.was_away():
            self.absence.begin()
        if not self.absence:
            return
        node = self._node
        voters = node.voters(node.round)
        transport.begin(node.exchange)  # a giver must know where this peer is
        transport.watch(sorted(voters))
        if any(transport.is_lost(n) for n in voters) and self.absence.age < node.timeouts.dead_seconds:
            return  # those that can be reached again have not all been by now, and the first one may be the liar
        rounds = {n: node.round_of(n, transport) for n in voters if not transport.is_lost(n)}
        ahead = [n for n, number in rounds.items() if number - node.round > self._away_rounds]
        most = round_of_most(rounds.values())
        if most - node.round > self._away_rounds and (len(rounds) > 1 or node.experiment.nodes == 2):
            self._join(ahead, rounds, most, len(voters), transport)
        if not ahead:
            self.absence.looked()

    def _join(
        self, ahead: list[int], rounds: Mapping[int, int], most: int, num_voters: int, transport: "Transport"
    ) -> None:
        """Go on in the round of most."""
        node = self._node
        if node.reliable:
            raise NodeError(
                f"the others are in round {most + 1} and this peer in {node.round + 1}; this algorithm "
                "cannot be joined half-way; take one such as dpsgd, jwins or sparse-push"
            )
        node.progress.enter("catching-up")
        algorithm = node.experiment.algorithm
        pairs = algorithm.asynchronous and algorithm.on_missing == "keep_own"
        if node.experiment.privacy.on or pairs:
            # Nobody gives its state away, or it would be of no use: what a pair has moved is of that pair alone.
            self._go_on(node.tensors(), most, [], transport)
        elif node.experiment.algorithm.robust:
            self._take_median(sorted(ahead), num_voters, most, transport)
        else:
            self._take_one(sorted(ahead, key=lambda n: (abs(rounds[n] - most), n)), most, transport)

    def _take_one(self, ahead: list[int], most: int, transport: "Transport") -> None:
        for node in ahead:
            taken = self.pull(node, most, transport)
            if taken is not None:
                self._go_on(taken.tensors, taken.round, [node], transport)
                return

    def _take_median(self, ahead: list[int], of: int, most: int, transport: "Transport") -> None:
        """Of the states of more than half of so many neighbours, and of so many that liars are fewer than the rest."""
        found = [taken for node in ahead if (taken := self.pull(node, most, transport)) is not None]
        with_own = len(found) + (len(found) + 1) % 2
        if 2 * len(found) > of and with_own > 2 * ((of - 1) // 2):  # else the next round tries again
            state, round = median_state(self._node.tensors(), found), round_of_most(taken.round for taken in found)
            self._go_on(state, round, [taken.sender for taken in found], transport)

    def pull(self, node: int, most: int, transport: "Transport") -> "Taken | None":
        """A neighbour's state; None if it gives none, or one of a round that only few can have reached."""
        frame = transport.pull(node)
        if frame is None:
            return None
        try:
            taken = self._codec.decode(frame)
            latest = min(self._node.experiment.rounds, most + self._away_rounds)
            if taken.sender != node or not max(self._node.round + 1, most - self._away_rounds) <= taken.round <= latest:
                raise WireError(f"The state is of node {taken.sender} in round {taken.round}.")
            self._node.check_state(taken.tensors)
        except WireError as error:
            self._node.counters.add(bad_frames=1)
            self._node.log.rate_limited("pull failed", neighbour=transport.name_of(node), reason=str(error))
            return None
        return taken

    def _go_on(self, tensors: dict[str, Tensor], round: int, nodes: list[int], transport: "Transport") -> None:
        names = [transport.name_of(node) for node in nodes]
        self._node.log("caught up", neighbours=names, from_round=self._node.round, to_round=round)
        self._node.restore(tensors, round)
        transport.new_incarnation()


class Absence:
    """Whether this peer has reason to think that it was away: it has for a while after it was, until it can have heard
    from its neighbours again."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._since: float | None = None

    def __bool__(self) -> bool:
        return self._since is not None

    @property
    def age(self) -> float:
        """Seconds since it was last found to be away."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def begin(self) -> None:
        self._since = time.monotonic()

    def looked(self) -> None:
        """The others are where it is. It looks once more after the while, however long a round takes."""
        if self.age > self._seconds:
            self._since = None


def round_of_most(rounds: Iterable[int]) -> int:
    """The latest round that more than half of these have reached; of two, the earlier one."""
    ordered = sorted(rounds)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0


class Taken(NamedTuple):
    sender: int
    round: int
    tensors: dict[str, Tensor]


def median_state(own: Mapping[str, Tensor], others: Sequence[Taken]) -> dict[str, Tensor]:
    """The median of every number. An even number of states has none, so the peer's own old one counts then, too. Of two
    others one may lie, of three one, of four two: every number is still between two honest ones."""
    states = [*(taken.tensors for taken in others), *([own] if len(others) % 2 == 0 else [])]
    return {name: torch.stack([state[name] for state in states]).median(0).values for name in own}


class StateCodec:
    """Frames of states like this one, whose tensors are (1, width).

    Not of the model alone, because a model is not enough for every algorithm: push-sum weights, replicas and what they
    are counted from must fit together. All of it travels densely, in the wire format, as parts named by their place in
    the state.
    """

    def __init__(self, like: Mapping[str, Tensor], seed: int, run_id: int):
        parts = {name: _spec(tensor) for name, tensor in like.items() if tensor.numel()}
        self._like = dict(like)
        self._codec = wire.Codec(parts, 1, seed, run_id)
        self.max_bytes = self._codec.max_bytes

    def encode(self, tensors: Mapping[str, Tensor], sender: int, round: int) -> bytes:
        return self._codec.encode({name: Part(t) for name, t in tensors.items() if t.numel()}, sender, round)

    def decode(self, frame: bytes) -> Taken:
        """WireError if it is no such state."""
        sender, round, message = self._codec.decode(frame)
        if not all(torch.isfinite(part.values).all() for part in message.values()):
            raise WireError("The state's numbers are not all finite.")
        tensors = {name: message[name].values if name in message else empty for name, empty in self._like.items()}
        return Taken(sender, round, tensors)


def _spec(tensor: Tensor) -> PartSpec:
    assert tensor.dtype in (torch.float32, torch.float64), f"states hold no {tensor.dtype}"
    return PartSpec(tensor.shape[-1], values="float64" if tensor.dtype == torch.float64 else "float32")
