"""What a peer is made of: the experiment as this peer sees it, and its own data."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gossamer.core import Samples, Task
from gossamer.experiments.experiment import Experiment, ExperimentError, named


class PeerData(NamedTuple):
    experiment: Experiment  # as it is run
    task: Task
    samples: Samples  # this peer's


def by_rows(experiment: Experiment) -> Experiment:
    """The same, with each node's gradients computed by itself: the simulator then has the peers' models exactly."""
    return replace(experiment, strategy="rows")


def prepare(experiment: Experiment, node: int, data: Path | None, own_data: bool = False) -> PeerData:
    """The experiment for one node: its share of the task's data; with `own_data`, all of them; with `data`, all that is
    in that directory."""
    if experiment.faults.any:
        raise ExperimentError("faults: peers meet real ones; leave the section out, or simulate it with gossamer run")
    if experiment.algorithm.pools_data:
        raise ExperimentError(
            f"algorithm: {named(experiment.algorithm)} has one node hold all data; take one that shares models"
        )
    experiment = by_rows(experiment)
    if data is not None and not (data / "train.safetensors").exists():
        experiment = _reading(experiment, data)
        task = experiment.load_task()
        return PeerData(experiment.prepared(task), task, np.arange(task.num_samples))
    task = experiment.load_task()
    prepared = experiment.prepared(task)
    if data is None and own_data:
        return PeerData(prepared, task, np.arange(task.num_samples))
    if data is None:
        return PeerData(prepared, task, prepared.shards(task)[node])
    own = _own_data(task, data)
    return PeerData(prepared, own, np.arange(own.num_samples))


def _reading(experiment: Experiment, directory: Path) -> Experiment:
    """The same, with the files of its task read from this directory, as they would be from the one with data sets."""
    if not hasattr(experiment.task, "root"):
        raise ExperimentError(
            f"{directory} has no train.safetensors, and {type(experiment.task).__name__} reads no other files; "
            "put it there, with the tensors inputs and targets"
        )
    return replace(experiment, task=replace(experiment.task, root=str(directory)))  # type: ignore[type-var]


def _own_data(task: Task, directory: Path) -> Task:
    """The task with the training data, and if there are any the test data, of a directory."""
    train, test = directory / "train.safetensors", directory / "test.safetensors"
    try:
        return task.with_data(_pair(train), _pair(test) if test.exists() else None)
    except ExperimentError:
        raise
    except ValueError as error:
        raise ExperimentError(f"{directory}: {error}") from error


def _pair(path: Path) -> tuple[Tensor, Tensor]:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ExperimentError(f"{path} cannot be read ({error}); it must hold the tensors inputs and targets") from None
    if set(tensors) != {"inputs", "targets"}:
        raise ExperimentError(f"{path} holds {', '.join(sorted(tensors))}; it must hold inputs and targets")
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise ExperimentError(f"{path} holds numbers that are not finite")
    return tensors["inputs"], tensors["targets"]
