"""What goes wrong on real networks and machines: training finishes, and as well as if nothing had."""

import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import DIGITS, LONG, Links, check_learned, events, results, until, waits
from proxies import Proxies

from gossamer.algorithms import Silk
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import Ring
from gossamer.peers.local.group import LocalGroup

DEADLINE = 20.0
SLACK = 5.0  # a loaded machine may be late to notice
PACE = ["--round-seconds", "0.1", "--deadline", str(DEADLINE), "--start-deadline", "120", "--checkpoint-every", "5"]


class AllHad(dict[int, int]):
    """As if every number of a process had been another's before, but for these."""

    def __init__(self, others: Iterable[int]):
        self.others = set(others)

    def __contains__(self, pid: object) -> bool:
        return pid not in self.others or super().__contains__(pid)

    def pop(self, pid: int, default: Any = None) -> Any:
        self.others.add(pid)
        return super().pop(pid, default)


def test_a_peer_killed_in_a_round_comes_back_and_all_learn_as_if_nothing_had_been(tmp_path: Path) -> None:
    with LocalGroup(DIGITS, tmp_path / "up", PACE) as fleet:
        fleet.start()
        until(lambda: fleet.last_round("peer-2").get("round", 0) >= 12)
        fleet.send("peer-2", signal.SIGKILL)
        saved = events(fleet, "peer-2", "saved")[-1]["round"]
        until(lambda: fleet.last_round("peer-0")["round"] >= fleet.last_round("peer-2")["round"] + 15)
        fleet.codes = AllHad(fleet.pids.values())
        fleet.start("peer-2")
        assert "peer-2" in fleet.running
        fleet.wait(120)
        check_learned(fleet)
        assert events(fleet, "peer-2", "resumed")[0]["round"] >= saved, "what was said to be saved was lost"
        (caught_up,) = events(fleet, "peer-2", "caught up")
        assert caught_up["to_round"] > caught_up["from_round"] + 10
        back = fleet.result("peer-2")
        assert back is not None
        assert back["pulls_in"] == 1
        assert back["pull_bytes_in"] == caught_up["bytes"] > 3 * 4810  # the whole model
        assert sum(result["pull_bytes_out"] for result in results(fleet)) == back["pull_bytes_in"]
        others = [result for result in results(fleet) if result["name"] != "peer-2"]
        assert any(result["neighbours_lost"] and result["neighbours_found"] for result in others)
        assert waits(fleet) <= DEADLINE / 2, "nobody waits for the deadline: what is cannot_arrive is known"


def test_halves_that_cannot_see_each_other_for_a_while_go_on_and_find_together_again(tmp_path: Path) -> None:
    seconds = 10.0 if LONG else 4.0
    experiment = replace(DIGITS, rounds=int(90 + 10 * seconds))
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, tmp_path / "up", [*PACE, "--dead-after", "1.5"], links.seen) as fleet:
            fleet.start()
            until(lambda: fleet.last_round("peer-0").get("round", 0) >= 10)
            apart = [w for (a, b), w in links.weather.items() if (a < "peer-3") != (b < "peer-3")]
            for weather in apart:
                weather.cut = True
            time.sleep(seconds)
            before = {name: fleet.last_round(name)["round"] for name in fleet.names}
            for weather in apart:
                weather.cut = False
            assert min(before.values()) > 15, "a half stood still"
            fleet.wait(120)
            check_learned(fleet)
            assert any(result["neighbours_lost"] for result in results(fleet))
            last = [fleet.last_round(name) for name in fleet.names]
            assert all(row["alive"] == row["neighbours"] for row in last), "they did not find each other again"
            assert waits(fleet) <= DEADLINE + SLACK


def test_a_hung_peer_is_not_waited_for_and_catches_up(tmp_path: Path) -> None:
    with LocalGroup(DIGITS, tmp_path / "up", [*PACE, "--dead-after", "2"]) as fleet:
        fleet.start()
        until(lambda: fleet.last_round("peer-1").get("round", 0) >= 10)
        fleet.send("peer-1", signal.SIGSTOP)
        stopped = fleet.last_round("peer-1")["round"]
        until(lambda: fleet.last_round("peer-0")["round"] >= stopped + 20)
        fleet.send("peer-1", signal.SIGCONT)
        fleet.wait(120)
        check_learned(fleet)
        assert events(fleet, "peer-1", "caught up")
        assert waits(fleet) <= DEADLINE + SLACK


def test_connections_that_break_all_the_time_stop_no_one(tmp_path: Path) -> None:
    with Proxies(seed=1) as proxies:
        links = Links(proxies)
        experiment = replace(DIGITS, algorithm=Silk())  # whose neighbours keep replicas, and must not miss a change
        with LocalGroup(experiment, tmp_path / "up", PACE, links.seen) as fleet:
            fleet.start()
            until(lambda: fleet.last_round("peer-0").get("round", 0) >= 2)
            for weather in links.weather.values():
                weather.break_probability = 0.05
            until(lambda: fleet.last_round("peer-0").get("round", 0) >= 60)
            for weather in links.weather.values():
                weather.break_probability = 0.0
            fleet.wait(120)
            check_learned(fleet)
            assert sum(weather.num_broken for weather in links.weather.values()) > 20
            assert sum(result["bytes_resent"] for result in results(fleet)) > 0, "what was lost was not sent again"
            assert waits(fleet) <= DEADLINE + SLACK


def test_on_the_wire_there_is_little_more_than_the_messages(tmp_path: Path) -> None:
    task = Quadratic(dimension=300_000, num_samples=8)  # a message of a megabyte
    experiment = Experiment(
        nodes=2, rounds=12, local_steps=1, batch_size=1, task=task, topology=Ring(), evaluation=Evaluation(12, 1)
    )
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, tmp_path / "up", ["--deadline", "120", "--dead-after", "60"], links.seen) as fleet:
            fleet.start()
            fleet.wait(180)
            sent = sum(result["bytes_out"] for result in results(fleet))
            assert sent > 2 * 12 * 0.9e6
            passed = sum(weather.num_bytes for weather in links.weather.values())  # TLS and TCP payload, both ways
            assert sent < passed < 1.03 * sent


def test_a_tenth_of_a_second_of_delay_changes_nothing_but_time(tmp_path: Path) -> None:
    experiment = replace(DIGITS, rounds=20)
    with Proxies() as proxies:
        links = Links(proxies)
        patient = ["--deadline", "60", "--dead-after", "30", "--start-deadline", "120"]
        with LocalGroup(experiment, tmp_path / "up", patient, links.seen) as fleet:
            for weather in links.weather.values():
                weather.delay_seconds = 0.1
            fleet.start()
            fleet.wait(180)
            from gossamer.peers.local.dashboard import compare

            assert compare(experiment, {"peers": results(fleet)})["verified"]
            assert min(row["waited_seconds"] for row in [fleet.last_round(name) for name in fleet.names]) > 0.05
