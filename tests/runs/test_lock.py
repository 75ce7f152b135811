"""A run's directory belongs to one process at a time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gossamer
from contract import QUADRATIC
from gossamer import ExperimentError
from gossamer.runs import files

REFUSED = "is in use by another process; wait until that has ended, or name another directory$"


def test_a_lock_keeps_all_others_out_until_it_is_given_back(tmp_path: Path) -> None:
    with files.locked(tmp_path):
        for _ in range(3):
            with pytest.raises(ExperimentError, match=REFUSED), files.locked(tmp_path):
                pass
    with files.locked(tmp_path):
        pass


def test_the_lock_of_a_directory_is_for_its_user_only(tmp_path: Path) -> None:
    with files.locked(tmp_path):
        assert (tmp_path / files.LOCK).stat().st_mode & 0o777 == 0o600


def test_a_lock_that_fails_for_another_reason_says_which(tmp_path: Path) -> None:
    closed = os.open(os.devnull, os.O_RDONLY)
    os.close(closed)
    with pytest.raises(ExperimentError, match="lock cannot be locked: Bad file descriptor; mend that"):
        files._lock(closed, tmp_path)


def test_a_forked_process_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    there, here = os.pipe()
    with files.locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.write(here, b".")
            time.sleep(600)
            os._exit(0)
        os.read(there, 1)  # it runs
        with pytest.raises(ExperimentError, match=REFUSED), files.locked(tmp_path):
            pass
    try:
        with files.locked(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(there)
        os.close(here)


PROGRAM = """
import sys, time
from dataclasses import replace
import gossamer
from contract import QUADRATIC
from gossamer.graphs.topologies import Ring

def on_round(metrics):
    if metrics["round"] == 3:
        print("running", flush=True)
        time.sleep(600)

gossamer.simulate(replace(QUADRATIC, topology=Ring()), sys.argv[1], workers=2, checkpoint_every=2, on_round=on_round)
"""


def test_a_run_that_is_under_way_cannot_be_resumed_and_one_that_was_killed_can_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(run)], env=environment, stdout=subprocess.PIPE
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"running\n"
            before = {path.name: path.read_bytes() for path in run.iterdir()}
            for _ in range(5):
                with pytest.raises(ExperimentError, match=REFUSED):
                    gossamer.resume(run, workers=1)
            assert {path.name: path.read_bytes() for path in run.iterdir()} == before
            assert len(gossamer.open_run(run).metrics) == 3, "it can be looked at"
        finally:
            running.kill()
    assert gossamer.resume(run, workers=1).result["rounds"] == QUADRATIC.rounds


def test_a_run_that_is_finished_is_opened_without_a_lock(tmp_path: Path) -> None:
    run = gossamer.simulate(QUADRATIC, tmp_path / "run", workers=1)
    with files.locked(tmp_path / "run"):
        assert gossamer.resume(tmp_path / "run").result == run.result
