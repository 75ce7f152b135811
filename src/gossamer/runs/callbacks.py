"""What is done after every round of a run under way: stop it early, keep the best model, or whatever one likes.

A callback is called with the run so far, whose `metrics[-1]` are those of the round and whose `module("mean")` is the
mean model now; if it returns True, the run ends there, with a checkpoint, a result and a report:

    gs.simulate(experiment, callbacks=[gs.EarlyStopping(patience=5), gs.BestCheckpoint("best.safetensors")])

Both look at all metrics of the run so far, so that a resumed run does as one would that was never interrupted.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import weights
from gossamer.runs.run import Metrics, Run, metric_of
from gossamer.runs.weights import Node

Callback = Callable[[Run], bool | None]


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when a metric has not become better for so many evaluations."""

    metric: str | None = None  # a key of the metrics, such as "f1_of_mean_model"; None: the mean of the task's metric
    patience: int = 5  # evaluations without a new best one that are borne
    min_delta: float = 0.0  # how much better a best one must be
    higher_is_better: bool | None = None  # None: not for losses and errors, and as the task says for its metric

    def __post_init__(self) -> None:
        if type(self.patience) is not int or self.patience < 1:
            raise ExperimentError(f"patience must be a whole number, at least 1, {self.patience!r} was given")
        if not self.min_delta >= 0:
            raise ExperimentError(f"min_delta must be at least 0, {self.min_delta!r} was given")

    def __call__(self, run: Run) -> bool:
        values = _values(run, self.metric, self.higher_is_better)
        return len(values) - 1 - _best(values, self.min_delta) >= self.patience if values else False


@dataclass(frozen=True)
class BestCheckpoint:
    """Keep the weights of the round in which a metric was best, as safetensors with the names of a state_dict."""

    path: str | os.PathLike[str]
    metric: str | None = None  # as in `EarlyStopping`
    node: Node = "mean"  # whose weights: the mean model's, or those of a node
    higher_is_better: bool | None = None

    def __call__(self, run: Run) -> None:
        values = _values(run, self.metric, self.higher_is_better)
        if values and "test_loss" in run.metrics[-1] and _best(values, 0.0) == len(values) - 1:
            task, now = run.under_way()
            weights.write(Path(self.path), run.document["name"], task, now, self.node)


def called(callbacks: Sequence[Callback], run: Run) -> bool:
    """Call all of them; does one ask to stop?"""
    answers = [callback(run) for callback in callbacks]
    for callback, answer in zip(callbacks, answers, strict=True):
        if answer not in (True, False, None):
            raise ExperimentError(
                f"callback {callback!r} must return True, to stop, or nothing; it returned {answer!r}"
            )
    return any(answers)


def _values(run: Run, metric: str | None, higher_is_better: bool | None) -> list[float]:
    """The metric in all evaluations so far, the higher the better."""
    evaluated: list[Metrics] = [row for row in run.metrics if "test_loss" in row]
    if not evaluated:
        return []
    of_task = metric_of(evaluated[-1])
    key = f"{of_task}_mean" if metric is None else metric
    if not isinstance(evaluated[-1].get(key, ""), int | float | None):
        numbers = ", ".join(name for name, value in evaluated[-1].items() if isinstance(value, float))
        raise ExperimentError(f"the metrics have no number {key!r}; they have {numbers}")
    if higher_is_better is None:
        is_tasks = key.startswith(f"{of_task}_")
        higher_is_better = evaluated[-1].get("higher_is_better", True) if is_tasks else not _is_of_errors(key)
    sign = 1 if higher_is_better else -1
    return [-inf if row[key] is None else sign * row[key] for row in evaluated if key in row]  # no number is the worst


def _is_of_errors(key: str) -> bool:
    short = {"mae", "mse", "rmse", "mape", "nll", "wer", "cer"}  # as whole words: other words may have their letters
    long = ("loss", "divergence", "distance", "error", "perplexity")
    return any(word in key for word in long) or not short.isdisjoint(key.split("_"))


def _best(values: Sequence[float], min_delta: float) -> int:
    """Which was the best, the first one of those that are hardly better than each other."""
    best = 0
    for index, value in enumerate(values):
        if value > values[best] + min_delta:
            best = index
    return best
