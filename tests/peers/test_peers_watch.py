"""The live page of a group: real peers, hostile ones, and what is said of them in words."""

import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from math import isnan, nan
from pathlib import Path

import pytest
from harness import DIGITS, PATIENT, events, until
from pages import LEAST, answering, endless, page, silent
from test_run_peer import EXPERIMENT, configs

from gossamer.cli import main as cli
from gossamer.experiments.experiment import Evaluation
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.counters import MEANINGS
from gossamer.peers.gauges import GAUGES
from gossamer.peers.grpc.queues import Mailbox
from gossamer.peers.identity import group
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.local_group import LocalGroup, free_ports
from gossamer.peers.logs import Log
from gossamer.peers.peer import run_peer
from gossamer.peers.progress import PHASES
from gossamer.peers.transport import Arrived
from gossamer.peers.watch import PeerWatchServer
from gossamer.peers.watch.attention import STATES, attention, clock, labels_of, listed, state
from gossamer.peers.watch.page import content
from gossamer.peers.watch.scrape import Reading
from gossamer.peers.watch.watched import History, Point, Status
from gossamer.training.privacy import Privacy
from loopback_pages import ask, serving

ROOT = Path(__file__).parent.parent.parent


def test_the_mailbox_tells_whose_messages_are_waited_for() -> None:
    box = Mailbox(1, 1)
    box.begin(0)
    taking = threading.Thread(
        target=lambda: box.take(0, [1, 2, 3], time.monotonic() + 20, lambda sender, _: sender == 3)
    )
    taking.start()
    until(lambda: box.awaited == (1, 2), 10)
    box.put(Arrived(1, 0, ()), time.monotonic() + 1)
    until(lambda: box.awaited == (2,), 10)
    box.put(Arrived(2, 0, ()), time.monotonic() + 1)
    taking.join(10)
    assert box.awaited == ()


def test_curves_are_bounded_and_keep_the_whole_time() -> None:
    history = History(most=50)
    for second in range(10_000):
        history.add(Point(second, second, 0.0, 0.0))
    times = [point.at for point in history.points]
    assert 20 < len(times) <= 50
    assert {b - a for a, b in pairwise(times)} == {256}
    assert (times[0], times[-1] > 9700) == (0, True)


def status(reading: Reading | None = None, age: float = 0.5, trouble: str = "", address: str = "a:1") -> Status:
    return Status(address, reading, age, 1e9, trouble, [])


def north(**changes: object) -> Reading:
    values = {"round": 4.0, "rounds": 9.0, "deadline_seconds": 30.0, "round_seconds": 2.0, "certificate_seconds": 1e6}
    values |= changes.pop("values", {})  # type: ignore[arg-type]
    return replace(Reading("north", "ward-7", "digits", "jwins", "accuracy", "exchanging", values), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([status(north())], []),
        ([status(north(), trouble="refused")], [f"north has not answered since {clock(1e9)}: refused"]),
        ([status(trouble="not asked yet")], []),
        ([status(trouble="no page within 3 s")], ["a:1 has not answered yet: no page within 3 s"]),
        ([status(north(phase="done", values={"round": 9.0}), trouble="gone")], []),
        ([status(north(phase="finishing", values={"round": 9.0}), trouble="gone")], []),
        ([status(north(phase="failed"), trouble="gone")], ["north failed in round 5; its log says why"]),
        ([status(north(phase="left"))], ["north was asked to leave, and did after round 4"]),
        ([status(north(waiting={"south": 3.0}))], []),
        ([status(north(waiting={"south": 20.0}))], ["north has waited 20 s for south, and will for 30 s"]),
        ([status(north(waiting={"south": 40.0, "east": 40.0}))], ["north has waited 40 s for east and south"]),
        (
            [status(north(waiting={"south": 7.0})), status(north(name="east", waiting={"south": 9.0}))],
            ["north and east have waited up to 9 s for south, and will for 30 s"],
        ),
        (
            [status(north(phase="finishing", waiting={"south": 7.0}))],
            ["north has waited 7 s for south to be done, too"],
        ),
        (
            [status(north(phase="starting", waiting=dict.fromkeys("abcde", 150.0)))],
            ["north has waited 2.5 min for a, b and 3 more to start"],
        ),
        (
            [status(north(neighbours={"south": False})), status(north(name="east", neighbours={"south": False}))],
            ["south is down, as north and east see it"],
        ),
        (
            [status(north(phase="training", values={"phase_seconds": 400.0}))],
            ["north has been training for 6.7 min; its last round took 2 s"],
        ),
        (
            [*[status(north(name=name, values={"round": 8.0})) for name in "abc"], status(north())],
            ["north is in round 5, most are in round 9"],
        ),
        (
            [status(north(), address="a:1"), status(north(), address="b:1")],
            ["2 pages say that they are north; is one address given twice?"],
        ),
        ([status(north()), status(north(name="b", run="other"))], ["these peers are of 2 runs: ward-7 and other"]),
        (
            [status(north(values={"checkpoints_failed": 1.0}))],
            ["north could not save its state (once); is its disk full?"],
        ),
        (
            [status(north(values={"certificate_seconds": 90_000.0}))],
            ["north's certificate ends in 25.0 h; gossamer join --renew gets a new one"],
        ),
        ([status(north(values={"clock_skew_seconds": 75.0}))], ["north's clock and a neighbour's differ by 75 s"]),
        ([status(north(values={"bad_frames": 3.0}))], ["north was sent what is no message of this run (3 times)"]),
        ([status(north(values={"refused": 2.0}))], ["north turned callers away that are not in its group (2 times)"]),
        ([status(Reading())], []),  # a page that says nothing
    ],
)  # fmt: skip
def test_what_needs_attention_is_said_in_plain_words(found: list[Status], told: list[str]) -> None:
    if all(status.address == "a:1" for status in found):
        found = [replace(status, address=f"a:{i + 1}") for i, status in enumerate(found)]
    assert attention(found) == told


def test_states_are_words() -> None:
    assert set(STATES) == {"", *PHASES}
    assert state(status(north())) == "exchanging"
    assert state(status(north(waiting={"south": 4.4}))) == "waits for south, 4 s"
    assert state(status(north(), trouble="x")) == f"not answering since {clock(1e9)}"
    assert state(status(north(phase="done"), trouble="x")) == "done"
    assert state(status(north(phase="finishing", values={"round": 9.0}), trouble="x")) == "done"
    assert state(status(trouble="x")) == "not answering"
    assert [listed("abcd"[:n]) for n in range(5)] == ["", "a", "a and b", "a, b and c", "a, b and 2 more"]
    assert labels_of([status(north()), status(), status(north(), address="b:1")]) == [
        "north (a:1)",
        "a:1",
        "north (b:1)",
    ]


def test_curves_of_fifty_peers_are_drawn_in_a_small_page_and_rounds_on_an_even_scale() -> None:
    points = [Point(float(second), second + 1.0, 2.0, nan) for second in range(400)]
    found = [replace(status(north(name=f"peer-{i}")), points=points) for i in range(50)]
    text = content(found)
    assert len(text) < 500_000
    rounds, losses = text.split("<figure>")[1:]
    assert all(f">{tick}</text>" in rounds for tick in (100, 200, 300, 400))
    assert losses.startswith("<figcaption>Training loss"), "nobody was evaluated, so there are two charts"


def watching(*ports: int, page_seconds: float = 2.0) -> AbstractContextManager[PeerWatchServer]:
    return serving(PeerWatchServer([("127.0.0.1", port) for port in ports], 0, 0.1, page_seconds))


def rows(server: PeerWatchServer) -> dict[str, list[str]]:
    """The cells of the page's table, by the peer's name, without markup."""
    text = ask(server)[1].partition("<tbody>")[2].partition("</tbody>")[0]
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", text, re.DOTALL)]
    plain = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in found]
    return {row[0]: row[1:] for row in plain}


def test_hostile_pages_hold_up_nobody_and_stay_text() -> None:
    named = (
        LEAST + b'gossamer_peer_info{name="<script>alert(1)</script>",experiment="<img src=x onerror=alert(2)>"} 1\n'
    )
    named += b'gossamer_neighbour_up{neighbour="</td><b>"} 0\ngossamer_phase{phase="training"} 1\n'
    good = page(LEAST + b'gossamer_rounds 9\ngossamer_peer_info{name="north"} 1\n')
    with answering(page(named)) as a, answering(endless) as b, answering(silent) as c, answering(good) as d:
        with watching(a, b, c, d, page_seconds=0.5) as server:
            until(lambda: "no page within 0.5 s" in ask(server)[1], 20)
            began = time.monotonic()
            _, text = ask(server)
            assert time.monotonic() - began < 1
            assert "<script>alert" not in text
            assert "<img" not in text
            assert "</td><b>" not in text
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
            assert "longer than 250 kB" in text
            assert rows(server)["north"][:2] == ["running", "3 of 9"]
            began = time.monotonic()
        assert time.monotonic() - began < 3, "whoever is silent does not keep the watcher from ending"


def test_another_run_of_a_peer_begins_new_curves() -> None:
    said = {"run": b"ward-7", "round": b"3"}

    def now(connection: socket.socket) -> None:
        text = LEAST.replace(b"round 3", b"round " + said["round"])
        page(text + b'gossamer_peer_info{name="north",run="' + said["run"] + b'"} 1\n')(connection)

    with answering(now) as port, watching(port) as server:
        until(lambda: len(server.statuses()[0].points) >= 2, 10)
        said |= {"run": b"ward-7-2", "round": b"1"}
        until(lambda: server.statuses()[0].points[-1].round == 1, 10)
        assert {point.round for point in server.statuses()[0].points} == {1}


def test_only_this_machine_by_its_own_name_sees_the_peers() -> None:
    with answering(page(LEAST)) as port, watching(port) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert ask(server)[0] == 200
        assert ask(server, host=f"localhost:{server.server_port}")[0] == 200
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1:1"):
            assert ask(server, host=host)[0] == 421
        for path in ("/report", "/metrics", "/../x", "//x"):
            assert ask(server, path)[0] == 404
        assert ask(server, method="POST")[0] == 501


def alone(tmp_path: Path) -> PeerConfig:
    """The only peer of its group."""
    config = configs(tmp_path, round_seconds=0.15)[0]
    (tmp_path / "alone.toml").write_text(group.dumps(Group("ward-7", {"alice": Member("alice", 0, "127.0.0.1", 0)})))
    config.peers, config.metrics = tmp_path / "alone.toml", f"127.0.0.1:{free_ports(1)[0]}"
    return config


@pytest.mark.parametrize("private", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_peer_is_followed_from_its_first_round_to_its_last(private: bool, tmp_path: Path) -> None:
    config = alone(tmp_path)
    experiment = replace(EXPERIMENT, evaluation=Evaluation(every=2), rounds=8, settle=2)
    if private:
        experiment = replace(experiment, privacy=Privacy(clip=1.0, noise=1.0))
    log = Log(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    assert config.metrics is not None
    with watching(int(config.metrics.rpartition(":")[2])) as server:
        run_peer(experiment, config, Timeouts(start_seconds=0.5), log=log)
        until(lambda: rows(server)["alice"][0] == "done", 10)
        assert rows(server)["alice"][:2] == ["done", "8 of 8"]
        assert "Nothing needs attention" in ask(server)[1]
        (found,) = server.statuses()
        assert found.reading is not None
        assert (found.reading.run, found.reading.experiment, found.reading.metric) == (
            "ward-7",
            experiment.name,
            "distance",
        )
        assert found.reading.score > 0
        assert isnan(found.reading["train_loss"]) == private, "under privacy it would tell of the data"
        rounds = [point.round for point in found.points]
        assert rounds == sorted(rounds)
        assert len(set(rounds)) > 3
        labelled = {"peer_info", "phase", "waiting_seconds", "evaluation", "neighbour_up"}
        assert set(found.reading.values) >= {*MEANINGS, *GAUGES} - labelled - {"train_loss"}


@pytest.mark.slow
def test_a_group_is_followed_and_a_peer_that_is_killed_is_missed_within_seconds(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=4, rounds=60, settle=2, topology=Ring(), evaluation=Evaluation(every=5))
    with LocalGroup(experiment, tmp_path / "up", PATIENT, round_seconds=0.3) as peers:
        peers.start()
        until(lambda: all(events(peers, name, "metrics") for name in peers.names))
        addresses = [events(peers, name, "metrics")[-1]["address"] for name in peers.names]
        with watching(*(int(re.findall(r":(\d+)/", address)[0]) for address in addresses)) as server:
            until(lambda: set(rows(server)) == set(peers.names))
            until(lambda: all(peers.last_round(name).get("round", 0) >= 6 for name in peers.names))
            low = min(peers.last_round(name)["round"] for name in peers.names)
            time.sleep(0.5)
            shown = {name: int(row[1].partition(" of ")[0]) for name, row in rows(server).items()}
            high = max(peers.last_round(name)["round"] for name in peers.names)
            assert all(low - 1 <= round <= high + 1 for round in shown.values()), (low, shown, high)
            assert all(row[1].endswith(" of 60") for row in rows(server).values())
            assert all(row[3].endswith("%") for row in rows(server).values()), "they were evaluated in round 5"
            assert "Nothing needs attention" in ask(server)[1]

            peers.send("peer-2", signal.SIGKILL)
            killed = time.monotonic()
            until(lambda: "peer-2 has not answered since" in ask(server)[1], 20)
            assert time.monotonic() - killed < 8
            assert rows(server)["peer-2"][0].startswith("not answering since")
            until(lambda: "peer-2 is down, as peer-1 and peer-3 see it" in ask(server)[1], 20)

            peers.wait(120)
            until(lambda: all(rows(server)[name][0] == "done" for name in peers.names if name != "peer-2"), 10)
            assert all(rows(server)[name][1] == "60 of 60" for name in peers.names if name != "peer-2")
            assert "3 ended" in ask(server)[1]


@pytest.mark.slow
def test_the_page_says_who_waits_for_whom(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=3, rounds=400, topology=Ring(), evaluation=Evaluation(every=100))
    timeouts = Timeouts(deadline_seconds=60, dead_seconds=60)
    with LocalGroup(experiment, tmp_path / "up", timeouts, round_seconds=0.1) as peers:
        peers.start()
        until(lambda: all(events(peers, name, "metrics") for name in peers.names))
        addresses = [events(peers, name, "metrics")[-1]["address"] for name in peers.names]
        with watching(*(int(re.findall(r":(\d+)/", address)[0]) for address in addresses)) as server:
            until(lambda: all(peers.last_round(name).get("round", 0) >= 3 for name in peers.names))
            peers.send("peer-1", signal.SIGSTOP)
            try:
                until(lambda: re.search(r"peer-0 .*waited .*\d+ s for peer-1", ask(server)[1]) is not None, 30)
                assert rows(server)["peer-0"][0].startswith("waits for peer-1, ")
                until(lambda: "peer-1 has not answered since" in ask(server)[1], 30)
            finally:
                peers.send("peer-1", signal.SIGCONT)
            until(lambda: "Nothing needs attention" in ask(server)[1], 30)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--metrics", "north"], "'north' was given"),
        (["--metrics", "north:x"], "'north:x' was given"),
        (["--metrics", "north:70000"], "'north:70000' was given"),
        (["--metrics", "north:0"], "--metrics north:0 names no port; the peer's log says which one it has"),
        (["runs", "--metrics", "north:9101"], "name a directory, or the pages of peers, not both"),
        ([word for i in range(300) for word in ("--metrics", f"north:{9000 + i}")], "256 can be watched at once"),
    ],
)
def test_wrong_pages_are_told_in_a_sentence(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gossamer", "watch", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_every_gauge_and_counter_is_documented() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    for name in GAUGES:
        assert f"`gossamer_{name}" in text, name
    for name in MEANINGS:
        assert f"`gossamer_{name}_total`" in text, name
    for phase in PHASES:
        assert f"`{phase}`" in text, phase
