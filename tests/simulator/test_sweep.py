"""Sweeps: many runs beside each other, which can be stopped, killed and carried on."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import gossamer as gs
from contract import QUADRATIC
from gossamer import Comparison, ExperimentError
from gossamer.runs import files
from gossamer.simulator import run_pool, simulation, sweep
from gossamer.simulator.compare import _by_seed
from gossamer.simulator.run_pool import News
from gossamer.simulator.worker_pool import WorkerError

SHORT = replace(QUADRATIC, rounds=4, seed=0)
SETTINGS = {"full": SHORT, "jwins": replace(SHORT, algorithm=gs.Jwins())}
DIVERGING = replace(SHORT, optimizer=gs.Optimizer(learning_rate=1e30))


def without_times(found: Comparison) -> list[dict]:
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in found.rows()]


def test_runs_of_a_sweep_are_those_that_simulate_gives_whatever_the_number_of_jobs(tmp_path: Path) -> None:
    one, two = (gs.sweep(SETTINGS, tmp_path / str(jobs), seeds=2, jobs=jobs) for jobs in (1, 2))
    assert without_times(one) == without_times(two)
    assert [(setting.name, setting.seeds) for setting in two.settings] == [("full", (0, 1)), ("jwins", (0, 1))]
    alone = gs.simulate(replace(SETTINGS["jwins"], seed=1))
    for key in ("distance_mean", "bytes_total", "train_loss"):
        assert alone.result[key] == two.settings[1].runs[1].result[key]
    kept = {path.name for path in (tmp_path / "2").iterdir()}
    assert kept == {
        *(f"{name}-seed-{seed}" for name in SETTINGS for seed in (0, 1)),
        *("sweep.toml", "failures.json", "report.html", "lock"),
    }


@dataclass(frozen=True)
class CountedQuadratic(gs.Quadratic):
    """Notes in a file each time that it is loaded, in whatever process."""

    notes: str = ""

    def load(self) -> gs.Quadratic:
        with open(self.notes, "a") as file:
            file.write("loaded\n")
        return self


def test_the_data_that_runs_share_are_read_once(tmp_path: Path) -> None:
    task = CountedQuadratic(dimension=53, num_samples=210, notes=str(tmp_path / "notes"))
    settings = {name: replace(experiment, task=task) for name, experiment in SETTINGS.items()}
    gs.sweep(settings, tmp_path / "sweep", seeds=2, jobs=2)
    assert (tmp_path / "notes").read_text() == "loaded\n"


def test_a_sweep_that_was_stopped_is_carried_on_without_doing_anything_twice(tmp_path: Path) -> None:
    longer = {name: replace(experiment, rounds=40) for name, experiment in SETTINGS.items()}
    whole = gs.sweep(longer, tmp_path / "whole", seeds=2, jobs=2)
    events: Counter[str] = Counter()

    def stop_in_the_third_run(news: News) -> None:
        events[news.what] += 1
        if news.what == "round" and events["started"] == 3:
            os.kill(os.getpid(), signal.SIGINT)
            events["started"] += 100  # once

    with pytest.raises(KeyboardInterrupt):
        gs.sweep(longer, tmp_path / "stopped", seeds=2, jobs=1, on_news=stop_in_the_third_run)
    complete = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").glob("*/result.json")}
    assert (len(complete), events["complete"], events["stopped"]) == (2, 2, 1)
    assert len(list((tmp_path / "stopped").glob("*/checkpoint.safetensors"))) == 3  # the third saved its state
    seen: list[News] = []
    found = gs.sweep(longer, tmp_path / "stopped", seeds=2, jobs=2, on_news=seen.append)
    assert without_times(found) == without_times(whole)
    assert Counter(news.what for news in seen if news.what != "round") == {
        "kept": 2,
        "waiting": 2,
        "preparing": 1,  # both are of one setting
        "started": 2,
        "complete": 2,
    }
    rounds = [news.metrics["round"] for news in seen if news.metrics and news.run.name == "jwins, seed 0"]
    assert rounds[0] > 1  # continued from where it was
    assert {path: path.stat().st_mtime_ns for path in complete} == complete


KILLED = """
import sys
from gossamer.cli.main import main
sys.argv = ["gossamer", "sweep", "jwins-digits", "--set", "task.hidden=4", "--set", "evaluation.every=4",
    "--rounds", "8", "--grid", "algorithm.name=jwins,silk", "--grid", "optimizer.learning_rate=0.05,0.1,0.2",
    "--seeds", "3", "--checkpoint-every", "2", "--jobs", "2", "--out", sys.argv[1]]
main()
"""


@pytest.mark.slow
def test_a_sweep_that_was_killed_half_way_gives_the_table_of_one_that_was_not(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(out)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(list(out.glob("*/result.json"))) < 8:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert 8 <= len(list(out.glob("*/result.json"))) < 18
    base = replace(gs.recipes.jwins_digits(), rounds=8, task=gs.Digits(hidden=4))
    base = replace(base, evaluation=replace(base.evaluation, every=4))
    settings = gs.grid(base, {"algorithm.name": ["jwins", "silk"], "optimizer.learning_rate": [0.05, 0.1, 0.2]})
    found = gs.sweep(settings, out, seeds=3, jobs=2)
    undisturbed = gs.sweep(settings, tmp_path / "undisturbed", seeds=3, jobs=2)
    assert without_times(found) == without_times(undisturbed)
    assert [len(setting.runs) for setting in found.settings] == [3] * 6
    assert not found.failures


@pytest.mark.slow
def test_a_run_dies_with_the_process_that_began_it_and_holds_no_lock(tmp_path: Path) -> None:
    program = (
        "import os, signal, gossamer as gs\n"
        "experiment = gs.Experiment(task=gs.Quadratic(), rounds=100000)\n"
        "def kill(news):\n"
        "    if news.what == 'round': os.kill(os.getpid(), signal.SIGKILL)\n"
        f"gs.sweep(experiment, {str(tmp_path / 'sweep')!r}, jobs=1, on_news=kill)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60)
    assert done.returncode == -signal.SIGKILL
    (run,) = (tmp_path / "sweep").glob("*-seed-0")
    for attempt in range(100):
        try:
            with files.locked(run), files.locked(tmp_path / "sweep"):
                return
        except ExperimentError:
            assert attempt < 99
            time.sleep(0.05)


def test_a_run_that_diverges_is_told_and_stops_no_other(tmp_path: Path) -> None:
    settings = {"diverging": DIVERGING, **SETTINGS}
    found = gs.sweep(settings, tmp_path / "sweep", seeds=2, jobs=2)
    assert [setting.name for setting in found.settings] == ["full", "jwins"]
    assert list(found.failures) == ["diverging, seed 0", "diverging, seed 1"]
    assert "learning_rate would help" in found.failures["diverging, seed 0"]
    assert found.baseline == "diverging"  # the first; it has no result, so there is no difference to it
    assert [setting.difference for setting in found.settings] == [None, None]
    seen: list[str] = []
    again = gs.sweep(settings, tmp_path / "sweep", seeds=2, on_news=lambda news: seen.append(news.what))
    assert seen == ["preparing", *["kept"] * 6]  # what failed is looked at again
    assert again.failures == found.failures


def test_a_sweep_without_any_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"no run of .* is complete; experiment, seed 0: .*learning_rate would help"):
        gs.sweep({"experiment": DIVERGING}, tmp_path / "sweep")


def test_a_run_whose_process_dies_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(run: object, *rest: object) -> tuple[str, str]:
        if "full" in str(run):
            os.kill(os.getpid(), signal.SIGKILL)
        return carry_on(run, *rest)

    carry_on = run_pool.carry_on
    monkeypatch.setattr(run_pool, "carry_on", die)
    found = gs.sweep(SETTINGS, tmp_path / "sweep")
    assert found.failures == {"full, seed 0": "its process died (exit code -9)"}
    monkeypatch.undo()
    found = gs.sweep(SETTINGS, tmp_path / "sweep")
    assert not found.failures
    assert [setting.name for setting in found.settings] == ["full", "jwins"]


def test_without_forks_runs_follow_one_another_to_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = gs.sweep(SETTINGS, tmp_path / "forked")
    monkeypatch.setattr(simulation, "default_start", lambda: "spawn")
    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", None)
    assert without_times(gs.sweep(SETTINGS, tmp_path / "one by one")) == without_times(forked)


def test_a_directory_has_one_sweep_which_may_grow(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    gs.sweep({"full": SHORT}, out)
    grown = gs.sweep(SETTINGS, out, seeds=2)
    assert [setting.seeds for setting in grown.settings] == [(0, 1), (0, 1)]
    with pytest.raises(ExperimentError, match=r"has another sweep: that one has the seeds 0, 1; name a new directory"):
        gs.sweep(SETTINGS, out, seeds=1)
    with pytest.raises(ExperimentError, match="has another sweep: jwins is not in this one, or is another experiment"):
        gs.sweep({"full": SHORT}, out, seeds=2)
    other = {**SETTINGS, "jwins": replace(SHORT, algorithm=gs.Jwins(budget=0.1))}
    with pytest.raises(ExperimentError, match="has another sweep: jwins is not in this one, or is another experiment"):
        gs.sweep(other, out, seeds=2)


def test_a_sweep_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    sweep.planned({"full": SHORT}, 1).write(tmp_path / "sweep")
    with files.locked(tmp_path / "sweep"), pytest.raises(ExperimentError, match="is in use by another process"):
        gs.sweep({"full": SHORT}, tmp_path / "sweep")


def test_settings_that_cannot_work_are_refused_before_anything_runs_or_left_out(tmp_path: Path) -> None:
    settings = {"odd": replace(SHORT, topology=gs.RandomRegular(degree=3)), **SETTINGS}  # of seven nodes
    with pytest.raises(ExperimentError, match=r"^odd: topology: .*; --skip-invalid leaves such settings out$"):
        gs.sweep(settings, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    found = gs.sweep(settings, tmp_path / "sweep", skip_invalid=True)
    assert [setting.name for setting in found.settings] == ["full", "jwins"]
    with pytest.raises(ExperimentError, match="the baseline odd cannot work"):
        gs.sweep(settings, tmp_path / "other", baseline="odd", skip_invalid=True)


def test_experiments_without_names_are_called_by_what_differs(tmp_path: Path) -> None:
    found = gs.sweep(list(SETTINGS.values()), tmp_path / "sweep", baseline="algorithm.name=jwins")
    assert [setting.name for setting in found.settings] == ["dpsgd", "jwins"]
    assert found.baseline == "jwins"
    with pytest.raises(ExperimentError, match="experiment was given twice; a sweep has each setting once"):
        gs.sweep([SHORT, replace(SHORT, seed=4)], tmp_path / "other")


@pytest.mark.parametrize(
    ("cores", "runs", "free", "jobs", "expected"),
    [
        (4, 18, 1 << 40, None, (4, 1)),  # one run per core
        (4, 2, 1 << 40, None, (2, 2)),  # cores are divided among few runs
        (4, 18, 5 << 30, None, (2, 2)),  # half of the memory holds two
        (4, 18, 1 << 20, None, (1, 4)),  # one always runs
        (4, 18, None, None, (4, 1)),  # the system does not say
        (4, 18, 1 << 20, 8, (8, 1)),  # as the user wants it
    ],
)
def test_runs_go_side_by_side_as_cores_and_memory_allow(
    cores: int,
    runs: int,
    free: int | None,
    jobs: int | None,
    expected: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation, "default_workers", lambda: cores)
    monkeypatch.setattr(sweep, "free_bytes", lambda: free)
    assert sweep.division(jobs, runs, 1 << 30) == expected


def test_what_a_run_takes_grows_with_nodes_and_copies_of_the_model() -> None:
    def size(**changes: object) -> int:
        prepared = simulation.PreparedExperiment.of(replace(SHORT, **changes))
        return sweep._run_bytes(prepared) - sweep.PROCESS_BYTES

    model = 4 * 53
    assert size() == 7 * (model + 5 * 53 + model)  # the state, the message with room for marks, the gradients
    assert size(nodes=14) == 2 * size()
    assert size(algorithm=gs.Jwins()) > 1.5 * size()


def test_runs_and_sweeps_are_compared_with_experiments_that_are_run_first(tmp_path: Path) -> None:
    done = gs.simulate(SETTINGS["full"], tmp_path / "run")
    gs.sweep({"few": SETTINGS["jwins"]}, tmp_path / "sweep", seeds=2)
    silk = replace(SHORT, algorithm=gs.Silk())
    found = gs.compare(done, tmp_path / "sweep", silk, out=tmp_path / "new", seeds=2)
    assert [(s.name, s.seeds) for s in found.settings] == [("dpsgd", (0,)), ("jwins", (0, 1)), ("silk", (0, 1))]
    assert found.settings[1].difference is not None
    assert found.settings[1].difference.seeds == (0,)  # the only one that both have
    worst = max(setting.metric.mean for setting in found.settings)  # a distance: smaller is better
    assert found.target == pytest.approx(worst)
    assert all(setting.to_target for setting in found.settings)
    assert found.differing["algorithm.name"] == ["dpsgd", "jwins", "silk"]
    alone = gs.compare(tmp_path / "sweep")
    assert [setting.name for setting in alone.settings] == ["few"]


def test_what_cannot_be_compared_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = gs.simulate(SHORT, tmp_path / "run")
    with pytest.raises(ExperimentError, match="experiment was given twice with one seed; give each run once"):
        gs.compare(done, tmp_path / "run")
    with pytest.raises(ExperimentError, match=r"is not a run: it has no experiment.toml"):
        gs.compare(tmp_path)
    with pytest.raises(ExperimentError, match="need a directory; give it as out"):
        gs.compare(SHORT)
    done.metrics.pop()
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ExperimentError, match="is not complete; continue it with gossamer resume"):
        gs.compare(done)
    with pytest.raises(ExperimentError, match="there is nothing to compare"):
        gs.compare()


def test_a_run_that_was_given_and_is_in_the_sweep_too_counts_once() -> None:
    given, again, other = (gs.Run(gs.Experiment(seed=seed)) for seed in (1, 1, 2))
    found = _by_seed([given, again, other])
    assert [id(run) for run in found] == [id(given), id(other)]
