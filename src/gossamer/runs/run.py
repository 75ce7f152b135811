"""A run: an experiment carried out, and the directory that keeps what came of it.

    experiment.toml      what was run
    metrics.jsonl        one line per round
    ledger.jsonl         one line per round and link, if the experiment asks for it
    checkpoint.safetensors   the state after the last round that was saved; `resume` continues from it
    checkpoint.json      in its place, if ranks of a cluster saved it: it names the file of each rank
    result.json          the summary, once the run is complete
    nodes.json           the graph, and what data each node has
    report.html          tables and charts
    lock                 held by the process that runs it

Files other than the two .jsonl are written whole under another name and then renamed, so none is ever half there.
The .jsonl files reach the disk before the checkpoint that counts on them does.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

import torch
from torch import Tensor, nn

from gossamer.core import Task
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError, section
from gossamer.runs import checkpoint, files, naming, nodes, peer_metrics, report, weights
from gossamer.runs.weights import Node, Weights
from gossamer.training.privacy import Privacy

Metrics = dict[str, Any]
OnRound = Callable[[Metrics], None]


class Result(TypedDict):
    """The summary of a run: the last evaluation, and the bytes of the whole run, over all links.

    Keys with a metric in their name have that of the task: of "distance" they are distance_mean, and so on. With
    `wire.compare` and `privacy` there are a few more.
    """

    name: str  # of the experiment
    algorithm: str
    task: str
    topology: str
    partition: str
    seed: int
    nodes: int
    rounds: int  # that are complete
    strategy: str  # how gradients were computed
    train_loss: float
    test_loss: float  # mean over the nodes that were tested
    metric: str  # what the task measures, such as "accuracy"
    higher_is_better: NotRequired[bool]  # False: the smaller the metric, the better
    accuracy_mean: NotRequired[float]  # over the nodes that were tested
    accuracy_min: NotRequired[float]
    accuracy_max: NotRequired[float]
    accuracy_worst_decile: NotRequired[float]  # over the worst tenth of them, on the samples of all
    accuracy_personal_mean: NotRequired[float]  # over the same nodes, each on its own distribution
    accuracy_of_mean_model: NotRequired[float]
    accuracy_mean_before_settle: NotRequired[float]  # if the last rounds settled
    divergence: float  # mean distance of the nodes' models from their mean
    tested_nodes: int
    tested_samples: int  # of the test_samples
    test_samples: int
    bytes_total: int
    bytes_values: int
    bytes_metadata: int  # frames, tags and indices
    bytes_resync: NotRequired[int]  # to nodes that had missed messages
    messages_sent: NotRequired[int]  # if there were faults
    messages_lost: NotRequired[int]
    messages_late: NotRequired[int]
    bytes_share_of_full: float  # of what full sharing would have sent
    clock_seconds: NotRequired[float]  # with [clock]: virtual time at which the last node ended
    clock_seconds_mean: NotRequired[float]  # mean over nodes
    energy_joules_mean: NotRequired[float]  # per node: computing and radio
    energy_joules_radio_mean: NotRequired[float]
    battery_share_mean: NotRequired[float]  # of clock.battery_wh, per node
    battery_share_max: NotRequired[float]  # of the node that needed most
    ranks: NotRequired[int]  # of a cluster
    bytes_between_ranks: NotRequired[int]  # of messages that really travelled: once to each rank that has a receiver
    seconds: float


@dataclass
class Run:
    """What came of an experiment."""

    experiment: Experiment | None  # None: opened from a directory, and with classes of the user's own
    metrics: list[Metrics] = field(default_factory=list)  # one per round
    directory: Path | None = None
    document: toml.Document = field(default_factory=dict)  # the experiment as its file says it
    weights: Weights | None = field(default=None, repr=False)  # None: not at its end, or not read from its directory
    now: Callable[[], tuple[Task, Weights]] | None = field(default=None, repr=False)  # task and weights while it runs

    def __post_init__(self) -> None:
        if self.experiment is not None:
            self.document = toml.write(self.experiment)

    @property
    def peer(self) -> str | None:
        """The name of the directory, if it is a peer's."""
        return self.directory.name if self.directory is not None and peer_metrics.is_of_peer(self.metrics) else None

    @property
    def models(self) -> Tensor | None:
        """(n, D): the model of every node, as far as the run got; None if nothing of it was saved."""
        found = self._weights()
        return None if found is None else found.models

    @property
    def models_sha256(self) -> str | None:
        """Of the numbers of all models, as little-endian float32: the same for runs with the same result."""
        return None if self.models is None else weights.model_digest(self.models)

    def module(self, node: Node = "mean") -> nn.Module:
        """The task's own module with the weights of a node, or of the mean model, ready to predict.

        Its buffers, such as the running statistics of batch normalization, are those of the node, or their mean. It
        takes what the task gives its model: `task.prepare(inputs)`, where there is such a thing.
        """
        task = self._task()
        with section("task"):
            return task.module_with(*self._row(task, node))

    def state_dict(self, node: Node = "mean") -> dict[str, Tensor]:
        """The named tensors of `module(node)`; of a task without a module one, called model."""
        task = self._task()
        with section("task"):
            return task.state_dict(*self._row(task, node))

    def _row(self, task: Task, node: Node) -> tuple[Tensor, Tensor]:
        """Model and buffers of a node, or their means."""
        found = self._weights(task)
        if found is None:
            raise ExperimentError(f"{self.document['name']} has no weights yet: it ended before its first checkpoint")
        return found.of(node)

    def _weights(self, task: Task | None = None) -> Weights | None:
        """Those of now, of the end of the run, or else of the last checkpoint."""
        if self.now is not None:
            return self.now()[1]
        if self.weights is None and self.directory is not None and checkpoint.exists(self.directory):
            self.weights = weights.load(self.directory, self._known_experiment(), task or self._task())
        return self.weights

    def check_rounds(self, what: str) -> None:
        """ExperimentError, with what this is for, if the run has not all of its rounds."""
        where, done, rounds = self.directory or self.document["name"], len(self.metrics), self.document["rounds"]
        if done >= rounds:
            return
        is_over = self.weights is not None if self.directory is None else (self.directory / "result.json").exists()
        if is_over:
            raise ExperimentError(f"{where} was ended by a callback after round {done} of {rounds}; {what} needs all")
        raise ExperimentError(f"{where} is not complete; continue it with gossamer resume first")

    def under_way(self) -> tuple[Task, Weights]:
        """Task and weights of a run that is under way; for callbacks."""
        if self.now is None:
            raise ExperimentError(f"{self.document['name']} is not under way")
        return self.now()

    def _task(self) -> Task:
        if self.now is not None:
            return self.now()[0]
        with torch.inference_mode(False), torch.enable_grad():  # it tries its model out on a few samples
            return self._known_experiment().load_task()

    def _known_experiment(self) -> Experiment:
        if self.experiment is None:
            raise ExperimentError(
                f"{self.directory} is of an experiment with classes of your own; open it with "
                "gossamer.open_run(directory, experiment)"
            )
        return self.experiment

    @property
    def result(self) -> Result:
        """The summary that `gossamer run --json` prints. Of a peer's directory it has what a peer knows."""
        named = {
            "name": self.document["name"],
            **{part: self.document[part]["name"] for part in ("algorithm", "task", "topology", "partition")},
            "seed": self.document["seed"],
        }
        if self.peer is not None:
            return cast(Result, {**named, "peer": self.peer, **peer_metrics.result(self.metrics)})
        last = self.metrics[-1]
        evaluated = next(m for m in reversed(self.metrics) if "test_loss" in m)
        trained = next(m for m in reversed(self.metrics) if "train_loss" in m)
        metric = metric_of(evaluated)
        kinds = [kind for kind in ("header", "indices", "values", "resync") if f"bytes_{kind}" in last]
        total = {kind: sum(m[f"bytes_{kind}"] for m in self.metrics) for kind in kinds}
        left_out = ("round", "parts", "seconds", "nodes_away")
        between = ["bytes_between_ranks"] if "bytes_between_ranks" in last else []
        faults = [name for name in ("messages_sent", "messages_lost", "messages_late") if name in last]
        result: dict[str, Any] = {
            **named,
            "nodes": self.document["nodes"],
            "rounds": last["round"],
            "strategy": self.metrics[0]["strategy"],
            "train_loss": evaluated.get("train_loss", trained["train_loss"]),
            **{k: v for k, v in evaluated.items() if k not in left_out and not _is_detail(k)},
            "metric": metric,
            **({f"{metric}_mean_before_settle": trained[f"{metric}_mean"]} if trained is not last else {}),
            "bytes_total": sum(total.values()),
            "bytes_values": total["values"],
            "bytes_metadata": total["header"] + total["indices"],
            **({"bytes_resync": total["resync"]} if "resync" in total else {}),
            "bytes_share_of_full": last["bytes_sent"] / last["bytes_full"] if last["bytes_full"] else 0.0,
            **{
                f"bytes_{name}": sum(m[f"bytes_{name}"] for m in self.metrics)
                for name in self.document["wire"]["compare"]
            },
            **{name: sum(m.get(name, 0) for m in self.metrics) for name in (*faults, *between)},
            **Privacy(**self.document.get("privacy", {})).spent(trained["round"]),
            "seconds": round(sum(m["seconds"] for m in self.metrics), 3),
        }
        return cast(Result, result)


def metric_of(evaluated: Metrics) -> str:
    """What a round's evaluation measured, such as "accuracy"; "" if there was none."""
    named = (key.removesuffix("_mean") for key in evaluated if key.endswith("_mean"))
    return next((name for name in named if f"{name}_min" in evaluated), "")


def _is_detail(key: str) -> bool:
    """Is it a metric that a result sums up, or leaves out?"""
    return key.startswith(("bytes_", "messages_")) or key.endswith("_by_node")


def open_run(directory: str | os.PathLike[str], experiment: Experiment | None = None) -> Run:
    """The run in a directory, or a peer's part of one, as far as it got.

    An experiment with classes of your own must be given again.
    """
    return read_run(Path(directory), experiment)


def read_run(directory: Path, experiment: Experiment | None, through: float = inf) -> Run:
    """The run in a directory, as far as it got in the rounds up to `through`."""
    document = files.read_document(directory)
    if experiment is None:
        experiment = files.experiment_of(document)
    elif changed := toml.differences(document, toml.write(experiment)):
        raise ExperimentError(
            f"{', '.join(changed)}: {directory} has another; give the experiment that it was begun with, or another "
            "directory"
        )
    metrics = files.read_lines(directory / "metrics.jsonl", through, strict=False)  # what is missing is seen below
    if peer_metrics.is_of_peer(metrics):
        metrics = peer_metrics.as_of_run(directory / "metrics.jsonl", metrics)
    elif [row["round"] for row in metrics] != list(range(1, len(metrics) + 1)):
        files.damaged(directory / "metrics.jsonl", "rounds are missing")
    return Run(experiment, metrics, directory, document)


def write_report(path: str | os.PathLike[str], runs: Run | Sequence[Run], title: str | None = None) -> None:
    """One self-contained HTML page with the tables and charts of a run, or of several."""
    if isinstance(runs, Run):
        runs = [runs]
    if not runs:
        raise ExperimentError("a report needs at least one run, none was given")
    report.write(path, title or title_of(runs), curves_of(runs))


def curves_of(runs: Sequence[Run]) -> list[report.Curve]:
    """What a report shows of each run; of one that was not evaluated yet, as much as is known."""
    found = []
    for label, run in zip(labels(runs), runs, strict=True):
        evaluated = any("test_loss" in row for row in run.metrics)
        known = dict(run.result) if evaluated else {"nodes": 1, "peer": run.peer} if run.peer is not None else {}
        of_nodes = nodes.load(run.directory, run.experiment)
        found.append(report.Curve(label, run.metrics, run.document, known, of_nodes))
    return found


def title_of(runs: Sequence[Run]) -> str:
    """What a page on these runs is called: an experiment's name, or what is compared."""
    return naming.title([run.document for run in runs])


def labels(runs: Sequence[Run]) -> list[str]:
    """What to call each run: its algorithm, and whatever else differs between the experiments.

    Runs that differ in nothing but the seed have the same label. A peer is called by its name.
    """
    of_runs = naming.labels([run.document for run in runs])
    several = len(set(of_runs)) > 1
    return [
        label if run.peer is None else f"{label}, {run.peer}" if several else run.peer
        for label, run in zip(of_runs, runs, strict=True)
    ]
