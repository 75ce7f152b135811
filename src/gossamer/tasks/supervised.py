"""A task from any torch module and any data: minibatches in, one loss out, one score a test sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, default_collate

from gossamer.core import Samples

Data = tuple[Tensor, Tensor] | Dataset[Any]
_EVALUATION_BATCH = 1000


def correct(output: Tensor, target: Tensor) -> Tensor:
    """1 where the largest output is the target's, else 0; its mean is the accuracy."""
    return (output.argmax(-1) == target).float()


@dataclass(frozen=True, eq=False)
class Supervised:
    """Your own model and data.

    `model` is a module, whose weights every node then starts from, or something that makes one when called, such as
    its class, which is called under the experiment's seed. `train` and `test` are (inputs, targets) tensors or
    map-style datasets of such pairs. Only parameters that require a gradient are trained and shared.
    """

    model: nn.Module | Callable[[], nn.Module]
    train: Data
    test: Data
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy  # mean over the minibatch
    score: Callable[[Tensor, Tensor], Tensor] = correct  # one number a sample; its mean is the metric
    metric: str = "accuracy"
    clients: NDArray[np.int64] | None = None

    def load(self) -> "Supervised":
        return self

    @cached_property
    def module(self) -> nn.Module:
        module = self.model if isinstance(self.model, nn.Module) else self.model()
        for name, layer in module.named_modules():
            if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats:
                raise ValueError(
                    f"layer {name!r} ({type(layer).__name__}) keeps running statistics, which are not part of the "
                    "model that nodes share; use GroupNorm, or track_running_stats=False"
                )
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise ValueError(f"parameter {name!r} is {parameter.dtype}; call .float() on the model")
        return module

    @cached_property
    def _parameters(self) -> list[nn.Parameter]:
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError("the model has no parameter that requires a gradient, so there is nothing to train")
        return parameters

    @cached_property
    def layer_sizes(self) -> list[int]:
        return [p.numel() for p in self._parameters]

    @property
    def num_samples(self) -> int:
        return _length(self.train)

    @property
    def num_test_samples(self) -> int:
        return _length(self.test)

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        targets = _targets(self.train)
        return None if targets.is_floating_point() or targets.ndim != 1 else targets.numpy().astype(np.int64)

    def initial_model(self, seed: int) -> Tensor:
        if isinstance(self.model, nn.Module):
            return _flat(self._parameters)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return _flat([p for p in self.model().parameters() if p.requires_grad])

    def gradient(self, models: Tensor, samples: Sequence[Samples], seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        self.module.train()
        gradients = torch.zeros_like(models)
        losses = torch.zeros(len(models))
        for row, (batch, seed) in enumerate(zip(samples, seeds, strict=True)):
            torch.default_generator.manual_seed(seed)
            self._bind(models[row], gradients[row])
            inputs, targets = _fetch(self.train, batch)
            loss = self.loss(self.module(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            losses[row] = loss.detach()
        return losses, gradients

    def evaluate(self, model: Tensor, samples: Samples) -> tuple[float, float]:
        self.module.eval()
        self._bind(model, None)
        loss = score = 0.0
        with torch.no_grad():
            for start in range(0, len(samples), _EVALUATION_BATCH):
                inputs, targets = _fetch(self.test, samples[start : start + _EVALUATION_BATCH])
                output = self.module(inputs)
                loss += self.loss(output, targets).item() * len(targets)
                score += self.score(output, targets).sum().item()
        return loss / len(samples), score / len(samples)

    def _bind(self, model: Tensor, gradient: Tensor | None) -> None:
        """Make the module's parameters, and their gradients, views of these rows: nothing is copied."""
        start = 0
        for parameter in self._parameters:
            stop = start + parameter.numel()
            parameter.data = model[start:stop].view(parameter.shape)
            parameter.grad = None if gradient is None else gradient[start:stop].view(parameter.shape)
            start = stop


def _flat(parameters: Sequence[nn.Parameter]) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def _length(data: Data) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)  # type: ignore[arg-type]


def _fetch(data: Data, samples: Samples) -> tuple[Tensor, Tensor]:
    if isinstance(data, tuple):
        index = torch.from_numpy(samples)
        return data[0][index], data[1][index]
    inputs, targets = default_collate([data[int(i)] for i in samples])
    return inputs, targets


def _targets(data: Data) -> Tensor:
    if isinstance(data, tuple):
        return data[1]
    if isinstance(data, TensorDataset):
        return data.tensors[1]
    if hasattr(data, "targets"):  # as torchvision's data sets have it
        return torch.as_tensor(data.targets)
    return torch.as_tensor([data[i][1] for i in range(_length(data))])
