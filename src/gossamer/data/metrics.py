"""What is measured of a model on test samples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer.core.task import MetricError

Metric = Callable[[Tensor, Tensor], Any]  # of all outputs and all targets of a test: a number, or a tensor of one
Score = Callable[[Tensor, Tensor], Tensor]  # of outputs and targets: one number per sample
_TAKEN = ("loss", "train_loss", "test_loss", "round", "seconds")  # these names mean something else


def correct(output: Tensor, target: Tensor) -> Tensor:
    """1 where the largest output is the target's, else 0; its mean is the accuracy."""
    return (output.argmax(-1) == target).float()


def check_metrics(metrics: Mapping[str, Metric], score: Score | None, score_name: str) -> None:
    """ValueError if nothing would be measured, or not under names of their own."""
    if score is None and not metrics:
        raise ValueError("score is None and there are no metrics, so nothing would be measured; give one of them")
    for name, metric in metrics.items():
        if not callable(metric):
            raise ValueError(f"metrics[{name!r}] must be a function of outputs and targets, {metric!r} was given")
        if not str(name).isidentifier() or name in _TAKEN:
            raise ValueError(f"metrics has the name {name!r}; take a word such as f1, which means nothing else here")
    if score is not None and score_name in metrics:
        raise ValueError(f"metrics has the name {score_name!r}, which is that of the score; take another")


def computed(metrics: Mapping[str, Metric], batches: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    """Of the outputs and targets of all batches together. MetricError if a metric fails on them."""
    outputs, targets = (_joined(parts) for parts in zip(*batches, strict=True))
    found = []
    for name, metric in metrics.items():
        try:
            found.append(float(metric(outputs, targets)))
        except Exception as error:
            raise MetricError(
                f"metrics[{name!r}] failed on outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}: "
                f"{first_line(error)}"
            ) from error
    return found


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    shapes = sorted({tuple(part.shape[1:]) for part in parts})
    if len(shapes) > 1:
        raise MetricError(
            f"metrics need outputs and targets of one shape, and samples of shape {shapes[0]} and {shapes[-1]} came; "
            "have collate_fn pad all to one length"
        )
    return torch.cat(parts)


def first_line(error: Exception) -> str:
    """The kind of an error, and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
