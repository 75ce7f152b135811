"""The two queues of a peer: a `Link` for messages to one neighbour, and the `Mailbox` for those that have arrived.

Both are bounded, whatever others send and however slowly they take what they are sent.
"""

import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from gossamer.peers.transport import Arrived

RETRY_SECONDS = 0.05  # before a message is tried again; twice as long each time
MOST_RETRY_SECONDS = 1.0
MOST_WAITING = 16  # deliveries of a sender that are kept; it brings what does not fit with a later one


class Outcome(Enum):
    """What became of an attempt to send a message."""

    TAKEN = "taken"
    RETRY = "retry"  # it did not get there; try again
    NEW_INCARNATION = "new incarnation"  # the receiver was restarted, and needs more; the first time, try again at once
    REFUSED = "refused"  # it will not be taken


class Delivered(NamedTuple):
    """An attempt that has ended."""

    outcome: Outcome
    num_bytes: int


class Outgoing(NamedTuple):
    """A message that waits to be sent."""

    round: int
    payload: Callable[[], bytes]
    until: float  # when to give it up


Send = Callable[[int, Callable[[], bytes], float], Delivered]  # round, payload, until
Done = Callable[[int, int, int, bool], None]  # round, bytes, tries, was it taken?


class Link:
    """A thread that brings messages to one neighbour, in the order of their rounds.

    One is on its way and one waits: a peer that is slow to take messages slows its neighbours down, up to their
    deadline, and is never sent a backlog.
    """

    def __init__(self, name: str, send: Send, done: Done, alive: Callable[[], bool]):
        self._send = send
        self._done = done
        self._alive = alive
        self._queued: Outgoing | None = None
        self._under_way: Outgoing | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"to {name}")
        self._thread.start()

    def offer(self, message: Outgoing, until: float) -> None:
        """Put a message in line; if none has left by the moment `until`, in place of the one that waits."""
        replaced = None
        with self._changed:
            while self._queued is not None and time.monotonic() < until and self._alive():
                self._changed.wait(min(0.5, max(0.001, until - time.monotonic())))
            replaced, self._queued = self._queued, message
            self._changed.notify_all()
        if replaced is not None:
            self._done(replaced.round, 0, 0, False)

    @property
    def oldest(self) -> int | None:
        """The first round of which a message is here that has not been taken."""
        with self._changed:
            return next((message.round for message in (self._under_way, self._queued) if message is not None), None)

    @property
    def is_full(self) -> bool:
        """Does a message wait, in whose place another would be put?"""
        return self._queued is not None

    def flush(self, until: float) -> None:
        with self._changed:
            while (self._queued or self._under_way) and time.monotonic() < until and self._alive():
                self._changed.wait(min(0.5, max(0.001, until - time.monotonic())))

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._queued is None and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                self._under_way, self._queued = self._queued, None
                self._changed.notify_all()
            assert self._under_way is not None
            self._bring(self._under_way)
            with self._changed:
                self._under_way = None
                self._changed.notify_all()

    def _bring(self, message: Outgoing) -> None:
        tries, num_bytes, renewals, pause = 0, 0, 0, RETRY_SECONDS
        while not self._closing and self._alive() and time.monotonic() < message.until:
            tries += 1
            outcome, num_bytes = self._send(message.round, message.payload, message.until)
            if outcome is Outcome.TAKEN:
                self._done(message.round, num_bytes, tries, True)
                return
            if outcome is Outcome.REFUSED:
                break
            renewals += outcome is Outcome.NEW_INCARNATION
            if outcome is Outcome.NEW_INCARNATION and renewals == 1:
                continue  # one that says so for ever is tried no more often than any other
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause)
            pause = min(2 * pause, MOST_RETRY_SECONDS)
        self._done(message.round, num_bytes, tries, False)


class Verdict(Enum):
    """What became of an arrival."""

    KEPT = "kept"
    DUPLICATE = "duplicate"  # it, or a later one of that sender, is used already
    STALE = "stale"  # it came too late
    EARLY = "early"  # the sender is to try again


class Mailbox:
    """Messages that are not used yet: at most ahead_rounds + 1 + late_rounds deliveries per sender; MOST_WAITING where
    peers are in different rounds and those two are infinite."""

    def __init__(self, ahead_rounds: float, late_rounds: float):
        self._ahead = ahead_rounds
        self._late = late_rounds
        self._round = 0
        self._waiting: dict[int, dict[int, Arrived]] = {}  # by sender and round
        self._used: dict[int, int] = {}  # the last round of each sender that was taken
        self._announced: dict[int, int] = {}  # the last round of each sender that came, or waits to
        self.awaited: tuple[int, ...] = ()  # whose messages `take` waits for
        self._changed = threading.Condition()

    def put(self, arrived: Arrived, until: float) -> Verdict:
        """Keep an arrival. One that is early waits here until its time nears, so that its sender waits too."""
        sender, round = arrived.sender, arrived.round
        with self._changed:
            self._announced[sender] = max(round, self._announced.get(sender, 0))
            self._changed.notify_all()
            while round > self._round + self._ahead or len(self._waiting.get(sender, {})) >= MOST_WAITING:
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

        taken: list[Arrived] = []

        def still_to_come() -> tuple[int, ...]:
            came = {arrived.sender for arrived in taken if arrived.round == round}
            return tuple(
                sender
                for sender in senders
                if sender not in came and not self._settled(sender, round) and not cannot_arrive(sender, round)
            )

        with self._changed:
            while True:
                taken += self._pop(round)  # at once, so that there is room for what is still to come
                left = until - time.monotonic()
                self.awaited = still_to_come() if left > 0 else ()
                if not self.awaited:
                    return sorted(taken, key=lambda arrived: (arrived.sender, arrived.round))
                self._changed.wait(min(left, 1.0))

    def _pop(self, round: int) -> list[Arrived]:
        """What waits of this and earlier rounds."""
        found: list[Arrived] = []
        for sender, rounds in self._waiting.items():
            for r in sorted(r for r in rounds if r <= round):
                found.append(rounds.pop(r))
                self._used[sender] = r
        if found:
            self._changed.notify_all()
        return found

    def forget(self, sender: int) -> None:
        """It was restarted, and may be in rounds again of which messages were taken."""
        with self._changed:
            self._used.pop(sender, None)
            self._announced.pop(sender, None)

    def _settled(self, sender: int, round: int) -> bool:
        """Its message is there; or a later one is, or waits to be, and a link keeps the order."""
        return round in self._waiting.get(sender, {}) or self._announced.get(sender, -1) > round

    def wake(self) -> None:
        """Something else changed that may end the waiting."""
        with self._changed:
            self._changed.notify_all()
