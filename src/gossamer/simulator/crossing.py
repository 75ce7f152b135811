"""Messages that cross between ranks in an exchange: which ones, as frames, and where they lie in shared memory.

A node's frame travels once to each rank that hosts a receiver of it, however many receivers there are. Both ends know
from the experiment which nodes' frames those are, and from the shared table of sizes how long each is, so between two
ranks go frames, one behind the other, and nothing else.

What is lost in the simulation need not travel. Of a cumulative part all frames do, to every rank that will ever hear of
it in the channel: there the sums are kept up, as if the sender were hosted there.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import lcm

import numpy as np
import torch

from gossamer.core import Message, row_of
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.delivery import Delivery
from gossamer.simulator.ranks import Integers, Placement, Ranks
from gossamer.simulator.shared_state import SharedState
from gossamer.wire import Codec
from gossamer.wire.resync import has_cumulative

NOBODY = np.empty(0, np.int64)


class Crossing:
    """What this rank sends to others and has from them."""

    def __init__(
        self, experiment: Experiment, delivery: Delivery, placement: Placement, shared: SharedState, codec: Codec
    ):
        self._parts, self._delivery, self._placement = experiment.algorithm.parts, delivery, placement
        self._shared, self._codec = shared, codec
        self._cumulative = has_cumulative(self._parts)
        self._pairs = lru_cache(maxsize=2)(self._find_pairs)
        self._channel_pairs = lru_cache(maxsize=None)(self._find_channel_pairs)

    # Which.

    def pairs(self, exchange: int) -> tuple[Integers, Integers]:
        """Senders whose frames travel, and the ranks to which; by rank, then by sender."""
        return self._pairs(exchange) if self._placement.num_ranks > 1 and self._parts else (NOBODY, NOBODY)

    def leaving(self, exchange: int, rank: int) -> Integers:
        """The hosted nodes whose frames go to a rank."""
        senders, ranks = self.pairs(exchange)
        found: Integers = senders[(ranks == rank) & (self._placement.rank_of[senders] == self._placement.rank)]
        return found

    def coming(self, exchange: int) -> Integers:
        """The nodes whose frames come, in the order in which they lie: by rank, then by sender."""
        senders, ranks = self.pairs(exchange)
        here: Integers = senders[ranks == self._placement.rank]
        return here[np.argsort(self._placement.rank_of[here], kind="stable")]

    def heard(self, exchange: int) -> Integers:
        """The nodes of other ranks whose messages may still be of use in an exchange and after it."""
        if self._placement.num_ranks == 1 or not self._parts:
            return NOBODY
        found = []
        for past in range(max(0, exchange - self._delivery.kept), exchange):
            senders, ranks = (
                self._channel_pairs(past % self._delivery.channels) if self._cumulative else self.pairs(past)
            )
            found.append(senders[ranks == self._placement.rank])
        return np.unique(np.concatenate(found)) if found else NOBODY

    def _find_pairs(self, exchange: int) -> tuple[Integers, Integers]:
        if self._cumulative:
            senders, ranks = self._channel_pairs(exchange % self._delivery.channels)
            up = self._delivery.up(exchange)[senders]
            return senders[up], ranks[up]
        links, arrives = self._delivery.deliveries(exchange)
        return self._unique(links.senders[arrives], links.receivers[arrives])

    def _find_channel_pairs(self, channel: int) -> tuple[Integers, Integers]:
        """Over all exchanges of a channel; if graphs never return, everything goes to all ranks."""
        delivery, n = self._delivery, self._delivery.nodes
        period = delivery.topology.period(n, delivery.seed)
        if not period:
            ranks = np.repeat(np.arange(self._placement.num_ranks), n)
            senders = np.tile(np.arange(n), self._placement.num_ranks)
            other = self._placement.rank_of[senders] != ranks
            return senders[other], ranks[other]
        mixings = [delivery.mixing(t) for t in range(channel, lcm(period, delivery.channels), delivery.channels)]
        senders, receivers = (np.concatenate([getattr(m, name) for m in mixings]) for name in ("senders", "receivers"))
        return self._unique(senders, receivers)

    def _unique(self, senders: Integers, receivers: Integers) -> tuple[Integers, Integers]:
        ranks, n = self._placement.rank_of[receivers], self._delivery.nodes
        crosses = self._placement.rank_of[senders] != ranks
        ranks, senders = np.divmod(np.unique(ranks[crosses] * n + senders[crosses]), n)
        return senders, ranks

    def num_bytes(self, exchange: int) -> int:
        """Of all frames that travel between ranks."""
        return int(self._shared.frame_bytes[self.pairs(exchange)[0]].sum())

    # As bytes.

    def write(self, exchange: int, nodes: Sequence[int], message: Message) -> None:
        """The frames of a block's message, of those of its nodes whose frames leave."""
        senders, _ = self.pairs(exchange)
        leaving = np.isin(nodes, senders)
        lengths = self._shared.frame_bytes
        for row in np.flatnonzero(leaving).tolist():
            frame = self._codec.encode(row_of(message, row), nodes[row], exchange)
            assert len(frame) == lengths[nodes[row]], f"{len(frame)} bytes were encoded, {lengths[nodes[row]]} counted"
            place = self._shared.frames[self._placement.position(nodes[row])]
            place[: len(frame)] = torch.frombuffer(bytearray(frame), dtype=torch.uint8)

    def start(self, exchange: int, ranks: Ranks) -> Callable[[], None]:
        """Begin to send and receive the frames of an exchange; to be called to wait for them."""
        lengths, rank_of = self._shared.frame_bytes, self._placement.rank_of
        outgoing, incoming = {}, {}
        for rank in range(self._placement.num_ranks):
            if len(leaving := self.leaving(exchange, rank)):
                rows = [self._shared.frames[self._placement.position(node)][: lengths[node]] for node in leaving]
                outgoing[rank] = torch.cat(rows)
        senders, places = self._places(exchange)
        for rank in np.unique(rank_of[senders]).tolist():
            here = np.flatnonzero(rank_of[senders] == rank)
            incoming[rank] = self._shared.came[places[here[0]] : places[here[-1] + 1]]
        return ranks.exchange(outgoing, incoming)

    def read(self, exchange: int, item: int, num_items: int) -> None:
        """Lay some of the messages that came where those of hosted nodes lie; sums of who sent nothing stay."""
        senders, places = self._places(exchange)
        came = self._shared.came
        for number in range(item, len(senders), num_items):
            frame = came[places[number] : places[number + 1]].numpy().tobytes()
            sender, sent_at, message = self._codec.decode(frame)
            assert (sender, sent_at) == (senders[number], exchange), "a rank sent another frame than was due"
            self._lay(exchange, sender, message)
        if self._cumulative and self._delivery.kept > self._delivery.channels:
            silent = np.setdiff1d(self.heard(exchange + 1), senders)
            for sender in silent[item::num_items].tolist():
                self._lay(exchange, sender, None)

    def _places(self, exchange: int) -> tuple[Integers, Integers]:
        """Whose frames come, and where each of them begins and ends."""
        senders = self.coming(exchange)
        return senders, np.append(0, np.cumsum(self._shared.frame_bytes[senders]))

    def _lay(self, exchange: int, sender: int, message: Message | None) -> None:
        slot = self._delivery.slot(exchange, sender)
        before = self._delivery.slot(exchange - self._delivery.channels, sender)
        for name, spec in self._parts.items():
            target = self._shared.messages[name]
            if message is None:
                target.values[slot] = target.values[before] if spec.cumulative else 0
                continue
            values, sent, _ = message[name]
            target.values[slot] = target.values[before] + values[0] if spec.cumulative else values[0]
            if target.sent is not None:
                assert sent is not None, "a sparse part says what was sent"
                target.sent[slot] = sent[0]
