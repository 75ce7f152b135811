"""A run: an experiment carried out, and the directory that keeps what came of it.

    experiment.toml      what was run
    metrics.jsonl        one line a round
    ledger.jsonl         one line a round and link, if the experiment asks for it
    checkpoint.safetensors   the state after the last round that was saved; `resume` continues from it
    result.json          the summary, once the run is complete
    report.html          tables and charts

Files other than the two .jsonl are written whole under another name and then renamed, so none is ever half there.
The .jsonl files reach the disk before the checkpoint that counts on them does.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import files, report
from gossamer.simulator.simulation import Simulation, Start
from gossamer.training.privacy import Privacy

Metrics = dict[str, Any]
OnRound = Callable[[Metrics], None]


class StopRequest(Exception):  # noqa: N818 - it is not an error
    """The run was asked to stop, and did so after a complete round."""

    def __init__(self, run: "Run"):
        super().__init__(f"stopped after round {len(run.metrics)} of {run.document['rounds']}")
        self.run = run


@dataclass
class Run:
    """What came of an experiment."""

    experiment: Experiment | None  # None: opened from a directory, and with classes of the user's own
    metrics: list[Metrics] = field(default_factory=list)  # one a round
    models: Tensor | None = None  # (n, D), at the end
    directory: Path | None = None
    document: toml.Document = field(default_factory=dict)  # the experiment as its file says it

    def __post_init__(self) -> None:
        if self.experiment is not None:
            self.document = toml.write(self.experiment)

    @property
    def result(self) -> Metrics:
        """The summary that `gossamer run --json` prints: the last evaluation, and the bytes of the whole run."""
        last = self.metrics[-1]
        evaluated = next(m for m in reversed(self.metrics) if "test_loss" in m)
        kinds = [kind for kind in ("header", "indices", "values", "resync") if f"bytes_{kind}" in last]
        total = {kind: sum(m[f"bytes_{kind}"] for m in self.metrics) for kind in kinds}
        left_out = ("round", "parts", "seconds")
        return {
            "name": self.document["name"],
            **{part: self.document[part]["name"] for part in ("algorithm", "task", "topology", "partition")},
            "seed": self.document["seed"],
            "nodes": self.document["nodes"],
            "rounds": last["round"],
            "strategy": self.metrics[0]["strategy"],
            **{k: v for k, v in evaluated.items() if k not in left_out and not k.startswith("bytes_")},
            "metric": next(k.removesuffix("_mean") for k in evaluated if k.endswith("_mean")),
            "bytes_total": sum(total.values()),
            "bytes_values": total["values"],
            "bytes_metadata": total["header"] + total["indices"],
            **({"bytes_resync": total["resync"]} if "resync" in total else {}),
            "bytes_share_of_full": last["bytes_sent"] / last["bytes_full"] if last["bytes_full"] else 0.0,
            **{
                f"bytes_{name}": sum(m[f"bytes_{name}"] for m in self.metrics)
                for name in self.document["wire"]["compare"]
            },
            **Privacy(**self.document.get("privacy", {})).spent(last["round"]),
            "seconds": round(sum(m["seconds"] for m in self.metrics), 3),
        }


def simulate(
    experiment: Experiment,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
    scratch: str | os.PathLike[str] | None = None,
    start: Start | None = None,
) -> Run:
    """Carry an experiment out; with `out`, keep it in a new directory and save its state every so many rounds.

    With `scratch`, a directory, the nodes' models and states are kept in a file there while it runs, and not in memory.
    `start` is how several workers begin: "fork", as copies of this process, the default on Linux, or "spawn", as fresh
    interpreters that are told the experiment as TOML. None of this changes the result.
    Ctrl-C stops after the round that is under way, saves, and raises `StopRequest`; a second one stops at once.
    """
    _check_counts(workers=workers, checkpoint_every=checkpoint_every)
    directory = _path(out)
    if directory is not None and os.path.exists(directory):
        raise ExperimentError(
            f"{directory} exists already; name another directory, or continue it with gossamer resume"
        )
    experiment = experiment.with_digests()
    with Simulation(experiment, workers, _path(scratch), start) as simulation:  # refuses before a directory is made
        if directory is not None:
            try:
                directory.mkdir(parents=True)
            except OSError as error:
                raise ExperimentError(
                    f"{directory} cannot be made: {error.strerror}; name another directory"
                ) from error
            files.replace(directory / "experiment.toml", toml.dumps(experiment).encode())
            (directory / "metrics.jsonl").touch()
        return _carry_on(simulation, Run(experiment, directory=directory), checkpoint_every, on_round)


def resume(
    directory: str | os.PathLike[str],
    experiment: Experiment | None = None,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
    scratch: str | os.PathLike[str] | None = None,
    start: Start | None = None,
) -> Run:
    """Continue the run in a directory from its last checkpoint, to the same result as if it had never stopped.

    An experiment with classes of your own must be given again; else it is read from the directory.
    """
    _check_counts(workers=workers, checkpoint_every=checkpoint_every)
    directory = Path(directory)
    past = open_run(directory, experiment and experiment.with_digests())
    if past.experiment is None:
        raise ExperimentError(
            f"{directory / 'experiment.toml'} names a class of your own; resume it from Python with "
            "gossamer.resume(directory, experiment)"
        )
    with Simulation(past.experiment.with_digests(), workers, _path(scratch), start) as simulation:
        if (directory / "checkpoint.safetensors").exists():
            files.restore(directory, past.document, len(past.metrics), simulation)
        if (directory / "result.json").exists():
            past.models = simulation.models() if simulation.round else None
            return past
        past.metrics = past.metrics[: simulation.round]  # later rounds are run again
        for name in ("metrics.jsonl", "ledger.jsonl"):
            if (directory / name).exists():
                kept = [line for line in files.read_lines(directory / name) if line["round"] <= simulation.round]
                files.replace(directory / name, files.lines(kept))
        return _carry_on(simulation, past, checkpoint_every, on_round)


def open_run(directory: str | os.PathLike[str], experiment: Experiment | None = None) -> Run:
    """The run in a directory, as far as it got."""
    directory = Path(directory)
    if not (directory / "experiment.toml").is_file():
        raise ExperimentError(f"{directory} is not a run: it has no experiment.toml; gossamer run makes one")
    document = toml.load(directory / "experiment.toml")
    if experiment is None:
        with suppress(toml.UnknownNameError):
            experiment = toml.read(document)
    elif changed := toml.differences(document, toml.write(experiment)):
        raise ExperimentError(
            f"{', '.join(changed)}: {directory} has another; give the experiment that it was begun with"
        )
    metrics = files.read_lines(directory / "metrics.jsonl")
    if [row["round"] for row in metrics] != list(range(1, len(metrics) + 1)):
        files.damaged(directory / "metrics.jsonl", "rounds are missing")
    return Run(experiment, metrics, directory=directory, document=document)


def write_report(path: str | os.PathLike[str], runs: list[Run], title: str | None = None) -> None:
    """One self-contained HTML page with the tables and charts of these runs."""
    if not runs:
        raise ExperimentError("a report needs at least one run, none was given")
    curves = [
        report.Curve(label, run.metrics, run.document, run.result)
        for label, run in zip(labels(runs), runs, strict=True)
    ]
    report.write(path, title or runs[0].document["name"], curves)


def labels(runs: Sequence[Run]) -> list[str]:
    """What to call each run: its algorithm if that tells the experiments apart, else its name, else what differs.

    Runs that differ in nothing but the seed have the same label.
    """
    documents = [run.document | {"seed": 0} for run in runs]
    algorithms = [document["algorithm"]["name"] for document in documents]
    names = [document["name"] for document in documents]
    differing = sorted({key for one in documents for other in documents for key in toml.differences(one, other)})

    def settings(document: toml.Document) -> str:
        given = [(key, toml.look_up(document, key)) for key in differing]
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in given if value is not None)

    described = [f"{algorithm} ({settings(d)})" for algorithm, d in zip(algorithms, documents, strict=True)]
    for candidates in (algorithms, names):
        same = [(a, b) for a in range(len(runs)) for b in range(a) if candidates[a] == candidates[b]]
        if not any(toml.differences(documents[a], documents[b]) for a, b in same):
            return candidates
    return described


def _carry_on(simulation: Simulation, run: Run, checkpoint_every: int, on_round: OnRound | None) -> Run:
    experiment, directory = simulation.experiment, run.directory
    with _stop_requests() as stop_requested:
        while simulation.round < experiment.rounds:
            metrics = simulation.step()
            run.metrics.append(metrics)
            if directory is not None:
                files.append(directory / "metrics.jsonl", [metrics])
                if experiment.wire.ledger:
                    files.append(directory / "ledger.jsonl", simulation.ledger())
                if simulation.round % checkpoint_every == 0 or stop_requested():
                    files.save_checkpoint(directory, run.document, simulation)
            if on_round is not None:
                on_round(metrics)
            if stop_requested() and simulation.round < experiment.rounds:
                raise StopRequest(run)
        run.models = simulation.models()
        if directory is not None:
            files.save_checkpoint(directory, run.document, simulation)
            write_report(directory / "report.html", [run])
            files.replace(directory / "result.json", json.dumps(run.result, indent=2).encode() + b"\n")
    return run


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
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
