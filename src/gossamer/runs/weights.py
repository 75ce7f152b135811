"""Trained weights out of a run: as rows, as modules, and as files of named tensors."""

import hashlib
import os
from operator import index
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from gossamer.core import Task
from gossamer.core.state import map_tensors
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import checkpoint, files, inference

Node = int | Literal["mean"]


class Weights(NamedTuple):
    """The models of a run's nodes; of a peer's directory, one."""

    models: Tensor  # (n, D)
    buffers: Tensor | None  # (n, K): what each node's model carries beside its parameters, if it does
    round: int  # after so many rounds
    node: int | None = None  # whose, of a peer

    def of(self, node: Node) -> tuple[Tensor, Tensor]:
        """The model (D,) and the buffers (K,) of a node, or their means over the nodes, as a test of the mean model
        has them."""
        buffers = self.models[:, :0] if self.buffers is None else self.buffers
        if self.node is not None:
            if node != self.node:
                raise ExperimentError(f"node {node} was asked for, and this is a peer's, which is node {self.node}")
            return self.models[0], buffers[0]
        if node == "mean":
            return self.models.mean(0), buffers.mean(0)
        if isinstance(node, bool) or not hasattr(node, "__index__") or not 0 <= index(node) < len(self.models):
            raise ExperimentError(f'node must be "mean" or 0 to {len(self.models) - 1}, {node!r} was given')
        return self.models[index(node)], buffers[index(node)]


def model_digest(models: Tensor) -> str:
    """The sha256 of a model's numbers, or of those of all rows, as little-endian float32."""
    return hashlib.sha256(models.detach().to(torch.float32).numpy().astype("<f4").tobytes()).hexdigest()


def load(directory: Path, experiment: Experiment, task: Task) -> Weights | None:
    """The weights in a directory's checkpoint, if it has one."""
    found = checkpoint.load(directory)
    if found is None:
        return None
    saved, tensors = found
    prepared = experiment.prepared(task)
    algorithm = prepared.optimizer.wrap(prepared.algorithm)
    try:
        state = map_tensors(algorithm.init(task.initial_model(0)[None]), lambda name, _: tensors[name])
    except KeyError as error:
        checkpoint.damaged(directory, f"{error} is missing")
    return Weights(algorithm.model(state), tensors.get("buffers"), saved.round, saved.node)


class Trained(NamedTuple):
    """One model of a run, with its task."""

    name: str  # of the experiment
    task: Task
    weights: Weights
    node: Node


def trained(directory: Path, node: Node | None) -> Trained:
    """A node's model in a directory, or the mean of the nodes' models; of a peer's directory, its own."""
    document = files.read_document(directory)
    experiment = files.experiment_of(document)
    if experiment is None:
        there = directory / "model.safetensors"  # which a peer writes at its end
        known = f"; its weights are in {there}" if there.exists() else ""
        raise ExperimentError(
            f"{directory / 'experiment.toml'} names a class of your own; open it in Python with "
            f"gossamer.open_run(directory, experiment), and save its state_dict{known}"
        )
    task = experiment.load_task()
    weights = load(directory, experiment, task)
    if weights is None:
        raise ExperimentError(f"{directory} has no {checkpoint.NAME}; continue the run with gossamer resume")
    if node is None:
        node = "mean" if weights.node is None else weights.node
    return Trained(document["name"], task, weights, node)


def export(directory: Path, node: Node | None, out: Path) -> None:
    """Write one model to a new file: a program for torch.export (.pt2) or ONNX (.onnx), or else named tensors."""
    if os.path.exists(out):
        raise ExperimentError(f"{out} exists already; name another file with --out")
    name, task, weights, node = trained(directory, node)
    try:
        if out.suffix in inference.PROGRAMS:
            model = inference.model_of(task, *weights.of(node))
            files.replace(out, inference.PROGRAMS[out.suffix](model, task))
        else:
            write(out, name, task, weights, node)
    except OSError as error:
        raise ExperimentError(f"{out} cannot be written: {error.strerror}; name another file with --out") from error


def write(path: Path, name: str, task: Task, weights: Weights, node: Node, private: bool = False) -> None:
    """Write one model of the experiment of this name to a file, its tensors named as in its state_dict; if the task has
    no module, there is one tensor, called model."""
    model, buffers = weights.of(node)
    tensors = task.state_dict(model, buffers)
    separate = {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}  # some may share memory
    about = {"experiment": name, "round": str(weights.round), "node": str(node), "metric": task.metric}
    files.replace(path, save(separate, metadata=about), private)
