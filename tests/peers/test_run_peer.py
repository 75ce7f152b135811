"""Peers in a program of one's own: `run_peer`, here in threads of one process."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from harness import PATIENT, until

from gossamer.algorithms import Jwins, LocalOnly
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.data import prepare
from gossamer.peers.grpc import failures
from gossamer.peers.identity import group, keys
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.forkserver import Order
from gossamer.peers.local.local_group import LocalGroup, free_ports
from gossamer.peers.logs import Log
from gossamer.peers.peer import Signals, run_peer
from gossamer.peers.waits import WaitingNotice
from gossamer.runs import files
from gossamer.training.block import NodeError

EXPERIMENT = Experiment(
    nodes=3, rounds=6, task=Quadratic(dimension=53, num_samples=90), algorithm=Jwins(), topology=Ring()
)
NAMES = ["alice", "bob", "carol"]
LOOPBACK = "127.0.0.1", 0


def configs(directory: Path, **options: float) -> list[PeerConfig]:
    """Of three peers that know each other."""
    ports = free_ports(3)
    members = {name: Member(name, node, "127.0.0.1", ports[node]) for node, name in enumerate(NAMES)}
    keys.make(directory / "keys", NAMES)
    (directory / "peers.toml").write_text(group.dumps(Group("threads", members)))
    return [
        PeerConfig(name, directory / "peers.toml", directory / "keys", directory / name, **options) for name in NAMES
    ]


def test_peers_in_threads_have_the_simulators_models_and_leave_when_asked_and_go_on(tmp_path: Path) -> None:
    log = Log(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    asked = [Signals() for _ in NAMES]
    with ThreadPoolExecutor(3) as threads:
        running = [
            threads.submit(run_peer, EXPERIMENT, config, PATIENT, log=log, signals=signals)
            for config, signals in zip(configs(tmp_path, round_seconds=5), asked, strict=True)
        ]
        files = [tmp_path / name / "metrics.jsonl" for name in NAMES]
        until(lambda: all(file.exists() and file.stat().st_size > 0 for file in files))
        for signals in asked:
            signals.leave = True
        left = [peer.result(60)["rounds"] for peer in running]
        assert 1 <= min(left) <= max(left) < EXPERIMENT.rounds
        running = [
            threads.submit(
                run_peer,
                EXPERIMENT,
                PeerConfig(name, tmp_path / "peers.toml", tmp_path / "keys", tmp_path / name),
                PATIENT,
                log=log,
            )
            for name in NAMES
        ]
        reports = [peer.result(120) for peer in running]
    assert [report["rounds"] for report in reports] == [EXPERIMENT.rounds] * 3
    if len(set(left)) == 1:  # all left after the same round, so that no message was missed
        assert compare(EXPERIMENT, {"peers": reports})["verified"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    until(lambda: "watch" not in {thread.name for thread in threading.enumerate()}, 10)


def test_a_peer_that_reached_nobody_says_so_and_keeps_its_model(tmp_path: Path) -> None:
    config = configs(tmp_path)[0]
    log = Log(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    with pytest.raises(NodeError, match=r"alice reached none of its neighbours in 6 rounds.*own data alone"):
        run_peer(EXPERIMENT, config, Timeouts(start_seconds=0.5), log=log)
    assert (config.out / "model.safetensors").exists()
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    found = {row["event"]: row for row in rows}
    assert "reached nobody" in found
    assert found["begins"]["absent"] == ["bob", "carol"]
    assert {"train_loss", "test_loss", "distance"} <= found["saved"].keys()


@pytest.mark.slow
def test_a_peer_that_waits_says_for_whom_and_why(tmp_path: Path) -> None:
    log = Log(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    with pytest.raises(NodeError, match="reached none"):
        run_peer(EXPERIMENT, configs(tmp_path)[0], Timeouts(start_seconds=6), log=log)
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (waiting,) = [row for row in rows if row["event"] == "waiting"]
    assert waiting["absent"] == dict.fromkeys(["bob", "carol"], failures.REFUSED)
    assert waiting["seconds_left"] <= 2
    assert {row["reason"] for row in rows if row["event"] == "cannot reach"} <= {failures.REFUSED}


def test_a_peer_that_waits_says_so_after_some_seconds_and_then_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    notice = WaitingNotice(lambda event, **details: told.append((clock[0], details)), lambda: {"bob": "no answer"})  # type: ignore[arg-type]
    for _ in range(1000):
        notice.look(until=1100.0)
        clock[0] += 1
    assert [at for at, _ in told] == [104.0, 116.0, 164.0, 356.0]
    assert told[0][1] == {"absent": {"bob": "no answer"}, "seconds_left": 996}


def test_a_group_of_one_and_peers_that_exchange_nothing_miss_nobody(tmp_path: Path) -> None:
    config = configs(tmp_path)[0]
    (tmp_path / "alone.toml").write_text(group.dumps(Group("run", {"alice": Member("alice", 0, *LOOPBACK)})))
    config.peers, config.out = tmp_path / "alone.toml", tmp_path / "alone"
    log = Log(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    assert run_peer(EXPERIMENT, config, Timeouts(start_seconds=0.5), log=log)["rounds"] == 6
    config.peers, config.out = tmp_path / "peers.toml", tmp_path / "local"
    local = replace(EXPERIMENT, algorithm=LocalOnly())
    assert run_peer(local, config, Timeouts(start_seconds=0.5), log=log)["rounds"] == 6


def test_a_program_that_read_its_own_data_trains_on_all_of_them() -> None:
    shared, own = (prepare(EXPERIMENT, 1, None, own_data) for own_data in (False, True))
    assert (len(shared.samples), len(own.samples)) == (30, 90)


def test_signals_are_handled_in_the_main_thread_only_while_a_peer_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = Signals()
    with signals.handled():
        signal.raise_signal(signal.SIGTERM)
        assert signals.leave
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert signals.reload.is_set()
    assert signal.getsignal(signal.SIGTERM) is before


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    config = configs(tmp_path)[0]
    config.name = "mallory"
    with pytest.raises(ExperimentError, match="mallory is not in the group"):
        run_peer(EXPERIMENT, config)
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1"):
        configs(tmp_path / "again", checkpoint_every=0)
    with pytest.raises(ValueError, match="dead_seconds must be above 0"):
        Timeouts(dead_seconds=0)


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = PeerConfig("alice", tmp_path / "peers.toml", tmp_path / "keys", tmp_path, data=tmp_path / "own")
    order = Order(config, Timeouts(adaptive=True), "log.jsonl")
    assert order.write().count(b"\n") == 1
    assert Order.read(order.write()) == order


@pytest.mark.slow
def test_a_forked_peer_that_cannot_start_says_why_and_ends_with_code_2(tmp_path: Path) -> None:
    with LocalGroup(EXPERIMENT, tmp_path / "up", metrics="nowhere") as peers:
        peers.start("peer-0")
        peers.wait(60)
        assert peers.codes[peers.pids["peer-0"]] == 2
        log = (peers.directory_of("peer-0") / "log.jsonl").read_text()
    assert 'gossamer: an address is written "host:port"' in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_when_the_process_that_starts_peers_is_killed_the_group_says_so_and_no_peer_is_left(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, rounds=10_000)
    with LocalGroup(experiment, tmp_path / "up", PATIENT, round_seconds=0.1) as peers:
        peers.start()
        until(lambda: all(peers.last_round(name) for name in peers.names))
        os.kill(peers.pids["peer-1"], signal.SIGSTOP)  # cannot leave by itself
        assert peers._forkserver is not None
        output = peers._forkserver.stdout
        peers._forkserver.kill()
        with pytest.raises(NodeError, match="the process that starts peers was killed, so all peers end"):
            peers.wait(60)
    assert output is not None
    assert output.closed, "it ended, and every peer held it open"
    for name in peers.names:
        with files.locked(peers.directory_of(name)):
            pass
