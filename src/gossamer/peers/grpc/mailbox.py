"""Messages that have arrived and are not used yet. Its size is bounded, whatever others send."""

import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum

from gossamer.peers.transport import Arrived


class Verdict(Enum):
    """What became of an arrival."""

    KEPT = "kept"
    DUPLICATE = "duplicate"  # it, or a later one of that sender, is used already
    STALE = "stale"  # it came too late
    EARLY = "early"  # the sender is to try again


class Mailbox:
    """At most ahead_rounds + 1 + late_rounds deliveries a sender."""

    def __init__(self, ahead_rounds: int, late_rounds: int):
        self._ahead = ahead_rounds
        self._late = late_rounds
        self._round = 0
        self._waiting: dict[int, dict[int, Arrived]] = {}  # by sender and round
        self._used: dict[int, int] = {}  # the last round of each sender that was taken
        self._announced: dict[int, int] = {}  # the last round of each sender that came, or waits to
        self._changed = threading.Condition()

    def put(self, arrived: Arrived, until: float) -> Verdict:
        """Keep an arrival. One that is early waits here until its time nears, so that its sender waits too."""
        sender, round = arrived.sender, arrived.round
        with self._changed:
            self._announced[sender] = max(round, self._announced.get(sender, 0))
            self._changed.notify_all()
            while round > self._round + self._ahead:
                left = until - time.monotonic()
                if left <= 0:
                    return Verdict.EARLY
                self._changed.wait(left)
            if round <= self._used.get(sender, -1) or round in self._waiting.get(sender, {}):
                return Verdict.DUPLICATE
            if round < self._round - self._late:
                return Verdict.STALE
            self._waiting.setdefault(sender, {})[round] = arrived
            self._changed.notify_all()
            return Verdict.KEPT

    def begin(self, round: int) -> int:
        """The peer is in this round now; how many arrivals had to be dropped because they are too old for it."""
        dropped = 0
        with self._changed:
            self._round = round
            for rounds in self._waiting.values():
                for old in [r for r in rounds if r < round - self._late]:
                    del rounds[old]
                    dropped += 1
            self._changed.notify_all()
        return dropped

    def take(
        self, round: int, senders: Sequence[int], until: float, cannot_arrive: Callable[[int, int], bool]
    ) -> list[Arrived]:
        """What is there for this and earlier rounds, once these senders' messages of the round are, or cannot come."""

        def still_to_come() -> bool:
            return any(not self._settled(sender, round) and not cannot_arrive(sender, round) for sender in senders)

        with self._changed:
            while still_to_come():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 1.0))
            taken = []
            for sender in sorted(self._waiting):
                for r in sorted(r for r in self._waiting[sender] if r <= round):
                    taken.append(self._waiting[sender].pop(r))
                    self._used[sender] = r
            return taken

    def _settled(self, sender: int, round: int) -> bool:
        """Its message is there; or a later one is, or waits to be, and a link keeps the order."""
        return round in self._waiting.get(sender, {}) or self._announced.get(sender, -1) > round

    def wake(self) -> None:
        """Something else changed that may end the waiting."""
        with self._changed:
            self._changed.notify_all()
