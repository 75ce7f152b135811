"""How long a peer waits: for the messages of a round, and, with a line in the log now and then, for the others."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.peers.config import Timeouts
from gossamer.peers.logs import Log

PATIENCE = 4  # an adaptive deadline is so many times the longest of the last waits
LEAST_SECONDS = 1.0  # and at least this
FIRST_NOTICE_SECONDS = 4.0  # who waits for longer says for whom
NOTICE_GROWTH = 4  # and then every time that it has waited so many times as long


@dataclass
class Waits:
    """How long rounds have waited for messages."""

    timeouts: Timeouts

    def __post_init__(self) -> None:
        self._last: deque[float] = deque(maxlen=20)

    def add(self, seconds: float, complete: bool) -> None:
        if complete:
            self._last.append(seconds)

    @property
    def deadline_seconds(self) -> float:
        most = self.timeouts.deadline_seconds
        if not self.timeouts.adaptive or len(self._last) < self._last.maxlen:  # type: ignore[operator]
            return most
        return min(most, max(LEAST_SECONDS, PATIENCE * max(self._last)))


class WaitingNotice:
    """Says for whom a peer waits at its start, and why each is not there: after some seconds, then rarely."""

    def __init__(self, log: Log, absent: Callable[[], dict[str, str]]):
        self._log, self._absent = log, absent
        self._began = time.monotonic()
        self._next = FIRST_NOTICE_SECONDS

    def look(self, until: float) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._next:
            self._next = NOTICE_GROWTH * waited
            if absent := self._absent():
                self._log("waiting", absent=absent, seconds_left=round(max(0.0, until - time.monotonic())))
