"""Who is there: what is known of the other peers, from their answers and from what they send."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

REFUSED_SECONDS = 1.0  # a connection that is refused for so long, with no sign of life: its peer is down


@dataclass
class Neighbour:
    alive: bool = True  # until something speaks against it
    answered: bool = False  # has it ever?
    heard: float = field(default_factory=time.monotonic)  # the last sign of life
    refused_since: float | None = None
    round: int | None = None  # that it is in, as far as it has said
    running: bool = False  # has it begun, or does it wait for the others?
    settled: int = 0  # what it sent to us before this round has arrived, or never will
    gets_through: bool = True  # what it sends to us, as far as it has said


class Liveness:
    """`on_change` is called without a lock held when a neighbour goes down or comes back."""

    def __init__(self, dead_seconds: float, on_change: Callable[[int, bool], None]):
        self._dead_seconds = dead_seconds
        self._on_change = on_change
        self._known: dict[int, Neighbour] = {}
        self._lock = threading.Lock()

    def heard(
        self,
        node: int,
        round: int | None = None,
        settled: int = 0,
        running: bool = False,
        gets_through: bool = True,
    ) -> bool:
        """A sign of life, with what it said of itself, if it did. Returns whether it has just come, or come back."""
        with self._lock:
            neighbour = self._known.setdefault(node, Neighbour())
            came = not (neighbour.answered and neighbour.alive)
            back = neighbour.answered and not neighbour.alive
            neighbour.alive, neighbour.answered, neighbour.refused_since = True, True, None
            neighbour.heard = time.monotonic()
            if round is not None:
                neighbour.round, neighbour.settled, neighbour.running = round, settled, running
                neighbour.gets_through = gets_through
        if back:
            self._on_change(node, True)
        return came

    def sent(self, node: int, round: int) -> None:
        """A message of this round came from it."""
        self.heard(node)
        with self._lock:
            self._known[node].round = max(round, self._known[node].round or 0)

    def silent(self, node: int, refused: bool) -> None:
        """It did not answer; `refused`: nothing listens where it should be."""
        now = time.monotonic()
        with self._lock:
            neighbour = self._known.setdefault(node, Neighbour())
            if refused and neighbour.refused_since is None:
                neighbour.refused_since = now
            gone = neighbour.refused_since is not None and now - neighbour.refused_since > REFUSED_SECONDS
            gone = (refused and gone) or now - neighbour.heard > self._dead_seconds
            lost = gone and neighbour.alive and neighbour.answered
            if gone:
                neighbour.alive = False
        if lost:
            self._on_change(node, False)

    def alive(self, node: int) -> bool:
        with self._lock:
            return self._known.setdefault(node, Neighbour()).alive

    def suspected(self, node: int) -> bool:
        with self._lock:
            neighbour = self._known.get(node)
            return neighbour is not None and neighbour.alive and neighbour.refused_since is not None

    def answered(self, node: int) -> bool:
        with self._lock:
            return node in self._known and self._known[node].answered and self._known[node].alive

    def is_lost(self, node: int) -> bool:
        with self._lock:
            return node in self._known and self._known[node].answered and not self._known[node].alive

    def is_running(self, node: int) -> bool:
        with self._lock:
            return node in self._known and self._known[node].running and self._known[node].alive

    def round_of(self, node: int) -> int | None:
        with self._lock:
            neighbour = self._known.get(node)
            return None if neighbour is None or not neighbour.alive else neighbour.round

    def cannot_arrive(self, node: int, round: int) -> bool:
        """Its message of this round, if it is not here, will not come."""
        with self._lock:
            neighbour = self._known.setdefault(node, Neighbour())
            return not neighbour.alive or not neighbour.gets_through or neighbour.settled > round

    def forget(self, node: int) -> None:
        with self._lock:
            self._known.pop(node, None)
