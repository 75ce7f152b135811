"""What goes wrong on real networks and machines: training finishes, and as well as if nothing had."""

import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import DIGITS, PATIENT, Links, check_learned, events, results, until, waits
from proxies import Proxies

from gossamer.algorithms import Silk
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import Timeouts
from gossamer.peers.local.local_group import LocalGroup

DEADLINE = 20.0
SLACK = 20.0  # a loaded machine may be late to notice
TIMEOUTS = Timeouts(deadline_seconds=DEADLINE)
PACE = {"round_seconds": 0.1, "checkpoint_every": 5}


class AllHad(dict[int, int]):
    """As if every number of a process had been another's before, but for these."""

    def __init__(self, others: Iterable[int]):
        self.others = set(others)

    def __contains__(self, pid: object) -> bool:
        return pid not in self.others or super().__contains__(pid)

    def pop(self, pid: int, default: Any = None) -> Any:
        self.others.add(pid)
        return super().pop(pid, default)


@pytest.mark.slow
def test_a_peer_killed_in_a_round_comes_back_and_all_learn_as_if_nothing_had_been(tmp_path: Path) -> None:
    with LocalGroup(DIGITS, tmp_path / "up", TIMEOUTS, **PACE) as peers:
        peers.start()
        until(lambda: peers.last_round("peer-2").get("round", 0) >= 12)
        peers.send("peer-2", signal.SIGKILL)
        saved = events(peers, "peer-2", "saved")[-1]["round"]
        until(lambda: peers.last_round("peer-0")["round"] >= peers.last_round("peer-2")["round"] + 15)
        peers.codes = AllHad(peers.pids.values())
        peers.start("peer-2")
        assert "peer-2" in peers.running
        peers.wait(120)
        check_learned(peers)
        assert events(peers, "peer-2", "resumed")[0]["round"] >= saved, "what was said to be saved was lost"
        (caught_up,) = events(peers, "peer-2", "caught up")
        assert caught_up["to_round"] > caught_up["from_round"] + 10
        back = peers.result("peer-2")
        assert back is not None
        assert back["pulls_in"] == 1
        assert back["pull_bytes_in"] > 3 * 4810  # the model and more
        assert sum(result["pull_bytes_out"] for result in results(peers)) == back["pull_bytes_in"]
        others = [result for result in results(peers) if result["name"] != "peer-2"]
        assert any(result["neighbours_lost"] and result["neighbours_found"] for result in others)
        assert waits(peers) <= DEADLINE / 2, "nobody waits for the deadline: what cannot arrive is known"


@pytest.mark.slow
def test_halves_that_cannot_see_each_other_for_a_while_go_on_and_find_together_again(tmp_path: Path) -> None:
    seconds = 10.0
    experiment = replace(DIGITS, rounds=190)
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, tmp_path / "up", replace(TIMEOUTS, dead_seconds=1.5), links.seen, **PACE) as peers:
            peers.start()
            until(lambda: peers.last_round("peer-0").get("round", 0) >= 10)
            apart = [w for (a, b), w in links.weather.items() if (a < "peer-3") != (b < "peer-3")]
            for weather in apart:
                weather.cut = True
            time.sleep(seconds)
            before = {name: peers.last_round(name)["round"] for name in peers.names}
            for weather in apart:
                weather.cut = False
            assert min(before.values()) > 15, "a half stood still"
            peers.wait(120)
            check_learned(peers)
            assert any(result["neighbours_lost"] for result in results(peers))
            last = [peers.last_round(name) for name in peers.names]
            assert all(row["alive"] == row["neighbours"] for row in last), "they did not find each other again"
            assert waits(peers) <= DEADLINE + SLACK


@pytest.mark.slow
def test_a_hung_peer_is_not_waited_for_and_catches_up(tmp_path: Path) -> None:
    with LocalGroup(DIGITS, tmp_path / "up", replace(TIMEOUTS, dead_seconds=2), **PACE) as peers:
        peers.start()
        until(lambda: peers.last_round("peer-1").get("round", 0) >= 10)
        peers.send("peer-1", signal.SIGSTOP)
        stopped = peers.last_round("peer-1")["round"]
        until(lambda: peers.last_round("peer-0")["round"] >= stopped + 20)
        peers.send("peer-1", signal.SIGCONT)
        peers.wait(120)
        check_learned(peers)
        assert events(peers, "peer-1", "caught up")
        assert waits(peers) <= DEADLINE + SLACK


@pytest.mark.slow
def test_connections_that_break_all_the_time_stop_no_one(tmp_path: Path) -> None:
    with Proxies(seed=1) as proxies:
        links = Links(proxies)
        experiment = replace(DIGITS, algorithm=Silk())  # whose neighbours keep replicas, and must not miss a change
        with LocalGroup(experiment, tmp_path / "up", TIMEOUTS, links.seen, **PACE) as peers:
            peers.start()
            until(lambda: peers.last_round("peer-0").get("round", 0) >= 2)
            for weather in links.weather.values():
                weather.break_probability = 0.05
            until(lambda: peers.last_round("peer-0").get("round", 0) >= 60)
            for weather in links.weather.values():
                weather.break_probability = 0.0
            peers.wait(120)
            check_learned(peers)
            assert sum(weather.num_broken for weather in links.weather.values()) > 20
            assert sum(result["bytes_resent"] for result in results(peers)) > 0, "what was lost was not sent again"
            assert waits(peers) <= DEADLINE + SLACK


@pytest.mark.slow
def test_on_the_wire_there_is_little_more_than_the_messages(tmp_path: Path) -> None:
    task = Quadratic(dimension=300_000, num_samples=8)  # a message of a megabyte
    experiment = Experiment(
        nodes=2, rounds=12, local_steps=1, batch_size=1, task=task, topology=Ring(), evaluation=Evaluation(12, 1)
    )
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, tmp_path / "up", PATIENT, links.seen) as peers:
            peers.start()
            peers.wait(180)
            sent = sum(result["bytes_out"] for result in results(peers))
            assert sent > 2 * 12 * 0.9e6
            passed = sum(weather.num_bytes for weather in links.weather.values())  # TLS and TCP payload, both ways
            assert sent < passed < 1.03 * sent


@pytest.mark.slow
def test_a_tenth_of_a_second_of_delay_changes_nothing_but_time(tmp_path: Path) -> None:
    experiment = replace(DIGITS, rounds=20)
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, tmp_path / "up", PATIENT, links.seen) as peers:
            for weather in links.weather.values():
                weather.delay_seconds = 0.1
            peers.start()
            peers.wait(180)
            from gossamer.peers.local.dashboard import compare

            assert compare(experiment, {"peers": results(peers)})["verified"]
            assert min(row["waited_seconds"] for row in [peers.last_round(name) for name in peers.names]) > 0.05
