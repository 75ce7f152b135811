"""What goes wrong in a run: lost messages, nodes that are down, nodes that are slow.

All of it is a pure function of the experiment and the round, like the topology: a run with faults can be repeated and
continued as one without.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.graphs.generators import read_file

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Faults:
    """What goes wrong. A node that is down neither trains nor sends nor receives, and goes on later where it was."""

    drop: float = 0.0  # probability that a message is lost on its link
    down: tuple[tuple[int, int, int], ...] = ()  # node, first round, last round
    late: tuple[tuple[int, int], ...] = ()  # node, and by how many rounds its messages come late
    slow: tuple[tuple[int, int], ...] = ()  # node, and how many rounds of the others one of its own takes
    churn: str = ""  # a file of lines "round node up" and "round node down", rounds counted from 1
    digest: str = ""  # of that file's content; a run notes it, so that no other trace takes its place

    def __post_init__(self) -> None:
        _check(_is_number(self.drop) and 0 <= self.drop < 1, "drop", "at least 0 and under 1", self.drop)
        for given in _entries("down", self.down):
            sensible = _are_integers(given, 3) and given[0] >= 0 and 1 <= given[1] <= given[2]
            _check(sensible, "down", "a list of [node, first round, last round]", given)
        for given in _entries("late", self.late):
            sensible = _are_integers(given, 2) and given[0] >= 0 and given[1] >= 1
            _check(sensible, "late", "a list of [node, number of rounds]", given)
        for given in _entries("slow", self.slow):
            sensible = _are_integers(given, 2) and given[0] >= 0 and given[1] >= 1
            _check(sensible, "slow", "a list of [node, number of rounds]", given)
        for name in ("churn", "digest"):
            _check(isinstance(getattr(self, name), str), name, "a text", getattr(self, name))

    @property
    def any(self) -> bool:
        return self != Faults()

    @property
    def depth(self) -> int:
        """For how many rounds a message may be on its way, the round in which it is sent included."""
        return 1 + max((rounds for _, rounds in self.late), default=0)

    def with_digests(self) -> "Faults":
        """The same with the trace's place and digest noted."""
        if not self.churn:
            return self
        digest = read_file(self.churn, self.digest)[1]
        return replace(self, churn=str(Path(self.churn).absolute()), digest=digest)

    def check(self, nodes: int) -> None:
        """ValueError if there is no such node."""
        named = (entry[0] for entry in (*self.down, *self.late, *self.slow))
        for node in (*named, *(e[1] for e in self._trace())):
            if node >= nodes:
                raise ValueError(f"node {node} was given, and the nodes are 0 to {nodes - 1}")

    def ready(self, nodes: int, round: int) -> NDArray[np.bool_]:
        """(n,): which nodes are done with local steps in a round of an asynchronous run: of a slow one, not all."""
        ready = np.ones(nodes, dtype=bool)
        for node, rounds in self.slow:
            ready[node] = (round + 1) % rounds == 0
        return ready

    def up(self, nodes: int, round: int) -> NDArray[np.bool_]:
        """(n,): which nodes take part in a round."""
        up = np.ones(nodes, dtype=bool)
        for node, first, last in self.down:
            if first <= round + 1 <= last:
                up[node] = False
        for at, node, is_up in self._trace():
            if at <= round + 1:
                up[node] = is_up
        return up

    def lateness(self, nodes: int) -> Integers:
        """(n,): by how many rounds each node's messages come late."""
        lateness = np.zeros(nodes, dtype=np.int64)
        for node, rounds in self.late:
            lateness[node] = rounds
        return lateness

    def _trace(self) -> tuple[tuple[int, int, bool], ...]:
        return _read_trace(self.churn, self.digest) if self.churn else ()


def _check(holds: bool, field: str, must: str, given: object) -> None:
    if not holds:
        raise ValueError(f"{field} must be {must}, {list(given) if isinstance(given, tuple) else given!r} was given")


def _is_number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


def _entries(field: str, given: object) -> Sequence[Any]:
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"{field} must be a list of lists of whole numbers, {given!r} was given")
    return given


def _are_integers(given: object, count: int) -> bool:
    return isinstance(given, (list, tuple)) and len(given) == count and all(type(number) is int for number in given)


@lru_cache
def _read_trace(path: str, digest: str) -> tuple[tuple[int, int, bool], ...]:
    """(round, node, is up) in the order of rounds."""
    events = []
    for number, line in enumerate(read_file(path, digest)[0].splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 3 or not words[0].isdigit() or not words[1].isdigit() or words[2] not in ("up", "down"):
            raise ValueError(
                f'churn {path}, line {number}: {line!r} was given, it must be "round node up" or "... down"'
            )
        events.append((int(words[0]), int(words[1]), words[2] == "up"))
    return tuple(sorted(events, key=lambda event: event[0]))
