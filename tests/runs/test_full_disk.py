"""A full disk: what was there stays, the sentence says how to go on, and with some space it goes on to the same end."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gossamer
from contract import QUADRATIC
from disk import SmallDisk
from gossamer import ExperimentError
from gossamer.experiments.experiment import Wire
from gossamer.graphs.topologies import Ring
from gossamer.runs import checkpoint, files
from gossamer.runs.checkpoint import Saved

EXPERIMENT = replace(QUADRATIC, topology=Ring(), rounds=30)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        small = SmallDisk(tmp_path / "disk", 1 << 20)
    except OSError as error:
        pytest.skip(str(error))
    yield small
    small.unmount()


@contextmanager
def no_file_longer_than(num_bytes: int) -> Iterator[None]:
    """What else makes a write fail half-way, where nothing can be mounted."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_rows_are_appended_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    files.append(path, [{"round": 1}])
    before = path.read_bytes()
    with no_file_longer_than(len(before) + 7), pytest.raises(OSError, match="too large") as raised:
        files.append(path, [{"round": 2}])
    assert raised.value.filename == str(path)
    assert path.read_bytes() == before
    files.append(path, [{"round": 2}])
    assert files.read_lines(path) == [{"round": 1}, {"round": 2}]


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, Saved(round=1, totals={}), {"x": torch.zeros(10)})
    with no_file_longer_than(1000), pytest.raises(OSError, match="File too large") as raised:
        checkpoint.save(tmp_path, Saved(round=2, totals={}), {"x": torch.zeros(1000)})
    assert raised.value.filename == str(tmp_path / checkpoint.NAME)
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found[0].round == 1
    assert os.listdir(tmp_path) == [checkpoint.NAME]


def test_a_run_for_which_there_is_no_room_leaves_nothing_and_can_be_begun_again(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(ExperimentError, match=r"run cannot be made: No space left on device; name another directory$"):
        gossamer.simulate(EXPERIMENT, disk.path / "run", workers=1)
    assert os.listdir(disk.path) == ["filler"]
    disk.free()
    assert gossamer.simulate(EXPERIMENT, disk.path / "run", workers=1).result["rounds"] == 30


MOMENTS = {  # after which round the disk is full, how much is left, which file then is the first that does not fit
    "metrics": (3, 0, "metrics.jsonl", 1000),
    "ledger": (3, 0, "ledger.jsonl", 1000),
    "checkpoint": (3, 0, "checkpoint.safetensors", 5),
    "last checkpoint": (30, 0, "checkpoint.safetensors", 1000),
    "report": (30, 16384, "report.html", 1000),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_on_a_full_disk_says_how_to_go_on_and_ends_as_if_nothing_had_been(moment: str, disk: SmallDisk) -> None:
    after, free_bytes, name, checkpoint_every = MOMENTS[moment]
    experiment = replace(EXPERIMENT, wire=Wire(ledger=moment == "ledger"))
    run, told = disk.path / "run", []

    def on_round(metrics: dict) -> None:
        told.append(metrics)
        if metrics["round"] == after:
            disk.fill(free_bytes)

    with pytest.raises(
        OSError, match="No space left on device; free some space, then continue with: gossamer"
    ) as raised:
        gossamer.simulate(experiment, run, workers=1, checkpoint_every=checkpoint_every, on_round=on_round)
    assert raised.value.filename == str(run / name)
    assert str(raised.value.strerror).endswith(f"gossamer resume {run}")
    assert gossamer.open_run(run).metrics[: len(told)] == told
    assert not list(run.glob("*.partial"))
    disk.free()
    resumed, whole = gossamer.resume(run, workers=1), gossamer.simulate(experiment, workers=1)
    assert torch.equal(resumed.models, whole.models)
    assert [m["round"] for m in resumed.metrics] == list(range(1, 31))
    assert (run / "result.json").exists()
