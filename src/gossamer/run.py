"""A run: an experiment carried out, and the directory that keeps what came of it.

    experiment.toml      what was run
    metrics.jsonl        one line a round
    ledger.jsonl         one line a round and link, if the experiment asks for it
    checkpoint.safetensors   the state after the last round that was saved; `resume` continues from it
    result.json          the summary, once the run is complete
    report.html          tables and charts

Files other than metrics.jsonl are written whole under another name and then renamed, so none is ever half there.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gossamer import report, toml
from gossamer.engines.simulate import Simulation
from gossamer.experiment import Experiment, ExperimentError, named

Metrics = dict[str, Any]
OnRound = Callable[[Metrics], None]


class StopRequest(Exception):  # noqa: N818 - it is not an error
    """The run was asked to stop, and did so after a complete round."""

    def __init__(self, run: "Run"):
        super().__init__(f"stopped after round {len(run.metrics)} of {run.experiment.rounds}")
        self.run = run


@dataclass
class Run:
    """What came of an experiment."""

    experiment: Experiment
    metrics: list[Metrics] = field(default_factory=list)  # one a round
    models: Tensor | None = None  # (n, D), at the end
    directory: Path | None = None

    @property
    def result(self) -> Metrics:
        """The summary that `gossamer run --json` prints: the last evaluation, and the bytes of the whole run."""
        last = self.metrics[-1]
        evaluated = next(m for m in reversed(self.metrics) if "test_loss" in m)
        total = {kind: sum(m[f"bytes_{kind}"] for m in self.metrics) for kind in ("header", "indices", "values")}
        kept = ("round", "parts", "seconds")
        return {
            "name": self.experiment.name,
            "algorithm": named(self.experiment.algorithm),
            "task": named(self.experiment.task),
            "topology": named(self.experiment.topology),
            "partition": named(self.experiment.partition),
            "seed": self.experiment.seed,
            "nodes": self.experiment.nodes,
            "rounds": last["round"],
            **{k: v for k, v in evaluated.items() if k not in kept and not k.startswith("bytes_")},
            "metric": next(k.removesuffix("_mean") for k in evaluated if k.endswith("_mean")),
            "bytes_total": sum(total.values()),
            "bytes_values": total["values"],
            "bytes_metadata": total["header"] + total["indices"],
            "bytes_share_of_full": last["bytes_sent"] / last["bytes_full"] if last["bytes_full"] else 0.0,
            **{f"bytes_{name}": sum(m[f"bytes_{name}"] for m in self.metrics) for name in self.experiment.wire.compare},
            "seconds": round(sum(m["seconds"] for m in self.metrics), 3),
        }


def simulate(
    experiment: Experiment,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
) -> Run:
    """Carry an experiment out; with `out`, keep it in a new directory and save its state every so many rounds.

    Ctrl-C stops after the round that is under way, saves, and raises `StopRequest`; a second one stops at once.
    """
    directory = None if out is None else Path(out)
    if directory is not None and directory.exists():
        raise ExperimentError(
            f"{directory} exists already; name another directory, or continue it with gossamer resume"
        )
    with Simulation(experiment, workers) as simulation:  # refuses what cannot run before a directory is made
        if directory is not None:
            directory.mkdir(parents=True)
            _replace(directory / "experiment.toml", toml.dumps(experiment).encode())
            (directory / "metrics.jsonl").touch()
        return _carry_on(simulation, Run(experiment, directory=directory), checkpoint_every, on_round)


def resume(
    directory: str | os.PathLike[str],
    experiment: Experiment | None = None,
    workers: int | None = None,
    checkpoint_every: int = 100,
    on_round: OnRound | None = None,
) -> Run:
    """Continue the run in a directory from its last checkpoint, to the same result as if it had never stopped.

    An experiment with classes of your own must be given again; else it is read from the directory.
    """
    directory = Path(directory)
    past = open_run(directory, experiment)
    if (directory / "result.json").exists():
        return past
    with Simulation(past.experiment, workers) as simulation:
        tensors, saved = _load_checkpoint(directory / "checkpoint.safetensors")
        document = toml.write(past.experiment)
        if changed := toml.differences(saved["experiment"], document):
            raise ExperimentError(
                f"{', '.join(changed)} in {directory / 'experiment.toml'} changed after the checkpoint was made; "
                "change it back, or start a new run"
            )
        simulation.restore(tensors, saved["round"], saved["totals"])
        past.metrics = past.metrics[: saved["round"]]  # rounds after the checkpoint are run again
        for name in ("metrics.jsonl", "ledger.jsonl"):
            if (directory / name).exists():
                kept = [line for line in _read_lines(directory / name) if line["round"] <= saved["round"]]
                _replace(directory / name, _lines(kept))
        return _carry_on(simulation, past, checkpoint_every, on_round)


def open_run(directory: str | os.PathLike[str], experiment: Experiment | None = None) -> Run:
    """The run in a directory, as far as it got."""
    directory = Path(directory)
    if not (directory / "experiment.toml").is_file():
        raise ExperimentError(f"{directory} is not a run: it has no experiment.toml; gossamer run makes one")
    if experiment is None:
        experiment = toml.read(toml.load(directory / "experiment.toml"))
    return Run(experiment, _read_lines(directory / "metrics.jsonl"), directory=directory)


def write_report(path: str | os.PathLike[str], runs: list[Run], title: str | None = None) -> None:
    """One self-contained HTML page with the tables and charts of these runs."""
    curves = [
        report.Curve(label, run.metrics, toml.write(run.experiment), run.result)
        for label, run in zip(labels(runs), runs, strict=True)
    ]
    report.write(path, title or runs[0].experiment.name, curves)


def labels(runs: Sequence[Run]) -> list[str]:
    """What to call each run: its algorithm if that tells the experiments apart, else its name, else what differs.

    Runs that differ in nothing but the seed have the same label.
    """
    documents = [toml.write(replace(run.experiment, seed=0)) for run in runs]
    algorithms = [named(run.experiment.algorithm) for run in runs]
    names = [run.experiment.name for run in runs]
    differing = sorted({key for one in documents for other in documents for key in toml.differences(one, other)})

    def settings(document: toml.Document) -> str:
        given = [(key, toml.look_up(document, key)) for key in differing]
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in given if value is not None)

    described = [f"{algorithm} ({settings(d)})" for algorithm, d in zip(algorithms, documents, strict=True)]
    for candidates in (algorithms, names):
        same = [(a, b) for a in range(len(runs)) for b in range(a) if candidates[a] == candidates[b]]
        if all(documents[a] == documents[b] for a, b in same):
            return candidates
    return described


def _carry_on(simulation: Simulation, run: Run, checkpoint_every: int, on_round: OnRound | None) -> Run:
    directory = run.directory
    with _stop_requests() as stop_requested:
        while simulation.round < run.experiment.rounds:
            metrics = simulation.step()
            run.metrics.append(metrics)
            if directory is not None:
                _append(directory / "metrics.jsonl", [metrics])
                if run.experiment.wire.ledger:
                    _append(directory / "ledger.jsonl", simulation.ledger())
                if simulation.round % checkpoint_every == 0 or stop_requested():
                    _save_checkpoint(directory, run.experiment, simulation)
            if on_round is not None:
                on_round(metrics)
            if stop_requested() and simulation.round < run.experiment.rounds:
                raise StopRequest(run)
        run.models = simulation.models().clone()
        if directory is not None:
            _save_checkpoint(directory, run.experiment, simulation)
            _replace(directory / "result.json", json.dumps(run.result, indent=2).encode() + b"\n")
            write_report(directory / "report.html", [run])
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


def _lines(rows: list[Metrics]) -> bytes:
    return b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def _append(path: Path, rows: list[Metrics]) -> None:
    with path.open("ab") as file:
        file.write(_lines(rows))


def _read_lines(path: Path) -> list[Metrics]:
    """The rows of a file of JSON lines, without the one that the process was writing when it died."""
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path} is damaged ({error}); start the run again") from error


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def _save_checkpoint(directory: Path, experiment: Experiment, simulation: Simulation) -> None:
    saved = {
        "round": simulation.round,
        "totals": simulation.totals,
        "experiment": toml.write(experiment),
    }
    path = directory / "checkpoint.safetensors"
    partial = path.with_name(path.name + ".partial")
    save_file(simulation.save(), partial, metadata={"gossamer": json.dumps(saved)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def _load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not path.exists():
        raise ExperimentError(f"{path} does not exist: the run stopped before its first checkpoint; start it again")
    try:
        with safe_open(path, framework="pt") as file:
            saved = json.loads((file.metadata() or {})["gossamer"])
            return {name: file.get_tensor(name) for name in file.keys()}, saved  # noqa: SIM118 - not a dictionary
    except (SafetensorError, KeyError, ValueError) as error:
        raise ExperimentError(f"{path} is damaged ({error}); start the run again") from error
