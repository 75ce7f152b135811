"""What a peer is doing now, what its rounds came to, and how long it waits for the others."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gossamer.peers.config import Timeouts

PATIENCE = 4  # an adaptive deadline is so many times the longest of the last waits
LEAST_SECONDS = 1.0  # and at least this

PHASES = {
    "starting": "waiting for the group at the start",
    "training": "taking local steps",
    "exchanging": "sending, and waiting for the neighbours' messages",
    "settling": "exchanging in a round without training",
    "evaluating": "testing its model",
    "pausing": "waiting until --round-seconds are over",
    "catching-up": "taking a neighbour's state after having been away",
    "finishing": "done, and there for neighbours that are not",
    "done": "all rounds are complete, and it ends",
    "left": "asked to leave before its last round",
    "failed": "ended by an error, which its log tells",
}


class Phase(NamedTuple):
    name: str  # of PHASES
    since: float  # by time.monotonic()
    awaited: Callable[[], Iterable[int]]  # for which nodes it waits, when asked


class Progress:
    """Written by the thread that takes the rounds, read by the one that serves the page of metrics."""

    def __init__(self) -> None:
        self.enter("starting")
        self.last: dict[str, Any] = {}  # the metrics of the last round
        self.last_training: dict[str, Any] = {}  # of the last that had local steps
        self.last_evaluation: dict[str, Any] = {}  # and of the last that was evaluated

    def enter(self, name: str, awaited: Callable[[], Iterable[int]] = tuple) -> None:
        assert name in PHASES
        self.phase = Phase(name, time.monotonic(), awaited)  # all at once, so that no reader sees half of it

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Of a round that is complete."""
        self.last = dict(metrics)
        if "train_loss" in metrics:
            self.last_training = self.last
        if "test_loss" in metrics:
            self.last_evaluation = self.last


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
