"""Delivery: which messages count in an exchange, and with what weight, given who is missing or late.

The same rule serves a simulation, where faults are drawn from the seed for all nodes, and a peer, which sees what
really came. What a missing message means is the algorithm's to say (`Algorithm.on_missing`):

    "keep_own"    the weight of what is missing goes to the node's own message, so that an average stays an average
    "lose_mass"   what came counts with its own weight and nothing makes up for the rest, as push-sum needs it

In an asynchronous run nodes take part when they are ready. What reaches a node in between is lost to an average, whose
next message has all that matters; mass waits until the node is ready, and counts then, once. A message of mass counts
by the averaging rate with which its sender has parted from it, whatever the rate is when it is taken in.

Exchanges are counted over the whole run; with one per round, their numbers are those of the rounds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.core import OnMissing
from gossamer.core.rng import philox
from gossamer.graphs.clock import Clock, Floats
from gossamer.graphs.faults import Faults
from gossamer.graphs.mixing_matrix import MixingMatrix
from gossamer.graphs.topologies import Topology

Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]
Sent = tuple[int, int]  # a message: its sender, and the exchange in which it was sent
NEVER = -1  # the exchange in which a message is taken in that does not arrive


def _one(round: int) -> float:
    return 1.0


class Links(NamedTuple):
    """Messages between two nodes."""

    receivers: Integers
    senders: Integers
    ages: Integers  # exchanges since they were sent
    weights: NDArray[np.float64]

    def where(self, mask: Marks) -> "Links":
        return Links(self.receivers[mask], self.senders[mask], self.ages[mask], self.weights[mask])

    def aged(self, age: int) -> "Links":
        return self._replace(ages=np.full_like(self.ages, age))


@dataclass(frozen=True)
class Delivery:
    """Who hears from whom in each exchange of a run."""

    topology: Topology
    nodes: int
    seed: int
    on_missing: OnMissing
    faults: Faults = Faults()  # for a simulation; peers meet real ones
    exchanges: int = 1  # per round
    channels: int = 1  # of cumulative parts: what an exchange adds to, exchange + channels adds to next
    asynchronous_rounds: int = 0  # for so many rounds nodes wait for nobody, and each has a clock of its own
    clock: Clock = Clock()  # how quick the nodes of a simulation are, if they wait for nobody
    averaging_rate: Callable[[int], float] = _one  # the algorithm's in a round

    def mixing(self, exchange: int) -> MixingMatrix:
        return self.topology.at(self.nodes, self.seed, exchange)

    # All nodes of a simulation.

    def up(self, exchange: int) -> Marks:
        """(n,): which nodes take part."""
        round = exchange // self.exchanges
        up = self.faults.up(self.nodes, round)
        return up & self._ready(round) if self.is_asynchronous(round) else up

    def is_asynchronous(self, round: int) -> bool:
        """Do nodes wait for nobody in this round?"""
        return round < self.asynchronous_rounds

    @property
    def complete(self) -> bool:
        """Does every message of a simulation arrive in the exchange in which it is sent?"""
        return not self.faults.any and not (self.asynchronous_rounds and self.clock.on)

    def _ready(self, round: int) -> Marks:
        """Which nodes have ended a round of their own by the time that the quickest ends this one."""
        done = [np.floor(number * self._paces + 1e-9) for number in (round, round + 1)]
        return self.faults.ready(self.nodes, round) & (done[1] > done[0])

    @cached_property
    def _paces(self) -> Floats:
        """(n,): rounds of each node per round of the quickest."""
        seconds = self.clock.speeds(self.nodes, self.seed).step_seconds
        return seconds.min() / seconds if seconds.min() > 0 else np.ones(self.nodes)

    @property
    def _waits(self) -> bool:
        """Does what reaches a node that is not ready wait for it?"""
        return self.asynchronous_rounds > 0 and self.on_missing == "lose_mass"

    @cached_property
    def depth(self) -> int:
        """For how many exchanges a message may be on its way, the one in which it is sent included."""
        longest = max((rounds for _, rounds in self.faults.slow), default=1)  # rounds of the slowest node
        longest = max(longest, int(np.ceil(1 / self._paces.min() - 1e-9))) if self._waits else 1
        waited = min(longest - 1, self.asynchronous_rounds) * self.exchanges
        return 1 + int(self.lateness.max(initial=0)) + waited

    @cached_property
    def kept(self) -> int:
        """Of so many exchanges messages are kept: until all have arrived, and the last one of every channel."""
        return -(-self.depth // self.channels) * self.channels

    @cached_property
    def lateness(self) -> Integers:
        """(n,): by how many exchanges each node's messages come late. What a channel missed is of use when it is next
        used, not before."""
        lateness = self.faults.lateness(self.nodes) * self.exchanges
        return -(-lateness // self.channels) * self.channels

    def slot(self, exchange: Any, node: Any) -> Any:
        """Where the message of a node lies among those that are kept."""
        return exchange % self.kept * self.nodes + node

    def arrivals(self, exchange: int) -> Links:
        """What every node takes in, its own message included, sorted by receiver, sender and age."""
        if exchange not in self._remembered:  # a process asks for them block by block
            self._remembered.clear()
            self._remembered[exchange] = self._arrivals(exchange)
        return self._remembered[exchange]

    @cached_property
    def _remembered(self) -> dict[int, Links]:
        """The arrivals of the last exchange that was asked for."""
        return {}

    def _arrivals(self, exchange: int) -> Links:
        mixing = self.mixing(exchange)
        if self.complete:
            return Links(mixing.receivers, mixing.senders, np.zeros_like(mixing.senders), mixing.weights)
        aged = [links for age in range(self.depth) if (links := self._of_age(exchange, age)) is not None]
        came = Links(*(np.concatenate(columns) for columns in zip(*aged, strict=True)))
        return self._with_own(came, np.arange(self.nodes), mixing.weights[mixing.receivers == mixing.senders])

    def sent(self, exchange: int) -> Links:
        """What nodes send to others, whether it arrives or not."""
        return self._sent(exchange)[0]

    def lost(self, exchange: int) -> Links:
        """What is sent and never arrives."""
        links, arrives = self.deliveries(exchange)
        return links.where(~arrives)

    def deliveries(self, exchange: int) -> tuple[Links, Marks]:
        """What is sent, and which of it arrives, be it late."""
        links, taken_at = self._under_way(exchange)
        return links, taken_at != NEVER

    def taken_at(self, exchange: int) -> Integers:
        """In which exchange each of the messages that are sent in this one is taken in, or NEVER."""
        return self._under_way(exchange)[1]

    def in_flight(self, exchange: int) -> Iterator[Links]:
        """What was sent by the end of an exchange, will arrive, and has not yet."""
        for age in range(min(self.depth - 1, exchange + 1)):
            links, taken_at = self._under_way(exchange - age)
            yield links.where(taken_at > exchange).aged(age)

    # One node, given what really came.

    def neighbours(self, exchange: int, node: int) -> tuple[list[int], list[int]]:
        """To whom a node sends, and from whom it hears."""
        mixing = self.mixing(exchange)
        receivers, senders = mixing.receivers[mixing.senders == node], mixing.row(node)[0]
        return receivers[receivers != node].tolist(), senders[senders != node].tolist()

    def usable(self, came: Sequence[Sent], exchange: int, late: int) -> tuple[list[Sent], list[Sent]]:
        """Which of the messages that came to use, and which came more than so many exchanges late.

        Of mass nothing may be lost, so every message counts. An average takes the newest of each sender.
        """
        newest = dict(sorted(came))
        used: list[Sent] = []
        too_late: list[Sent] = []
        for sender, sent in came:
            counts = self.on_missing == "lose_mass" or sent == newest[sender]
            (used if counts and exchange - sent <= late else too_late).append((sender, sent))
        return used, too_late

    def arrivals_at(self, exchange: int, node: int, came: Sequence[Sent], unsent: Sequence[int] = ()) -> Links:
        """What a node takes in when these messages of others came, its own included, sorted by sender and age. To those
        in `unsent` it did not send: of mass it has kept their share."""
        mixing = self.mixing(exchange)
        senders, weights = mixing.row(node)
        if not unsent and sorted(came) == [(sender, exchange) for sender in senders.tolist() if sender != node]:
            return Links(np.full_like(senders, node), senders, np.zeros_like(senders), weights)
        came = sorted(came, key=lambda message: (-message[1], message[0]))
        of_links = [self.mixing(sent).weight(node, sender) for sender, sent in came]
        assert None not in of_links, "a message came over no link"
        senders_of, sent_at = (np.array([message[i] for message in came], np.int64) for i in (0, 1))
        links = Links(np.zeros_like(senders_of), senders_of, exchange - sent_at, np.array(of_links, np.float64))
        links = links._replace(weights=links.weights * [self._rate_since(int(at), exchange) for at in sent_at])
        own = weights[senders == node] + sum(mixing.weight(receiver, node) or 0.0 for receiver in unsent)
        return self._with_own(links, np.array([node]), own)._replace(receivers=np.full(len(came) + 1, node))

    # The rule.

    def _with_own(self, came: Links, nodes: Integers, own: NDArray[np.float64]) -> Links:
        """Messages that came and each node's own, in order; receivers are places among `nodes`."""
        weights = came.weights
        if self.on_missing == "keep_own":
            total = np.bincount(came.receivers, weights, minlength=len(nodes))
            weights = weights / np.maximum(total, 1)[came.receivers]  # late ones may be more than an exchange's own
            own = np.maximum(1 - total, 0)
        receivers = np.append(came.receivers, np.arange(len(nodes)))
        senders, ages = np.append(came.senders, nodes), np.append(came.ages, np.zeros_like(nodes))
        order = np.lexsort((ages, senders, receivers))
        return Links(receivers[order], senders[order], ages[order], np.append(weights, own)[order])

    def _rate_since(self, sent: int, exchange: int) -> float:
        """By how much more, or less, mass counts that was sent in an exchange before: by the rate of then."""
        if self.on_missing != "lose_mass" or sent == exchange:
            return 1.0
        then, now = (self.averaging_rate(at // self.exchanges) for at in (sent, exchange))
        return 1.0 if then == now else then / now

    def _under_way(self, exchange: int) -> tuple[Links, Integers]:
        """What is sent, and in which exchange each is taken in, or NEVER."""
        known = self._on_their_way
        if exchange not in known:
            links, dropped = self._sent(exchange)
            arrival = exchange + self.lateness[links.senders]
            taken_at = np.full_like(arrival, NEVER)
            for at in np.unique(arrival):
                here = ~dropped & (arrival == at)
                taken_at[here] = self._next_taken_in(int(at))[links.receivers[here]]
            known[exchange] = links, taken_at
            while len(known) > self.depth + 1:
                del known[next(iter(known))]
        return known[exchange]

    @cached_property
    def _on_their_way(self) -> dict[int, tuple[Links, Integers]]:
        """`_under_way` of the last exchanges that were asked for."""
        return {}

    def _next_taken_in(self, exchange: int) -> Integers:
        """(n,): when each node takes in what reaches it in an exchange. One that is down loses it."""
        if not self._waits:
            return np.where(self.up(exchange), exchange, NEVER)
        found, waits, at = np.full(self.nodes, NEVER), np.ones(self.nodes, bool), exchange
        while waits.any():
            round, ready = at // self.exchanges, self.up(at)
            found[waits & ready] = at
            waits &= ~ready & self.faults.up(self.nodes, round)
            at = (round + 1) * self.exchanges  # who is not ready in one of them is not in the others of the round
        return found

    def _sent(self, exchange: int) -> tuple[Links, Marks]:
        """The messages of an exchange between different nodes, and which of them are dropped."""
        mixing = self.mixing(exchange)
        draws = philox(self.seed, "drop", round=exchange).random_raw(len(mixing.senders)) * 2.0**-64
        sent = (mixing.receivers != mixing.senders) & self.up(exchange)[mixing.senders]
        ages = np.zeros(sent.sum(), np.int64)
        links = Links(mixing.receivers[sent], mixing.senders[sent], ages, mixing.weights[sent])
        return links, (draws < self.faults.drop)[sent]

    def _of_age(self, exchange: int, age: int) -> Links | None:
        if exchange < age:
            return None
        links, taken_at = self._under_way(exchange - age)
        links = links.where(taken_at == exchange).aged(age)
        return links._replace(weights=links.weights * self._rate_since(exchange - age, exchange))
