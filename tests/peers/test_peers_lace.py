"""Pairs on a real network: a slow peer, a killed one, and messages that do not come in time."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from harness import Links, events, lines, results, undisturbed_accuracy, until
from proxies import Proxies

from gossamer.experiments.experiment import Evaluation
from gossamer.experiments.recipes import lace_digits
from gossamer.graphs.faults import Faults
from gossamer.peers.config import Timeouts
from gossamer.peers.local.local_group import LocalGroup

LACE = replace(lace_digits(), nodes=6, rounds=68, settle=8, strategy="rows", evaluation=Evaluation(every=1000))
TIMEOUTS = Timeouts(deadline_seconds=20)
PACE = {"round_seconds": 0.15, "checkpoint_every": 5}


def accuracy(peers: LocalGroup) -> float:
    found = results(peers)
    assert {result["rounds"] for result in found} == {peers.experiment.rounds}
    return float(sum(result["accuracy"] for result in found) / len(found))


@pytest.mark.slow
def test_nobody_waits_for_a_slow_peer_in_an_asynchronous_run(tmp_path: Path) -> None:
    with LocalGroup(replace(LACE, asynchronous=True), tmp_path / "up", TIMEOUTS, **PACE) as peers:
        peers.start(*peers.names[:-1])
        peers.options = {**PACE, "round_seconds": 5 * PACE["round_seconds"]}
        peers.start(peers.names[-1])
        peers.wait(180)
        clocks = replace(LACE, asynchronous=True, faults=Faults(slow=((5, 5),)))  # its labels are learned less well
        assert accuracy(peers) >= undisturbed_accuracy(clocks) - 0.05
        (joined,) = events(peers, peers.names[-1], "settles with the others")
        assert joined["round"] < 30  # of 60, in the time in which the others ran all
        for name in peers.names[:-1]:
            rows = [row for row in lines(peers.directory_of(name) / "metrics.jsonl") if row["round"] <= 60]
            assert len(rows) == 60
            assert sum(row["waited_seconds"] for row in rows) < 60 * PACE["round_seconds"]


@pytest.mark.slow
def test_a_killed_peer_comes_back_into_its_pairs(tmp_path: Path) -> None:
    with LocalGroup(LACE, tmp_path / "up", TIMEOUTS, **PACE) as peers:
        peers.start()
        until(lambda: peers.last_round("peer-2").get("round", 0) >= 12)
        peers.send("peer-2", signal.SIGKILL)
        until(lambda: peers.last_round("peer-0")["round"] >= peers.last_round("peer-2")["round"] + 15)
        peers.start("peer-2")
        peers.wait(180)
        assert accuracy(peers) >= undisturbed_accuracy(LACE) - 0.02


@pytest.mark.slow
def test_connections_that_break_all_the_time_cost_at_most_a_point(tmp_path: Path) -> None:
    with Proxies(seed=1) as proxies:
        links = Links(proxies)
        with LocalGroup(LACE, tmp_path / "up", TIMEOUTS, links.seen, **PACE) as peers:
            peers.start()
            until(lambda: peers.last_round("peer-0").get("round", 0) >= 2)
            for weather in links.weather.values():
                weather.break_probability = 0.05
            peers.wait(300)
            assert sum(weather.num_broken for weather in links.weather.values()) > 20
            assert accuracy(peers) >= undisturbed_accuracy(LACE) - 0.01


@pytest.mark.slow
def test_a_partner_that_never_returns_stops_nobody(tmp_path: Path) -> None:
    with LocalGroup(LACE, tmp_path / "up", TIMEOUTS, **PACE) as peers:
        peers.start()
        until(lambda: peers.last_round("peer-2").get("round", 0) >= 30)
        peers.send("peer-2", signal.SIGKILL)
        peers.wait(180)
        found = [peers.result(name) for name in peers.names if name != "peer-2"]
        assert all(result is not None and result["rounds"] == LACE.rounds for result in found)
        gone = replace(LACE, faults=Faults(down=((2, 32, LACE.rounds),)))  # its labels are learned less well
        assert min(result["accuracy"] for result in found if result) >= undisturbed_accuracy(gone) - 0.05
