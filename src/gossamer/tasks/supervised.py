"""A task from any torch module and any data: minibatches in, one loss out, one score a test sample."""

import copy
import random
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
        """The task itself, once model and data are known to fit."""
        for name, data in (("train", self.train), ("test", self.test)):
            if isinstance(data, tuple) and not (
                len(data) == 2 and all(isinstance(t, Tensor) for t in data) and len(data[0]) == len(data[1])
            ):
                raise ValueError(f"{name} must be two tensors of the same length, inputs and targets, or a dataset")
            if _length(data) == 0:
                raise ValueError(f"{name} has no samples")
        if self.clients is not None and len(self.clients) != self.num_samples:
            raise ValueError(f"clients has {len(self.clients)} entries and train {self.num_samples} samples")
        self._try_out()
        return self

    def _try_out(self) -> None:
        """Train and test once on a few samples, so that what does not fit is known before a run begins."""
        if not self._parameters:
            raise ValueError("the model has no parameter that requires a gradient, so there is nothing to train")
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        few = np.arange(min(2, self.num_samples))
        with torch.random.fork_rng(devices=[]):
            try:
                self.gradient(self.initial_model(0)[None], [few], [0])
                inputs, targets = _fetch(self.test, few[: self.num_test_samples])
                with torch.no_grad():
                    shape = self.score(self.module.eval()(inputs), targets).shape
            except Exception as error:
                raise ValueError(f"the model does not take the data: {type(error).__name__}: {error}") from error
        if shape != (len(targets),):
            raise ValueError(f"score must give one number a sample, of {len(targets)} samples it gave {tuple(shape)}")
        for name, buffer in self.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise ValueError(
                    f"the model's buffer {name!r} changes in training, and would not be shared; leave its layer out, "
                    "or for batch normalization take GroupNorm, or track_running_stats=False"
                )

    @cached_property
    def module(self) -> nn.Module:
        """Where rows are put to be trained and tested; the user's own module is left alone."""
        # Seeded, because what is not trained must be the same in every process.
        module = copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else _seeded(self.model, 0)
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise ValueError(f"parameter {name!r} is {parameter.dtype}; call .float() on the model")
        return module

    @cached_property
    def _parameters(self) -> list[nn.Parameter]:
        return [p for p in self.module.parameters() if p.requires_grad]

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
        try:
            targets = _targets(self.train)
        except (TypeError, ValueError):
            return None  # not numbers, so only partitions that need no labels will do
        return None if targets.is_floating_point() or targets.ndim != 1 else targets.numpy().astype(np.int64)

    def initial_model(self, seed: int) -> Tensor:
        module = self.model if isinstance(self.model, nn.Module) else _seeded(self.model, seed)
        return torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.requires_grad])

    def gradient(self, models: Tensor, samples: Sequence[Samples], seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        self.module.train()
        gradients = torch.zeros_like(models)
        losses = torch.zeros(len(models))
        for row, (batch, seed) in enumerate(zip(samples, seeds, strict=True)):
            _seed_all(seed, self.train)
            self._bind(models[row], gradients[row])
            inputs, targets = _fetch(self.train, batch)
            loss = self.loss(self.module(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            losses[row] = loss.detach()
        return losses, gradients

    def evaluate(self, model: Tensor, samples: Samples) -> tuple[float, float]:
        self.module.eval()
        self._bind(model, None)
        _seed_all(0, self.test)
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


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def _seed_all(seed: int, data: Data) -> None:
    """Seed whatever a model or the transforms of a dataset may draw from."""
    torch.default_generator.manual_seed(seed)
    if not isinstance(data, tuple):
        np.random.seed(seed % 2**32)
        random.seed(seed)


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
