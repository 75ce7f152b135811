"""Carry an experiment out in the simulator and keep what comes of it in a run's directory; continue one, or let it
settle."""

import errno
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from gossamer.core import Task
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import checkpoint, files, nodes
from gossamer.runs.checkpoint import Saved
from gossamer.runs.run import OnRound, Run, read_run, write_report
from gossamer.runs.weights import Weights
from gossamer.simulator.simulation import Simulation, Start


class StopRequest(Exception):  # noqa: N818 - it is not an error
    """The run was asked to stop, and did so after a complete round."""

    def __init__(self, run: "Run"):
        super().__init__(f"stopped after round {len(run.metrics)} of {run.document['rounds']}")
        self.run = run


def simulate(
    experiment: Experiment,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
    scratch: str | os.PathLike[str] | None = None,
    start: Start | None = None,
    task: Task | None = None,
) -> Run:
    """Carry an experiment out; with `out`, keep it in a new directory and save its state every so many rounds.

    With `scratch`, a directory, the nodes' models and states are kept in a file there while it runs, and not in memory.
    `start` is how several workers begin: "fork", as copies of this process, the default on Linux, or "spawn", as fresh
    interpreters that are told the experiment as TOML. `task` is what `experiment.load_task()` gave, if several runs are
    to have the data in common. None of this changes the result.
    Ctrl-C stops after the round that is under way, saves, and raises `StopRequest`; a second one stops at once.
    """
    if not isinstance(experiment, Experiment):
        raise ExperimentError(f"simulate takes an Experiment, {experiment!r} was given; recipes are in gs.recipes")
    _check_counts(workers=workers, checkpoint_every=checkpoint_every)
    directory = _path(out)
    if directory is not None and os.path.exists(directory):
        raise ExperimentError(
            f"{directory} exists already; name another directory, or continue it with gossamer resume"
        )
    experiment = experiment.with_digests()
    with (
        Simulation(
            experiment, workers, _path(scratch), start, task
        ) as simulation,  # refuses before a directory is made
        nullcontext() if directory is None else _new_directory(directory, experiment),
    ):
        return _carry_on(simulation, Run(experiment, directory=directory), checkpoint_every, on_round)


@contextmanager
def _new_directory(directory: Path, experiment: Experiment) -> Iterator[None]:
    """Made, locked, and with the experiment in it, or not there at all."""
    made = False
    with ExitStack() as held:
        try:
            directory.mkdir(parents=True)
            made = True
            held.enter_context(files.locked(directory))
            files.replace(directory / "experiment.toml", toml.dumps(experiment).encode())
            (directory / "metrics.jsonl").touch()
        except OSError as error:
            if made:
                shutil.rmtree(directory, ignore_errors=True)
            raise ExperimentError(f"{directory} cannot be made: {error.strerror}; name another directory") from error
        yield


def resume(
    directory: str | os.PathLike[str],
    experiment: Experiment | None = None,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
    scratch: str | os.PathLike[str] | None = None,
    start: Start | None = None,
    task: Task | None = None,
) -> Run:
    """Continue the run in a directory from its last checkpoint, to the same result as if it had never stopped.

    An experiment with classes of your own must be given again; else it is read from the directory.
    """
    _check_counts(workers=workers, checkpoint_every=checkpoint_every)
    directory = Path(directory)
    experiment = experiment and experiment.with_digests()
    files.read_document(directory)  # refuses what is no run, before a lock is put there
    finished = directory / "result.json"
    with nullcontext() if finished.exists() else files.locked(directory):
        if finished.exists():
            return _known(read_run(directory, experiment))
        found = checkpoint.load(directory)
        past = _known(read_run(directory, experiment, through=found[0].round if found else 0))
        toml.refuse_retired(files.read_document(directory))
        assert past.experiment is not None
        with Simulation(past.experiment.with_digests(), workers, _path(scratch), start, task) as simulation:
            if found is not None:
                _restore(simulation, past, *found)
            for name in ("metrics.jsonl", "ledger.jsonl"):  # later rounds are run again
                if (directory / name).exists():
                    kept = files.read_lines(directory / name, simulation.round)
                    with _advice(directory):
                        files.replace(directory / name, files.lines(kept))
            return _carry_on(simulation, past, checkpoint_every, on_round)


def run_or_resume(
    experiment: Experiment,
    directory: Path,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
    task: Task | None = None,
) -> Run:
    """The run in this directory: made, continued, or read if it is complete."""
    if directory.exists() and not (directory / "experiment.toml").exists():
        shutil.rmtree(directory)  # it was killed while it was being made
    if directory.exists():
        return resume(directory, experiment, workers, checkpoint_every, on_round, task=task)
    return simulate(experiment, directory, workers, checkpoint_every, on_round, task=task)


def settle(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str],
    rounds: int = 8,
    experiment: Experiment | None = None,
    workers: int | None = None,
    on_round: OnRound | None = None,
) -> Run:
    """Let the models of a complete run settle: so many more rounds, without training, kept in a new directory.

    An experiment with classes of your own must be given again; else it is read from the directory.
    """
    _check_counts(workers=workers, rounds=rounds)
    directory, out = Path(directory), Path(out)
    past = _known(read_run(directory, experiment and experiment.with_digests()))
    found = checkpoint.load(directory)
    if found is None or not (directory / "result.json").exists():
        raise ExperimentError(f"{directory} is not complete; continue it with gossamer resume, and let it settle then")
    if os.path.exists(out):
        raise ExperimentError(f"{out} exists already; name another directory")
    assert past.experiment is not None
    total = past.experiment.rounds + rounds
    longer = replace(past.experiment, rounds=total, settle=total - past.experiment.training_rounds).with_digests()
    with Simulation(longer, workers) as simulation, _new_directory(out, longer):
        saved, tensors = found
        checkpoint.check_tensors(directory, tensors, simulation.save())
        simulation.restore(tensors, saved.round, saved.totals)
        for name in ("metrics.jsonl", "ledger.jsonl"):
            if (directory / name).exists():
                files.replace(out / name, (directory / name).read_bytes())
        return _carry_on(simulation, Run(longer, past.metrics, out), rounds, on_round)


def _known(run: Run) -> Run:
    if run.experiment is None:
        assert run.directory is not None
        raise ExperimentError(
            f"{run.directory / 'experiment.toml'} names a class of your own; resume it from Python with "
            "gossamer.resume(directory, experiment)"
        )
    return run


@contextmanager
def _advice(directory: Path) -> Iterator[None]:
    """Say what to do about a file that cannot be written."""
    try:
        yield
    except OSError as error:
        mend = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "mend that"
        advice = f"{mend}, then continue with: gossamer resume {shlex.quote(str(directory))}"
        raise OSError(error.errno, f"{error.strerror}; {advice}", error.filename) from error


def _save(simulation: Simulation, run: Run) -> None:
    assert run.directory is not None
    for name in ("metrics.jsonl", "ledger.jsonl"):
        if (run.directory / name).exists():
            files.to_disk(run.directory / name)  # before the checkpoint that counts on them
    saved = Saved(round=simulation.round, totals=simulation.totals, experiment=run.document)
    checkpoint.save(run.directory, saved, simulation.save())


def _restore(simulation: Simulation, run: Run, saved: Saved, tensors: dict[str, Tensor]) -> None:
    """Continue from this checkpoint; refused if it is not whole, or not this run's."""
    assert run.directory is not None
    if saved.experiment is None:
        checkpoint.damaged(run.directory, "it is not that of a simulation")
    if changed := toml.differences(saved.experiment, run.document):
        raise ExperimentError(
            f"{', '.join(changed)} in {run.directory / 'experiment.toml'} changed after the checkpoint was made; "
            "change it back, or start a new run"
        )
    checkpoint.check_tensors(run.directory, tensors, simulation.save())
    if saved.round > run.document["rounds"] or saved.totals.keys() != simulation.totals.keys():
        checkpoint.damaged(run.directory, f"round {saved.round}, totals {saved.totals}")
    if saved.round > len(run.metrics):
        files.damaged(run.directory / "metrics.jsonl", f"it ends before round {saved.round}, which was saved")
    simulation.restore(tensors, saved.round, saved.totals)


def _carry_on(simulation: Simulation, run: Run, checkpoint_every: int, on_round: OnRound | None) -> Run:
    experiment, directory = simulation.experiment, run.directory
    if directory is not None and not (directory / nodes.NAME).exists():
        with _advice(directory):
            files.replace(directory / nodes.NAME, simulation.nodes().dumps())
    with stop_requests() as stop_requested:
        while simulation.round < experiment.rounds:
            metrics = simulation.step()
            run.metrics.append(metrics)
            stopping = stop_requested()  # looked at once: what comes later in this round stops after the next, saved
            if directory is not None:
                with _advice(directory):
                    files.append(directory / "metrics.jsonl", [metrics])
                    if experiment.wire.ledger:
                        files.append(directory / "ledger.jsonl", simulation.ledger())
                    if simulation.round % checkpoint_every == 0 or stopping:
                        _save(simulation, run)
            if on_round is not None:
                on_round(metrics)
            if stopping and simulation.round < experiment.rounds:
                raise StopRequest(run)
        run.weights = Weights(simulation.models(), simulation.save().get("buffers"), simulation.round)
        if directory is not None:
            with _advice(directory):
                _save(simulation, run)
                write_report(directory / "report.html", [run])
                files.replace(directory / "result.json", json.dumps(run.result, indent=2).encode() + b"\n")
    return run


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came; a second one acts at once. Elsewhere than in the main thread: never."""
    requested = False

    def request(number: int, frame: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    try:
        before = [(s, signal.signal(s, request)) for s in (signal.SIGINT, signal.SIGTERM)]
    except ValueError:
        before = []
    try:
        yield lambda: requested
    finally:
        for s, handler in before:
            signal.signal(s, handler)


def _path(given: str | os.PathLike[str] | None) -> Path | None:
    return None if given is None else Path(given)


def _check_counts(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and (type(value) is not int or value < 1):
            raise ExperimentError(f"{name} must be a whole number, at least 1, {value!r} was given")
