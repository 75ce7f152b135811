"""What a peer keeps on its disk: for itself alone, for one process at a time, and whole when the disk is full."""

import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENT, until
from test_run_peer import EXPERIMENT, configs

from disk import SmallDisk
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.local.dashboard import compare
from gossamer.peers.logs import Log
from gossamer.peers.peer import Signals, run_peer
from gossamer.runs import checkpoint, files
from gossamer.training.block import NodeError
from gossamer.training.privacy import Privacy

ALONE = Timeouts(deadline_seconds=2, start_seconds=0.1, dead_seconds=0.5)  # the others never come


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        small = SmallDisk(tmp_path / "disk", 1 << 20)
    except OSError as error:
        pytest.skip(str(error))
    yield small
    small.unmount()


class Filling(Log):
    """A log that fills a disk when something happens, and frees it when something else does."""

    def __init__(self, disk: SmallDisk, fill: tuple[str, int], free: str = ""):
        super().__init__(os.open(os.devnull, os.O_WRONLY))
        self.disk, self.fill, self.free = disk, fill, free
        self.events: list[str] = []

    def __call__(self, event: str, **details: Any) -> None:
        self.events.append(event)
        if (event, details.get("round")) == self.fill:
            self.disk.fill()
        if event == self.free:
            self.disk.free()


@contextmanager
def group_of_three(
    directory: Path, bob: Path, log: Log, experiment: Experiment = EXPERIMENT
) -> Iterator[tuple[list[Any], PeerConfig]]:
    """Peers in threads, of which bob has a directory and a log of his own."""
    found = configs(directory, checkpoint_every=2)
    found[1].out = bob
    quiet = Log(os.open(os.devnull, os.O_WRONLY))
    with ThreadPoolExecutor(3) as threads:
        logs = [quiet, log, quiet]
        yield (
            [threads.submit(run_peer, experiment, c, PATIENT, log=to) for c, to in zip(found, logs, strict=True)],
            found[1],
        )


def test_a_peers_files_are_its_own_and_two_peers_cannot_share_a_directory(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with group_of_three(tmp_path, tmp_path / "bob", Log(os.open(os.devnull, os.O_WRONLY))) as (running, config):
            for _ in range(20):
                until((config.out / "metrics.jsonl").exists)
                with pytest.raises(ExperimentError, match="bob is in use by another process; wait until"):
                    run_peer(EXPERIMENT, config)
            reports = [peer.result(120) for peer in running]
    finally:
        os.umask(before)
    assert compare(EXPERIMENT, {"peers": reports})["verified"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "bob").iterdir()}
    modes.pop("lock")  # empty
    assert {"checkpoint.safetensors", "experiment.toml", "metrics.jsonl", "model.safetensors", "result.json"} == set(
        modes
    )
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "bob").stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_peer_on_a_full_disk_ends_once_it_could_save_and_has_the_others_model(
    tmp_path: Path, disk: SmallDisk
) -> None:
    log = Filling(disk, ("saved", 2))
    with group_of_three(tmp_path, disk.path / "bob", log) as (running, config):
        others = [running[i].result(120) for i in (0, 2)]
        until(lambda: log.events.count("state not saved") >= 4)  # in rounds 4 and 6, and since then
        assert not running[1].done()
        found = checkpoint.load(config.out)
        assert found is not None
        assert found[0].round == 2, "what was saved is lost"
        disk.free()
        report = running[1].result(60)
    assert compare(EXPERIMENT, {"peers": [others[0], report, others[1]]})["verified"]
    assert (config.out / "model.safetensors").exists()
    for line in (config.out / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["round"] in range(1, 7)


@pytest.mark.slow
def test_a_peer_that_is_ended_on_a_full_disk_says_what_is_saved(tmp_path: Path, disk: SmallDisk) -> None:
    config, signals = configs(tmp_path)[1], Signals()
    config.out = disk.path / "bob"
    log = Filling(disk, ("begins", 0))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run_peer, EXPERIMENT, config, ALONE, log=log, signals=signals)
        until(lambda: log.events.count("state not saved") >= 2, 30)
        signals.leave = True
        with pytest.raises(
            NodeError, match=r"has the state of round 0, .* 6 could not be saved; free some space, then"
        ):
            running.result(60)


def test_a_peer_whose_model_does_not_fit_has_it_in_its_checkpoint_and_writes_it_when_started_again(
    tmp_path: Path, disk: SmallDisk
) -> None:
    log = Filling(disk, ("saved", 6))
    with group_of_three(tmp_path, disk.path / "bob", log) as (running, config):
        others = [running[i].result(120) for i in (0, 2)]
        with pytest.raises(
            NodeError, match=r"model.safetensors cannot be written: No space left .* start this peer again"
        ):
            running[1].result(120)
    assert not (config.out / "result.json").exists()
    assert not list(config.out.glob("*.partial"))
    with pytest.raises(ExperimentError, match=r"metrics.jsonl cannot be written: No space left on device; mend that"):
        run_peer(EXPERIMENT, config, PATIENT, log=log)
    disk.free()
    report = run_peer(EXPERIMENT, config, PATIENT, log=log)  # although the others have gone
    assert compare(EXPERIMENT, {"peers": [others[0], report, others[1]]})["verified"]
    assert (config.out / "model.safetensors").exists()


def test_a_peer_that_cannot_note_what_it_releases_sends_no_more(tmp_path: Path, disk: SmallDisk) -> None:
    experiment = replace(EXPERIMENT, privacy=Privacy(clip=1.0, noise=0.05))
    config = configs(tmp_path)[1]
    config.out = disk.path / "bob"
    log = Filling(disk, ("begins", 0))
    with pytest.raises(
        NodeError, match=r"privacy.json cannot be written: No space left on device; nothing may be sent"
    ):
        run_peer(experiment, config, ALONE, log=log)
    assert json.loads((config.out / "privacy.json").read_text()) == {"releases": 0}


def run_alone(config: PeerConfig, log: Log) -> str:
    """Run a peer that reaches nobody, as it then says; the sha256 of its model."""
    with pytest.raises(NodeError, match="reached none of its neighbours"):
        run_peer(EXPERIMENT, config, ALONE, log=log)
    return str(json.loads((config.out / "result.json").read_text())["model_sha256"])


def test_what_an_earlier_version_left_in_metrics_does_not_keep_a_peer_from_going_on(tmp_path: Path) -> None:
    config = configs(tmp_path)[1]
    log = Log(os.open(os.devnull, os.O_WRONLY))
    sha256 = run_alone(config, log)
    metrics = config.out / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join([*lines[:3], lines[3][:25], *lines[4:]]))  # two rows in a line, by a full disk
    assert run_alone(config, log) == sha256
    assert [row["round"] for row in files.read_lines(metrics)] == [1, 2, 3, 6]


def test_a_checkpoint_of_a_round_after_the_last_is_refused(tmp_path: Path) -> None:
    config = configs(tmp_path)[1]
    log = Log(os.open(os.devnull, os.O_WRONLY))
    run_alone(config, log)
    saved, tensors = checkpoint.load(config.out) or pytest.fail("nothing was saved")
    saved.round = EXPERIMENT.rounds + 1
    checkpoint.save(config.out, saved, tensors)
    with pytest.raises(ExperimentError, match=r"is damaged \(it is of round 7 of 6\)"):
        run_peer(EXPERIMENT, config, ALONE, log=log)
