"""What a peer is doing now, and what its rounds came to."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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
