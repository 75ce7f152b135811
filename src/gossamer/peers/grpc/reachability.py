"""Whom this peer's own calls get to.

That is not who is there: where a NAT or a firewall lets connections through in one direction only, a neighbour is heard
from all the time and cannot be sent anything.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

UNREACHED_SECONDS = 5.0  # of failures, with no success among them; longer than gRPC waits before it connects again
TOLD_SECONDS = 60.0  # another reason is told once in so long


@dataclass
class _Way:
    failing_since: float | None = None
    blocked: bool = False
    told: str = ""  # the last reason that was told, until it is reached again
    told_at: float = 0.0


class Reachability:
    """`tell` is called, without a lock held, with why a node cannot be reached, once, and with "" when it can again."""

    def __init__(self, dead_seconds: float, tell: Callable[[int, str], None]):
        self._slow_seconds = max(dead_seconds, UNREACHED_SECONDS)
        self._tell = tell
        self._ways: dict[int, _Way] = {}
        self._lock = threading.Lock()

    def blocked(self, node: int) -> bool:
        with self._lock:
            return node in self._ways and self._ways[node].blocked

    def succeeded(self, node: int) -> None:
        with self._lock:
            way = self._ways.pop(node, None)
        if way is not None and way.told:
            self._tell(node, "")

    def failed(self, node: int, refused: bool, reason: str) -> None:
        """A call did not get there; `refused`: the network said so, it was not just slow."""
        now = time.monotonic()
        with self._lock:
            way = self._ways.setdefault(node, _Way())
            if way.failing_since is None:
                way.failing_since = now
            if now - way.failing_since >= (UNREACHED_SECONDS if refused else self._slow_seconds):
                way.blocked = True
            news = way.blocked and reason != way.told and (not way.told or now - way.told_at > TOLD_SECONDS)
            if news:
                way.told, way.told_at = reason, now
        if news:
            self._tell(node, reason)

    def try_anew(self, node: int) -> None:
        """It has just come, or come back: what failed while it was away says nothing."""
        with self._lock:
            if node in self._ways:
                self._ways[node].failing_since, self._ways[node].blocked = None, False

    def forget(self, node: int) -> None:
        with self._lock:
            self._ways.pop(node, None)
