"""The virtual clock against real peers, whose links are slowed as it is told."""

import time
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from harness import PATIENT, Links, lines, until
from proxies import Proxies, Uplink

from gossamer.algorithms import Dpsgd
from gossamer.data import Digits
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.experiments.recipes import jwins_digits
from gossamer.graphs.clock import Clock
from gossamer.graphs.topologies import Ring
from gossamer.peers.local.local_group import LocalGroup
from gossamer.simulator.simulation import Simulation

UPLINKS = (0.2, 4.0, 1.4, 0.6)  # megabits per second; a message has half a megabit
LATENCY_SECONDS = 0.05
EXPERIMENT = replace(
    jwins_digits(),
    nodes=4,
    rounds=4,
    local_steps=1,
    task=Digits(hidden=256),
    algorithm=Dpsgd(),
    topology=Ring(),
    evaluation=Evaluation(every=4, nodes=0),
    clock=Clock(uplink_megabits=UPLINKS, latency_seconds=LATENCY_SECONDS / 2),
)


def predicted(experiment: Experiment) -> list[float]:
    with Simulation(experiment, 1) as simulation:
        while simulation.round < experiment.rounds:
            simulation.step()
        seconds: list[float] = simulation.save()["clock"][:, 0].tolist()
    return seconds


def measured(experiment: Experiment, directory: Path) -> list[float]:
    """When each of the real peers ended its last round, after the first of all that began to train."""
    ends: dict[str, float] = {}
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, directory, PATIENT, links.seen) as peers:
            uplinks = {name: Uplink(1e6 * rate) for name, rate in zip(peers.names, UPLINKS, strict=True)}
            for (viewer, _), weather in links.weather.items():
                weather.uplink, weather.delay_seconds = uplinks[viewer], LATENCY_SECONDS
            peers.start()

            def all_ended() -> bool:
                for name in peers.names:
                    path = peers.directory_of(name) / "metrics.jsonl"
                    if name not in ends and path.exists() and any(r["round"] == experiment.rounds for r in lines(path)):
                        ends[name] = time.monotonic()
                return len(ends) == len(peers.names)

            until(all_ended)
            rows = [lines(peers.directory_of(name) / "metrics.jsonl") for name in peers.names]
            began = min(end - sum(r["seconds"] for r in of) for end, of in zip(ends.values(), rows, strict=True))
            peers.wait(60)
    return [ends[name] - began for name in peers.names]


@pytest.mark.slow
def test_real_peers_on_slowed_links_end_in_the_order_that_the_clock_predicts(tmp_path: Path) -> None:
    told, found = predicted(EXPERIMENT), measured(EXPERIMENT, tmp_path / "up")
    clear = [(a, b) for a, b in permutations(range(4), 2) if told[a] + 0.5 < told[b]]
    assert len(clear) >= 3, told
    assert all(found[a] < found[b] for a, b in clear), (told, found)
    assert max(found) == pytest.approx(max(told), rel=0.35), (told, found)
