"""Groups of peers for the tests: a small experiment, and what its undisturbed run comes to."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from proxies import Proxies, Weather

from gossamer.data.partition import Iid
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.experiments.recipes import jwins_digits
from gossamer.graphs.topologies import RandomRegular
from gossamer.peers.config import Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.data import prepare
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.local_group import LocalGroup
from gossamer.peers.logs import Log
from gossamer.peers.rounds import Node
from gossamer.simulator.simulation import Simulation

PATIENT = Timeouts(deadline_seconds=120, dead_seconds=60)  # nothing is missed, however busy the machine is

# Flat enough at its end that a point of accuracy means something.
DIGITS = replace(
    jwins_digits(),
    nodes=6,
    rounds=90,
    local_steps=8,
    strategy="rows",
    partition=Iid(),
    topology=RandomRegular(degree=3),
    evaluation=Evaluation(every=30),
)


@cache
def undisturbed_accuracy(experiment: Experiment) -> float:
    """The mean over nodes; what peers reach too when nothing goes wrong, since their models are the same."""
    with Simulation(experiment, 1) as simulation:
        while simulation.round < experiment.rounds:
            metrics = simulation.step()
    return float(metrics["accuracy_mean"])


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def results(peers: LocalGroup) -> list[dict[str, Any]]:
    found = [peers.result(name) for name in peers.names]
    missing = [name for name, result in zip(peers.names, found, strict=True) if result is None]
    assert not missing, [peers.log(name)[-3:] for name in missing]
    return [result for result in found if result is not None]


def waits(peers: LocalGroup) -> float:
    """The longest that any peer waited for messages in a round."""
    rows = [row for name in peers.names for row in lines(peers.directory_of(name) / "metrics.jsonl")]
    return max(float(row["waited_seconds"]) for row in rows)


def lines(path: Path) -> list[dict[str, Any]]:
    import msgspec

    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def events(peers: LocalGroup, name: str, event: str) -> list[dict[str, Any]]:
    return [row for row in peers.log(name) if row["event"] == event]


def check_learned(peers: LocalGroup) -> None:
    """All finished, with the accuracy of an undisturbed run, to a point."""
    found = results(peers)
    assert {result["rounds"] for result in found} == {peers.experiment.rounds}
    mean = sum(result["accuracy"] for result in found) / len(found)
    assert mean >= undisturbed_accuracy(peers.experiment) - 0.01


def lone_node(experiment: Experiment, me: int = 3, timeouts: Timeouts = Timeouts()) -> Node:
    """A node without a network."""
    log = Log(os.open(os.devnull, os.O_WRONLY))
    return Node(prepare(experiment, me, None), me, 77, timeouts, Counters(), log)


@dataclass
class Scripted:
    """The part of a transport that tells of the others, as a test has it."""

    rounds: dict[int, int] = field(default_factory=dict)  # that the others say they are in
    states: dict[int, bytes] = field(default_factory=dict)  # that they give
    lost: set[int] = field(default_factory=set)
    away: bool = False
    pulled: list[int] = field(default_factory=list)  # from whom
    incarnations: int = 0

    def begin(self, round: int) -> None:
        """It is in this round."""

    def watch(self, nodes: list[int]) -> None:
        """It finds out."""

    def name_of(self, node: int) -> str:
        return f"peer-{node}"

    def is_lost(self, node: int) -> bool:
        return node in self.lost

    def round_of(self, node: int) -> int | None:
        return self.rounds.get(node)

    def was_away(self) -> bool:
        return self.away

    def pull(self, node: int) -> bytes | None:
        self.pulled.append(node)
        return self.states.get(node)

    def new_incarnation(self) -> None:
        self.incarnations += 1


def hide(peers: LocalGroup, *names: str, relay: str = "") -> None:
    """Nobody can open a connection to these any more: they have no address, and listen on loopback at a port that is
    known to no one."""
    members = {
        name: Member(name, member.node, relay=relay) if name in names else member
        for name, member in peers.group.members.items()
    }
    peers.group = Group(peers.group.run, members)
    for name in peers.names:
        peers.write_group(name, peers.group)


class Links:
    """A proxy for every pair of peers."""

    def __init__(self, proxies: Proxies):
        self._proxies = proxies
        self.weather: dict[tuple[str, str], Weather] = {}

    def seen(self, viewer: str, member: Member) -> str:
        port, self.weather[viewer, member.name] = self._proxies.add(member.port)
        return f"127.0.0.1:{port}"
