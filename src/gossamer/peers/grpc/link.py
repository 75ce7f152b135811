"""The way to one neighbour: a thread that brings it messages, and room for one more to wait."""

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

RETRY_SECONDS = 0.05


class Outcome(Enum):
    """What became of a delivery."""

    TAKEN = "taken"
    AGAIN = "again"  # it did not get there; try again
    NEW_INCARNATION = "anew"  # the receiver was restarted, and must be told more; try again at once
    REFUSED = "refused"  # it will not be taken


class Delivered(NamedTuple):
    outcome: Outcome
    num_bytes: int


class Waiting(NamedTuple):
    round: int
    payload: Callable[[], bytes]
    until: float  # when to give it up


Send = Callable[[int, Callable[[], bytes], float], Delivered]  # round, payload, until
Done = Callable[[int, int, int, bool], None]  # round, bytes, tries, was it taken?


class Link:
    """Messages leave in the order of their rounds. One is on its way and one waits: a peer that is slow to take them
    slows its neighbours down, up to their deadline, and is never sent a backlog."""

    def __init__(self, name: str, send: Send, done: Done, alive: Callable[[], bool]):
        self._send = send
        self._done = done
        self._alive = alive
        self._queued: Waiting | None = None
        self._under_way: Waiting | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"to {name}")
        self._thread.start()

    def offer(self, waiting: Waiting, until: float) -> None:
        """Put a message in line; if none has left by the moment `until`, in place of the one that waits."""
        replaced = None
        with self._changed:
            while self._queued is not None and time.monotonic() < until and self._alive():
                self._changed.wait(min(0.5, max(0.001, until - time.monotonic())))
            replaced, self._queued = self._queued, waiting
            self._changed.notify_all()
        if replaced is not None:
            self._done(replaced.round, 0, 0, False)

    @property
    def oldest(self) -> int | None:
        """The first round of which a message is here that has not been taken."""
        with self._changed:
            return next((waiting.round for waiting in (self._under_way, self._queued) if waiting is not None), None)

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

    def _bring(self, waiting: Waiting) -> None:
        tries, num_bytes = 0, 0
        while not self._closing and self._alive() and time.monotonic() < waiting.until:
            tries += 1
            outcome, num_bytes = self._send(waiting.round, waiting.payload, waiting.until)
            if outcome is Outcome.TAKEN:
                self._done(waiting.round, num_bytes, tries, True)
                return
            if outcome is Outcome.REFUSED:
                break
            if outcome is Outcome.NEW_INCARNATION:
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
        self._done(waiting.round, num_bytes, tries, False)
