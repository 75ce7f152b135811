"""Trained models as programs for other places, and their answers for samples of one's own."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from gossamer.core import Task
from gossamer.core.rng import kept_generators
from gossamer.data.datasets import fetch
from gossamer.data.supervised import Supervised
from gossamer.experiments.experiment import ExperimentError

BATCH = 256  # samples at a time


class WithPreparation(nn.Module):
    """A model behind what its task does with samples before they reach it, such as bytes to numbers."""

    def __init__(self, module: nn.Module, prepare: Callable[[Tensor], Tensor] | None):
        super().__init__()
        self.module, self._prepare = module, prepare

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.module(inputs if self._prepare is None else self._prepare(inputs))
        return outputs


def model_of(task: Task, model: Tensor, buffers: Tensor) -> WithPreparation:
    """A model (D,) with its buffers (K,), for samples as the task's data have them."""
    if not isinstance(task, Supervised):
        raise ExperimentError(f"task: {type(task).__name__} has no torch module; its model is in model.safetensors")
    return WithPreparation(task.module_with(model, buffers), task.prepare).eval()


def as_torch_export(model: nn.Module, task: Task) -> bytes:
    """What torch.export.load reads: a graph of the model and its weights, for batches of any size."""
    with _export_errors("torch.export"):
        program = torch.export.export(model, (_example(task),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        content = BytesIO()
        torch.export.save(program, content)
    return content.getvalue()


def as_onnx(model: nn.Module, task: Task) -> bytes:
    """An ONNX model with the input `inputs` and the output `outputs`, for batches of any size."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ExperimentError("an .onnx file needs onnx and onnxscript; install gossamer[onnx]") from None
    with _export_errors("ONNX"):
        shapes = ({0: torch.export.Dim("batch")},)
        names: dict[str, Any] = {"input_names": ["inputs"], "output_names": ["outputs"]}
        program = torch.onnx.export(
            model, (_example(task),), dynamic_shapes=shapes, dynamo=True, verbose=False, **names
        )
        assert program is not None
        return bytes(program.model_proto.SerializeToString())


PROGRAMS: dict[str, Callable[[nn.Module, Task], bytes]] = {".pt2": as_torch_export, ".onnx": as_onnx}
"""By the suffix of a file."""


@contextmanager
def _export_errors(what: str) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ExperimentError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExperimentError(f"{what} cannot take this model ({reason}); write a .safetensors file instead") from error


def _example(task: Task) -> Tensor:
    """Two samples, as the data have them."""
    assert isinstance(task, Supervised)
    if not task.gives_pairs:
        raise ExperimentError(
            "task: samples are not inputs and targets, or the model takes both; a program takes inputs alone: "
            "export .safetensors, and load them into the module"
        )
    with kept_generators():  # a data set may draw
        inputs = fetch(task.train, np.arange(min(2, task.num_samples)), task.collate_fn)[0]
    if not isinstance(inputs, Tensor):
        raise ExperimentError(f"task: samples are {type(inputs).__name__}, a program needs tensors; write .safetensors")
    return inputs if len(inputs) > 1 else inputs.expand(2, *inputs.shape[1:]).clone()


class Samples(NamedTuple):
    inputs: Tensor
    targets: Tensor | None


def read_samples(path: Path) -> Samples:
    """Of a .safetensors file the tensors inputs and, if there is one, targets; of an .npy file, the inputs."""
    try:
        if path.suffix == ".npy":
            return Samples(torch.from_numpy(np.load(path, allow_pickle=False)), None)
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        must = "it must be a .safetensors file with the tensor inputs, or an .npy file"
        raise ExperimentError(f"{path} cannot be read ({reason}); {must}") from None
    if "inputs" not in tensors or set(tensors) - {"inputs", "targets"}:
        raise ExperimentError(
            f"{path} holds {', '.join(sorted(tensors)) or 'nothing'}; it must hold inputs, and may hold targets"
        )
    return Samples(tensors["inputs"], tensors.get("targets"))


class Predictions(NamedTuple):
    outputs: Tensor  # (samples, ...)
    loss: float | None  # of these, if there are targets
    score: float | None  # in the task's metric


def predict(
    model: nn.Module,
    task: Task,
    samples: Samples,
    progress: Callable[[range], Iterable[int]] = lambda batches: batches,
) -> Predictions:
    """What a model says of samples; ExperimentError if they do not fit."""
    assert isinstance(task, Supervised)
    inputs, targets = samples
    expected = _example(task)
    if inputs.shape[1:] != expected.shape[1:] or not len(inputs):
        raise ExperimentError(
            f"inputs have shape {tuple(inputs.shape)}; the model takes samples of shape {tuple(expected.shape[1:])}"
        )
    if inputs.dtype != expected.dtype:
        inputs = _as(inputs, expected.dtype)
    if targets is not None and len(targets) != len(inputs):
        raise ExperimentError(f"there are {len(inputs)} inputs and {len(targets)} targets")
    with torch.no_grad():
        starts = range(0, len(inputs), BATCH)
        outputs = torch.cat([model(inputs[start : start + BATCH]) for start in progress(starts)])
        if targets is None:
            return Predictions(outputs, None, None)
        try:
            score = None if task.score is None else task.score(outputs, targets).mean().item()
            return Predictions(outputs, task.loss(outputs, targets).item(), score)
        except (RuntimeError, ValueError, IndexError) as error:
            raise ExperimentError(f"targets do not fit the model's outputs: {str(error).splitlines()[0]}") from error


def _as(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of another type, if nothing is lost but precision of floating-point numbers."""
    changed = inputs.to(dtype)
    both_floating = inputs.is_floating_point() and dtype.is_floating_point
    if not both_floating and not torch.equal(changed.to(inputs.dtype), inputs):
        raise ExperimentError(f"inputs are {inputs.dtype}, and the model takes {dtype}".replace("torch.", ""))
    return changed


def as_bytes(predictions: Predictions, suffix: str) -> bytes:
    """The outputs as a file of this kind: .safetensors, .npy or .csv, one row per sample."""
    outputs = predictions.outputs.contiguous()
    if suffix == ".npy":
        content = BytesIO()
        np.save(content, outputs.numpy(), allow_pickle=False)
        return content.getvalue()
    if suffix == ".csv":
        text = StringIO()
        np.savetxt(text, outputs.reshape(len(outputs), -1).numpy(), fmt="%.9g", delimiter=",")
        return text.getvalue().encode()
    return save({"outputs": outputs})
