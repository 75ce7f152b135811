"""Carry an experiment out in the simulator and keep what comes of it in a run's directory; continue one, or let it
settle."""

import errno
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer.core import Task
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import checkpoint, files, nodes
from gossamer.runs.callbacks import Callback, called
from gossamer.runs.checkpoint import Saved
from gossamer.runs.run import OnRound, Run, read_run, write_report
from gossamer.runs.weights import Weights
from gossamer.simulator.ranks import OneRank, Ranks
from gossamer.simulator.simulation import Simulation, Start
from gossamer.wire import resync


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
    callbacks: Sequence[Callback] = (),
    ranks: Ranks | None = None,
) -> Run:
    """Carry an experiment out; with `out`, keep it in a new directory and save its state every so many rounds.

    With `scratch`, a directory, the nodes' models and states are kept in a file there while it runs, and not in memory.
    `start` is how several workers begin: "fork", as copies of this process, the default on Linux, or "spawn", as fresh
    interpreters that are told the experiment as TOML. `task` is what `experiment.load_task()` gave, if several runs are
    to have the data in common. With `ranks` this process is one of several that host the nodes (docs/cluster.md); `out`
    is then a directory that all of them see. None of this changes the result.
    After every round each of the `callbacks` is called with the run so far, and `on_round` with the round's metrics; a
    callback that returns True ends the run there, as if it had no more rounds.
    Ctrl-C stops after the round that is under way, saves, and raises `StopRequest`; a second one stops at once.
    """
    if not isinstance(experiment, Experiment):
        raise ExperimentError(f"simulate takes an Experiment, {experiment!r} was given; recipes are in gs.recipes")
    _check_counts(workers=workers, checkpoint_every=checkpoint_every)
    _check_callbacks(callbacks)
    directory, ranks = _path(out), ranks or OneRank()
    if ranks.number == 1:
        refuse_existing(directory)
    experiment = experiment.with_digests()
    with Simulation(experiment, workers, _path(scratch), start, task, ranks) as simulation, ExitStack() as held:
        if ranks.number > 1:
            simulation.begin(_settings(out, checkpoint_every))
        with ranks.together():  # what cannot work is refused before a directory is made
            if directory is not None and ranks.rank == 0:
                refuse_existing(directory)
                held.enter_context(_new_directory(directory, experiment))
        run = Run(experiment, directory=directory)
        return _carry_on(simulation, run, checkpoint_every, on_round, callbacks)


def refuse_existing(directory: Path | None) -> None:
    if directory is not None and os.path.exists(directory):
        raise ExperimentError(
            f"{directory} exists already; name another directory, or continue it with gossamer resume"
        )


def _settings(directory: object, checkpoint_every: int) -> dict[str, str]:
    """What ranks must have in common beside the experiment."""
    return {"directory": str(directory), "--checkpoint-every": str(checkpoint_every)}


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
    callbacks: Sequence[Callback] = (),
    ranks: Ranks | None = None,
) -> Run:
    """Continue the run in a directory from its last checkpoint, to the same result as if it had never stopped.

    An experiment with classes of your own must be given again; else it is read from the directory.
    """
    _check_counts(workers=workers, checkpoint_every=checkpoint_every)
    _check_callbacks(callbacks)
    directory, ranks = Path(directory), ranks or OneRank()
    experiment = experiment and experiment.with_digests()
    files.read_document(directory)  # refuses what is no run, before a lock is put there
    finished = directory / "result.json"
    if finished.exists():
        return _known(read_run(directory, experiment))
    with ExitStack() as held:
        if ranks.number == 1:
            held.enter_context(files.locked(directory))
        saved = checkpoint.peek(directory)
        past = _known(read_run(directory, experiment, through=saved.round if saved else 0))
        toml.refuse_retired(files.read_document(directory))
        assert past.experiment is not None
        known = past.experiment.with_digests()
        simulation = held.enter_context(Simulation(known, workers, _path(scratch), start, task, ranks))
        if ranks.number > 1:
            simulation.begin(_settings(directory, checkpoint_every) | {"checkpoint": str(saved and saved.round)})
        with ranks.together():
            if ranks.number > 1 and ranks.rank == 0:
                held.enter_context(files.locked(directory))
            if saved is not None:
                _restore(simulation, past, saved.round)
        with ranks.together():
            for name in ("metrics.jsonl", "ledger.jsonl"):  # later rounds are run again
                if ranks.rank == 0 and (directory / name).exists():
                    kept = files.read_lines(directory / name, simulation.round)
                    with _advice(directory):
                        files.replace(directory / name, files.lines(kept))
        return _carry_on(simulation, past, checkpoint_every, on_round, callbacks)


def run_or_resume(
    experiment: Experiment,
    directory: Path,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
    task: Task | None = None,
    ranks: Ranks | None = None,
) -> Run:
    """The run in this directory: made, continued, or read if it is complete."""
    if directory.exists() and not (directory / "experiment.toml").exists():
        shutil.rmtree(directory, ignore_errors=ranks is not None)  # it was killed while it was being made
    if directory.exists():
        return resume(directory, experiment, workers, checkpoint_every, on_round, task=task, ranks=ranks)
    return simulate(experiment, directory, workers, checkpoint_every, on_round, task=task, ranks=ranks)


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
    saved, tensors = found
    total = saved.round + rounds  # a callback may have ended it before its last round
    trained = min(saved.round, past.experiment.training_rounds)
    longer = replace(past.experiment, rounds=total, settle=total - trained).with_digests()
    with Simulation(longer, workers) as simulation, _new_directory(out, longer):
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
        if simulation.ranks.rank == 0 and (run.directory / name).exists():
            files.to_disk(run.directory / name)  # before the checkpoint that counts on them
    saved, ranks = Saved(round=simulation.round, totals=simulation.totals, experiment=run.document), simulation.ranks
    if ranks.number == 1:
        checkpoint.save(run.directory, saved, simulation.save())
        return
    with ranks.together():
        checkpoint.save_shard(run.directory, saved, simulation.save(), ranks.rank, ranks.number)
    with ranks.together():
        if ranks.rank == 0:
            checkpoint.commit(run.directory, saved, simulation.placement)


def _restore(simulation: Simulation, run: Run, round: int) -> None:
    """Continue from the checkpoint of this round; refused if it is not whole, or not this run's."""
    assert run.directory is not None
    nodes = simulation.nodes_to_restore(round)
    found = checkpoint.load(run.directory, nodes)
    assert found is not None
    saved, tensors = found
    tensors = resync.by_link(tensors)
    if saved.experiment is None:
        checkpoint.damaged(run.directory, "it is not that of a simulation")
    if changed := toml.differences(saved.experiment, run.document):
        raise ExperimentError(
            f"{', '.join(changed)} in {run.directory / 'experiment.toml'} changed after the checkpoint was made; "
            "change it back, or start a new run"
        )
    checkpoint.check_tensors(run.directory, tensors, simulation.restorable(nodes))
    if saved.round > run.document["rounds"] or saved.totals.keys() != simulation.totals.keys():
        checkpoint.damaged(run.directory, f"round {saved.round}, totals {saved.totals}")
    if saved.round > len(run.metrics):
        files.damaged(run.directory / "metrics.jsonl", f"it ends before round {saved.round}, which was saved")
    simulation.restore(tensors, saved.round, saved.totals, nodes)


def _carry_on(
    simulation: Simulation,
    run: Run,
    checkpoint_every: int,
    on_round: OnRound | None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    def now() -> tuple[Task, Weights]:
        return simulation.task, Weights(simulation.models(), simulation.save().get("buffers"), simulation.round)

    run.now = now
    try:
        return _rounds(simulation, run, checkpoint_every, on_round, callbacks)
    finally:
        run.now = None


def _rounds(
    simulation: Simulation, run: Run, checkpoint_every: int, on_round: OnRound | None, callbacks: Sequence[Callback]
) -> Run:
    experiment, directory, ranks = simulation.experiment, run.directory, simulation.ranks
    if directory is not None and ranks.rank == 0 and not (directory / nodes.NAME).exists():
        with _advice(directory):
            files.replace(directory / nodes.NAME, simulation.nodes().dumps())
    with stop_requests() as stop_requested:
        while simulation.round < experiment.rounds:
            metrics = simulation.step()
            run.metrics.append(metrics)
            stopping = ranks.any(stop_requested())  # looked at once: what comes later stops after the next round, saved
            if directory is not None:
                with _advice(directory):
                    with ranks.together():
                        _append(directory, simulation, metrics)
                    if simulation.round % checkpoint_every == 0 or stopping:
                        _save(simulation, run)
            ends = bool(callbacks) and _ends(simulation, run, callbacks)
            if on_round is not None:  # after the callbacks: one that ends the run has its last round evaluated
                on_round(metrics)
            if ends:
                break
            if stopping and simulation.round < experiment.rounds:
                raise StopRequest(run)
        if ranks.number == 1:  # else they are read from the checkpoint
            run.weights = run.under_way()[1]
        if directory is not None:
            with _advice(directory):
                _save(simulation, run)
                with ranks.together():
                    _conclude(directory, run, ranks)
    return run


def _ends(simulation: Simulation, run: Run, callbacks: Sequence[Callback]) -> bool:
    """Does a callback end the run, in any rank? Then its last round is evaluated, if it was not yet. If one fails, all
    is saved."""
    ranks = simulation.ranks
    try:
        with ranks.together():
            ends = called(callbacks, run)
    except Exception:
        if run.directory is not None:
            _save(simulation, run)
        raise
    ends = ranks.any(ends)
    if ends and "test_loss" not in run.metrics[-1]:
        run.metrics[-1] |= simulation.evaluate()
        if run.directory is not None:
            with _advice(run.directory), ranks.together():
                if ranks.rank == 0:
                    files.replace(run.directory / "metrics.jsonl", files.lines(run.metrics))
    return ends


def _check_callbacks(callbacks: Sequence[Callback]) -> None:
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ExperimentError(f"callbacks must be a list of functions of the run, {callbacks!r} was given")


def _append(directory: Path, simulation: Simulation, metrics: dict[str, Any]) -> None:
    """What a round adds to the run's files."""
    if simulation.ranks.rank == 0:
        files.append(directory / "metrics.jsonl", [metrics])
        if simulation.experiment.wire.ledger:
            files.append(directory / "ledger.jsonl", simulation.ledger())


def _conclude(directory: Path, run: Run, ranks: Ranks) -> None:
    """The files of a run that is complete."""
    if ranks.rank == 0:
        write_report(directory / "report.html", [run])
        files.replace(directory / "result.json", json.dumps(run.result, indent=2).encode() + b"\n")


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
