"""The virtual clock: when every node is where, given how quick it computes and how quick its links are.

    a node's local steps take step_seconds each, one after the other;
    then it sends to all its receivers at once, behind what is still leaving of earlier exchanges: the messages share
    its uplink, as connections do, so that all have left when the last one has, and each arrives a latency later. Each
    takes its bits over the lower of the sender's uplink and the receiver's downlink;
    a node goes on when all messages that it waits for have arrived: those of its own in-neighbours, no others'.

There is no barrier, so a slow node is felt one neighbour further in every exchange. Sending does not keep a node from
computing, nor do messages that come in at once hinder each other. Nobody waits for a message that is lost or late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gossamer.core.rng import words
from gossamer.graphs.generators import read_file
from gossamer.graphs.networks import MIXED, NETWORKS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NetworkName = Literal["", "lan", "wifi", "4g", "lora", "mixed"]
_NODE_TRACE = ("round", "node", "step_seconds")
_LINK_TRACE = ("round", "sender", "receiver", "latency_seconds", "megabits")


class Distribution:
    """Numbers that differ from node to node, each drawn from the node's own stream."""

    def of(self, uniform: Floats) -> Floats:
        """(n,): the numbers, from two uniform ones per node, (n, 2)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Uniform(Distribution):
    """As likely anywhere between two numbers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (_is_number(self.low) and _is_number(self.high) and 0 <= self.low <= self.high):
            raise ValueError(f"low and high must be 0 <= low <= high, {self.low!r} and {self.high!r} were given")

    def of(self, uniform: Floats) -> Floats:
        return self.low + (self.high - self.low) * uniform[:, 0]


@dataclass(frozen=True)
class LogNormal(Distribution):
    """Around a median, with a few that are far above it: exp of a normal distribution."""

    median: float
    sigma: float = 0.5  # standard deviation of the logarithm; 0.5: one node in 40 is 2.7 times the median or more

    def __post_init__(self) -> None:
        if not (_is_number(self.median) and _is_number(self.sigma) and self.median >= 0 and self.sigma >= 0):
            raise ValueError(f"median and sigma must be at least 0, {self.median!r} and {self.sigma!r} were given")

    def of(self, uniform: Floats) -> Floats:
        normal = np.sqrt(-2 * np.log1p(-uniform[:, 0])) * np.cos(2 * np.pi * uniform[:, 1])
        return np.asarray(self.median * np.exp(self.sigma * normal), np.float64)


DISTRIBUTIONS: dict[str, type[Distribution]] = {"uniform": Uniform, "lognormal": LogNormal}
PerNode = float | tuple[float, ...] | Distribution  # one number for all nodes, one for each, or drawn for each


@dataclass(frozen=True)
class Clock:
    """How long things take, and what they cost in energy. What is not said is the network's, and else takes no time.

    Traces are CSV files with a line of column names. `steps` has round, node, step_seconds, and `links` has round,
    sender, receiver, latency_seconds, megabits (per second): each holds from its round on, rounds counted from 1.
    """

    network: NetworkName = ""  # of every node; mixed: lan, wifi or 4g, drawn for each
    step_seconds: PerNode = 0.0  # of a local step
    latency_seconds: PerNode | None = None  # one way, from a node into the network; a link has that of both ends
    uplink_megabits: PerNode | None = None  # per second
    downlink_megabits: PerNode | None = None
    battery_wh: float = 10.0  # watt-hours, of each node
    steps: str = ""  # a trace of nodes
    steps_digest: str = ""  # of its content; a run notes it
    links: str = ""  # a trace of links
    links_digest: str = ""

    def __post_init__(self) -> None:
        if self.network not in get_args(NetworkName):
            known = ", ".join(name for name in get_args(NetworkName) if name)
            raise ValueError(f"network must be one of {known}, {self.network!r} was given")
        for name in ("step_seconds", "latency_seconds"):
            _check_per_node(name, getattr(self, name), positive=False)
        for name in ("uplink_megabits", "downlink_megabits"):
            _check_per_node(name, getattr(self, name), positive=True)
        if not (_is_number(self.battery_wh) and self.battery_wh > 0):
            raise ValueError(f"battery_wh must be a number over 0, {self.battery_wh!r} was given")
        for name in ("steps", "steps_digest", "links", "links_digest"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a text, {getattr(self, name)!r} was given")

    @property
    def on(self) -> bool:
        return self != Clock()

    def with_digests(self) -> "Clock":
        """The same with the places and digests of the traces noted."""
        steps, steps_digest = _noted(self.steps, self.steps_digest)
        links, links_digest = _noted(self.links, self.links_digest)
        return replace(self, steps=steps, steps_digest=steps_digest, links=links, links_digest=links_digest)

    def check(self, nodes: int) -> None:
        """ValueError if a list or a trace is not of so many nodes."""
        for name in ("step_seconds", "latency_seconds", "uplink_megabits", "downlink_megabits"):
            given = getattr(self, name)
            if isinstance(given, (list, tuple)) and len(given) != nodes:
                raise ValueError(f"{name} has {len(given)} numbers, and there are {nodes} nodes; give one for each")
        for line in (*self._step_trace(), *self._link_trace()):
            for node in line.ends:
                if node >= nodes:
                    raise ValueError(f"node {node} was given in a trace, and the nodes are 0 to {nodes - 1}")

    def speeds(self, nodes: int, seed: int) -> "Speeds":
        """Those of a run's nodes and links, without what traces say."""
        networks = self._networks(nodes, seed)

        def drawn(name: str, otherwise: Floats, factor: float = 1.0) -> Floats:
            given = getattr(self, name)
            return otherwise if given is None else factor * _per_node(given, name, nodes, seed)

        steps, latency, up, down, sent, received = (np.zeros(nodes) for _ in range(6))
        up[:] = down[:] = np.inf
        for node, name in enumerate(networks):
            if name:
                up[node], down[node], latency[node], sent[node], received[node] = NETWORKS[name]
        return Speeds(
            drawn("step_seconds", steps),
            drawn("latency_seconds", latency),
            drawn("uplink_megabits", up, 1e6),
            drawn("downlink_megabits", down, 1e6),
            sent,
            received,
        )

    def _networks(self, nodes: int, seed: int) -> list[str]:
        if self.network != "mixed":
            return [self.network] * nodes
        return [MIXED[int(draw * len(MIXED))] for draw in _uniform("network", nodes, seed)[:, 0]]

    def step_seconds_in(self, speeds: "Speeds", round: int) -> Floats:
        """(n,): what a local step of each node takes in a round."""
        seconds = speeds.step_seconds.copy()
        for line in self._step_trace():
            if line.round <= round + 1:
                seconds[line.ends[0]] = line.values[0]
        return seconds

    def links_in(self, speeds: "Speeds", senders: Integers, receivers: Integers, round: int) -> tuple[Floats, Floats]:
        """Latencies in seconds and rates in bits per second of links in a round."""
        latencies = speeds.latency_seconds[senders] + speeds.latency_seconds[receivers]
        rates = np.minimum(speeds.uplink[senders], speeds.downlink[receivers])
        for line in self._link_trace():
            if line.round <= round + 1:
                here = (senders == line.ends[0]) & (receivers == line.ends[1])
                latencies[here], rates[here] = line.values[0], 1e6 * line.values[1]
        return latencies, rates

    def _step_trace(self) -> "tuple[TraceLine, ...]":
        return _read_trace(self.steps, self.steps_digest, _NODE_TRACE) if self.steps else ()

    def _link_trace(self) -> "tuple[TraceLine, ...]":
        return _read_trace(self.links, self.links_digest, _LINK_TRACE) if self.links else ()


class Speeds(NamedTuple):
    """Of every node, (n,) each."""

    step_seconds: Floats
    latency_seconds: Floats
    uplink: Floats  # bits per second
    downlink: Floats
    joules_sent: Floats  # per byte
    joules_received: Floats


class Times(NamedTuple):
    """Where the nodes are, in seconds since the start, (n,) each."""

    ready: Floats  # when a node has what it needs for what it does next
    uplink: Floats  # when all that it has sent so far has left

    @classmethod
    def start(cls, nodes: int) -> "Times":
        return cls(np.zeros(nodes), np.zeros(nodes))

    def computed(self, seconds: Floats) -> "Times":
        """After each node has computed for so long."""
        return self._replace(ready=self.ready + seconds)

    def exchanged(
        self, senders: Integers, receivers: Integers, seconds: Floats, latencies: Floats, waited: NDArray[np.bool_]
    ) -> "Times":
        """After an exchange of messages that take so many seconds of their sender's uplink, and a latency to arrive; a
        node goes on when those that are waited for are there."""
        uplink, ready = self.uplink.copy(), self.ready.copy()
        uplink[senders] = np.maximum(self.uplink, self.ready)[senders]
        np.add.at(uplink, senders, seconds)
        np.maximum.at(ready, receivers[waited], (uplink[senders] + latencies)[waited])
        return Times(ready, uplink)


class TraceLine(NamedTuple):
    round: int
    ends: tuple[int, ...]  # the node, or sender and receiver
    values: tuple[float, ...]


def _noted(path: str, digest: str) -> tuple[str, str]:
    """Where a trace is, and the digest of its content."""
    return (str(Path(path).absolute()), read_file(path, digest, "trace")[1]) if path else (path, digest)


@lru_cache
def _read_trace(path: str, digest: str, columns: Sequence[str]) -> tuple[TraceLine, ...]:
    """The lines of a trace, in the order of rounds."""
    lines = read_file(path, digest, "trace")[0].splitlines()
    if not lines or [word.strip() for word in lines[0].split(",")] != list(columns):
        raise ValueError(f"line 1 of the trace {path} must be {','.join(columns)}")
    found = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        values = [_number(word) for word in line.split(",")]
        whole = len(columns) - (1 if columns == _NODE_TRACE else 2)  # of the columns: round and nodes
        counts = [int(value) for value in values[:whole] if value is not None and value == int(value)]
        fits = len(values) == len(columns) and None not in values and len(counts) == whole and counts[0] >= 1
        if not fits or (columns == _LINK_TRACE and not values[-1]):
            must = f"must be {','.join(columns)}, rounds from 1 and megabits over 0"
            raise ValueError(f"line {number} of the trace {path} {must}, {line.strip()[:60]!r} was found")
        found.append(TraceLine(counts[0], tuple(counts[1:]), tuple(v for v in values[whole:] if v is not None)))
    return tuple(sorted(found, key=lambda line: line.round))


def _number(word: str) -> float | None:
    """A finite number, at least 0; None if it is none."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


def _per_node(given: PerNode, purpose: str, nodes: int, seed: int) -> Floats:
    if isinstance(given, Distribution):
        return given.of(_uniform(purpose, nodes, seed))
    return np.broadcast_to(np.asarray(given, np.float64), nodes).copy()


def _uniform(purpose: str, nodes: int, seed: int) -> Floats:
    """(n, 2) numbers in [0, 1)."""
    drawn = words(seed, f"clock {purpose}", range(nodes), [0], 2)
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53, np.float64)


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and isfinite(given)


def _check_per_node(name: str, given: object, positive: bool) -> None:
    if isinstance(given, Distribution) and positive and not given.of(np.zeros((1, 2)))[0] > 0:
        raise ValueError(f"{name} must be over 0, and {given} is 0 somewhere")
    if given is None or isinstance(given, Distribution):
        return
    numbers: Sequence[Any] = given if isinstance(given, (list, tuple)) and given else [given]
    if not all(_is_number(number) and (number > 0 or (not positive and number == 0)) for number in numbers):
        least = "over 0" if positive else "at least 0"
        must = f"a number {least}, a list of one per node, or a distribution such as lognormal"
        raise ValueError(f"{name} must be {must}, {list(given) if isinstance(given, tuple) else given!r} was given")
