"""Carry a sweep out: what is not complete in its directory, as many runs at a time as memory and cores allow."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from gossamer.core.state import tensors_of
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError, section
from gossamer.experiments.grid import refuse
from gossamer.runs import files
from gossamer.runs import sweep as sweeps
from gossamer.runs.comparison import Comparison, choose_baseline, compared
from gossamer.runs.run import Run, labels, read_run, write_report
from gossamer.runs.sweep import Failure, PlannedRun, Sweep, distinct
from gossamer.simulator import simulation
from gossamer.simulator.allocator import free_bytes
from gossamer.simulator.precompile import precompile
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.run_pool import News, OnNews, RunPool, Tasks
from gossamer.simulator.worker_pool import WorkerError

PROCESS_BYTES = 200 << 20  # of a run beside its models and states: about what training a small model takes


class Pool(Protocol):
    """Where runs are carried out."""

    def run(self, todo: Sequence[PlannedRun], jobs: int, workers: int) -> None:
        """So many at a time, with so many workers each."""


def sweep(
    experiments: Experiment | Sequence[Experiment] | Mapping[str, Experiment],
    out: str | os.PathLike[str],
    seeds: int | Sequence[int] = 1,
    baseline: str | Sequence[str] = (),
    jobs: int | None = None,
    checkpoint_every: int = 100,
    skip_invalid: bool = False,
    on_news: OnNews | None = None,
) -> Comparison:
    """Run each of these experiments with the same seeds, side by side, and compare them.

    `gs.grid` makes the experiments; given by name, they are called so. So many seeds count from that of the first
    experiment. `out` is a directory, new or of the same sweep: what is complete there is not run again, what was begun
    is continued, and there may be more settings and seeds than before. Runs that fail are left out and told in
    `failures`. `baseline` is a setting's name, or a value as in "algorithm.name=dpsgd". Ctrl-C saves and raises
    KeyboardInterrupt.
    """
    return carry_out(
        planned(experiments, seeds, baseline),
        Path(out),
        jobs,
        checkpoint_every,
        skip_invalid,
        on_news or (lambda news: None),
    )


def planned(
    experiments: Experiment | Sequence[Experiment] | Mapping[str, Experiment],
    seeds: int | Sequence[int],
    baseline: str | Sequence[str] = (),
) -> Sweep:
    """The sweep with these settings."""
    if isinstance(experiments, Experiment):
        experiments = [experiments]
    if not isinstance(experiments, Mapping):
        experiments = dict(zip(_names(experiments), experiments, strict=True))
    settings = {name: experiment.with_digests() for name, experiment in experiments.items()}
    if isinstance(seeds, int):
        if seeds < 1:
            raise ExperimentError(f"seeds must be at least 1, {seeds} was given")
        first = next((experiment.seed for experiment in settings.values()), 0)
        seeds = range(first, first + seeds)
    with section("seeds"):
        for seed in seeds:
            replace(next(iter(settings.values())), seed=seed)  # refuses what is none
    found = Sweep(settings, tuple(seeds))
    return replace(found, baseline=choose_baseline(found.documents(), baseline))


def _names(experiments: Sequence[Experiment]) -> list[str]:
    documents = [toml.write(experiment) | {"seed": 0} for experiment in experiments]
    for number, document in enumerate(documents):
        if document in documents[:number]:
            raise ExperimentError(
                f"{document['name']} was given twice; a sweep has each setting once, and its own seeds"
            )
    return distinct(labels([Run(experiment) for experiment in experiments]))


def carry_out(
    plan: Sweep,
    out: Path,
    jobs: int | None = None,
    checkpoint_every: int = 100,
    skip_invalid: bool = False,
    on_news: OnNews = lambda news: None,
    pool: Callable[[Path, Tasks, dict[str, Failure], int, OnNews], Pool] = RunPool,
) -> Comparison:
    """Run what is not complete in a directory, in processes of this machine or in another pool, and compare all."""
    if jobs is not None and jobs < 1:
        raise ExperimentError(f"jobs must be at least 1, {jobs} was given")
    if out.exists() and not sweeps.is_sweep(out):
        raise ExperimentError(f"{out} exists already, and is no sweep; name another directory")
    plan = plan.after(out) if out.exists() else plan
    with one_thread():
        tasks = Tasks()
        plan, largest = _checked(plan, out, tasks, skip_invalid, on_news)
        with _locked(out):
            plan.write(out)
            failures = {name: found for name, found in sweeps.read_failures(out).items() if found.final}
            sweeps.write_failures(out, failures)  # the others are tried again
            runs = list(plan.runs(out))
            todo = [run for run in runs if not run.is_complete and run.directory.name not in failures]
            for run in runs:
                on_news(News(run, "waiting" if run in todo else "kept"))
            jobs, workers = division(jobs, len(todo), largest)
            pool(out, tasks, failures, checkpoint_every, on_news).run(todo, jobs, workers)
            return _compared(plan, out, runs, failures)


def _compared(plan: Sweep, out: Path, runs: Sequence[PlannedRun], failures: Mapping[str, Failure]) -> Comparison:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.is_complete:
            groups.setdefault(run.setting, []).append(read_run(run.directory, run.experiment))
    told = {run.name: failures[run.directory.name].error for run in runs if run.directory.name in failures}
    if not groups:
        raise WorkerError(f"no run of {out} is complete; {next(iter(told))}: {next(iter(told.values()))}")
    baseline = next(iter(plan.settings)) if plan.baseline is None else plan.baseline
    found = compared(groups, baseline, failures=told, directory=out)
    write_report(
        out / "report.html", found.runs, " and ".join(dict.fromkeys(run.document["name"] for run in found.runs))
    )
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """As a simulation has it: forked processes of several threads do not work."""
    before = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_rng_state(before[1])


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"{directory} cannot be made: {error.strerror}; name another directory") from error
    with files.locked(directory):
        yield


def _checked(plan: Sweep, out: Path, tasks: Tasks, skip_invalid: bool, on_news: OnNews) -> tuple[Sweep, int]:
    """The sweep without what cannot work, and how many bytes its largest run takes; kernels are compiled here."""
    settings, largest = {}, PROCESS_BYTES
    left = {run.setting: run for run in plan.runs(out) if not run.is_complete}
    for name, experiment in plan.settings.items():
        if name not in left:
            settings[name] = experiment
            continue
        on_news(News(left[name], "preparing"))
        try:
            largest = max(largest, made_ready(replace(experiment, seed=plan.seeds[0]), tasks))
        except ExperimentError as error:
            if not skip_invalid:
                refuse(name, error)
            continue
        settings[name] = experiment
    if plan.baseline is not None and plan.baseline not in settings:
        raise ExperimentError(
            f"the baseline {plan.baseline} cannot work, and --skip-invalid leaves it out; name another"
        )
    return replace(plan, settings=settings), largest


def made_ready(experiment: Experiment, tasks: Tasks) -> int:
    """Compile what an experiment's runs need; about how many bytes one takes. ExperimentError if it cannot work."""
    prepared = PreparedExperiment.of(experiment, tasks.of(experiment))
    precompile(prepared.experiment, prepared.task, prepared.shards[0], experiment.wire.mode == "count")
    return _run_bytes(prepared)


def _run_bytes(prepared: PreparedExperiment) -> int:
    """About what a run takes: states, messages and gradients of all nodes, and the process."""
    experiment, task = prepared.experiment, prepared.task
    algorithm, size = experiment.optimizer.wrap(experiment.algorithm), sum(task.layer_sizes)
    one = algorithm.init(task.initial_model(experiment.seed)[None].clone())
    state = sum(tensor.numel() * tensor.element_size() for _, tensor in tensors_of(one))
    message = sum(5 * (size if spec.width is None else spec.width) for spec in algorithm.parts.values())
    return experiment.nodes * (state + message * experiment.delivery.kept + 4 * size) + PROCESS_BYTES


def division(jobs: int | None, num_runs: int, run_bytes: int) -> tuple[int, int]:
    """How many runs at a time, and how many workers each: one run per core, or as many as half of the free memory
    holds, with the cores divided among them."""
    cores = simulation.default_workers()
    if simulation.default_start() != "fork":
        return 1, cores  # a run in a process of its own would have to load everything again
    if jobs is None:
        fitting = (free_bytes() or sys.maxsize) // 2 // run_bytes
        jobs = max(1, min(cores, num_runs, fitting))
    return jobs, max(1, cores // jobs)
