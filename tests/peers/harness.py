"""Groups of peers for the tests: a small experiment, and what its undisturbed run comes to."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from proxies import Proxies, Weather

from gossamer.data.partition import Iid
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.experiments.recipes.digits import jwins_digits
from gossamer.graphs.topologies import RandomRegular
from gossamer.peers.identity.group import Member
from gossamer.peers.local.group import LocalGroup
from gossamer.simulator.simulation import Simulation

LONG = os.environ.get("GOSSAMER_TESTS") == "long"  # with full times, and what need not run at every change

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


def results(fleet: LocalGroup) -> list[dict[str, Any]]:
    found = [fleet.result(name) for name in fleet.names]
    missing = [name for name, result in zip(fleet.names, found, strict=True) if result is None]
    assert not missing, [fleet.log(name)[-3:] for name in missing]
    return [result for result in found if result is not None]


def waits(fleet: LocalGroup) -> float:
    """The longest that any peer waited for messages in a round."""
    rows = [row for name in fleet.names for row in lines(fleet.place(name) / "metrics.jsonl")]
    return max(float(row["waited_seconds"]) for row in rows)


def lines(path: Path) -> list[dict[str, Any]]:
    import msgspec

    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def events(fleet: LocalGroup, name: str, event: str) -> list[dict[str, Any]]:
    return [row for row in fleet.log(name) if row["event"] == event]


def check_learned(fleet: LocalGroup) -> None:
    """All finished, with the accuracy of an undisturbed run, to a point."""
    found = results(fleet)
    assert {result["rounds"] for result in found} == {fleet.experiment.rounds}
    mean = sum(result["accuracy"] for result in found) / len(found)
    assert mean >= undisturbed_accuracy(fleet.experiment) - 0.01


class Links:
    """A proxy for every pair of peers."""

    def __init__(self, proxies: Proxies):
        self._proxies = proxies
        self.weather: dict[tuple[str, str], Weather] = {}

    def seen(self, viewer: str, member: Member) -> str:
        port, self.weather[viewer, member.name] = self._proxies.add(member.port)
        return f"127.0.0.1:{port}"
