"""A sweep as jobs, by submitit's executor for one machine."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

import gossamer
from gossamer import Experiment, ExperimentError, Quadratic
from gossamer.cluster.slurm import SlurmPool
from gossamer.graphs.topologies import Ring
from gossamer.simulator.run_pool import Tasks
from gossamer.simulator.sweep import carry_out, planned

NUM_RUNS = 12


def jobs_of(directory: Path) -> list[int]:
    """The processes that run jobs of this sweep."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"submitit.core._submit" in words and os.fsencode(directory / "jobs") in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_a_sweep_of_twelve_jobs_is_complete_though_one_is_preempted_and_one_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    base = Experiment(name="tiny", nodes=4, rounds=300, task=Quadratic(), topology=Ring(), local_steps=2)
    plan, out, news = planned(base, NUM_RUNS), tmp_path / "sweep", []
    signalled: list[signal.Signals] = []

    def disturb() -> None:
        """One job is preempted, another killed, both in the middle of their rounds."""
        done: set[Path] = set()
        while len(signalled) < 2:
            time.sleep(0.02)
            for run in plan.runs(out):
                lines = run.directory / "metrics.jsonl"
                begun = lines.exists() and lines.stat().st_size > 0 and not run.is_complete
                if begun and run.directory not in done and (found := owners(run.directory)):
                    done.add(run.directory)
                    signalled.append(signal.SIGUSR2 if not signalled else signal.SIGKILL)
                    os.kill(found[0], signalled[-1])
                    break

    def owners(directory: Path) -> list[int]:
        lock = (directory / "lock").stat().st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        holders = {int(words[4]) for words in locks if words[5].endswith(f":{lock}")}
        return [pid for pid in jobs_of(out) if pid in holders]

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    pool = partial(SlurmPool, seconds_between_looks=0.05)
    found = carry_out(plan, out, 3, 20, on_news=news.append, pool=pool)
    thread.join(1)
    assert signalled == [signal.SIGUSR2, signal.SIGKILL]
    assert not found.failures
    assert len(found.runs) == NUM_RUNS
    assert [event.what for event in news].count("complete") == NUM_RUNS
    for run in found.runs:
        assert [row["round"] for row in run.metrics] == list(range(1, 301))
        alone = gossamer.simulate(run.experiment, workers=1)
        assert run.models_sha256 == alone.models_sha256


def test_settings_that_submitit_does_not_take_are_refused(tmp_path: Path) -> None:
    pool = SlurmPool(tmp_path, Tasks(), {}, 100, lambda news: None, {"gears": 5})
    with pytest.raises(ExperimentError, match=r"--slurm-set: .*gears"):
        pool.run([], 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--slurm-set", "timeout_min=5"], "--slurm-set is for jobs of Slurm; give --slurm, too"),
        (["--slurm", "--slurm-set", "timeout_min"], "write KEY=VALUE, such as timeout_min=60"),
    ],
)
def test_misuse_is_one_sentence(options: list[str], told: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gossamer", "sweep", "jwins-digits", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr
