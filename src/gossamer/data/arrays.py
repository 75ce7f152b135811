"""What a loader reads, and the task that becomes of it."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gossamer.core.kernels import njit
from gossamer.core.rng import permutation, philox
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture
from gossamer.models.low_precision import to_int8

Precision = Literal["float32", "int8"]  # int8: layers compute in eight bits, after `gossamer.models.low_precision`
Pair = tuple[Tensor, Tensor]  # inputs and targets


class Arrays(NamedTuple):
    """A data set in memory: images as bytes, text as whole numbers. Never expanded, and shared by forked workers."""

    train: Pair
    test: Pair
    inputs: tuple[int, ...]  # what one sample is, as `gossamer.models` has it
    outputs: int  # numbers that a model gives: the classes
    clients: NDArray[np.int64] | None = None  # whose each training sample is
    test_clients: NDArray[np.int64] | None = None  # whose each test sample is, in the same numbers; -1: nobody's there


@njit(cache=True)
def _look_up(values: NDArray[np.uint8], table: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for i in range(values.size):
        out[i] = table[values[i]]


@dataclass(frozen=True)
class Normalize:
    """Bytes of images to numbers: (value / 255 - mean) / deviation."""

    mean: float = 0.0
    deviation: float = 1.0

    def __call__(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8 or images.device.type != "cpu":
            return self._formula(images)
        out = torch.empty(images.shape)
        _look_up(images.contiguous().numpy().reshape(-1), self._table, out.numpy().reshape(-1))
        return out

    def _formula(self, images: Tensor) -> Tensor:
        return images.to(torch.float32, copy=True).div_(255).sub_(self.mean).div_(self.deviation)

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        """The number of every byte."""
        table: NDArray[np.float32] = self._formula(torch.arange(256)).numpy()
        return table


class HasModel(Protocol):
    """What the tasks on data sets have in common."""

    @property
    def model(self) -> Architecture: ...
    @property
    def precision(self) -> Precision: ...


def task_of(settings: HasModel, arrays: Arrays, **more: Any) -> Supervised:
    """The task on these data with the model that the settings name; `more` is for `Supervised`."""
    build = partial(_build, settings.model, settings.precision, arrays)
    more |= {"clients": arrays.clients, "test_clients": arrays.test_clients}
    return Supervised(build, arrays.train, arrays.test, **more).load()


def _build(model: Architecture, precision: Precision, arrays: Arrays) -> nn.Module:
    module = model.build(arrays.inputs, arrays.outputs)
    return to_int8(module) if precision == "int8" else module


def crop_and_flip(images: Tensor) -> Tensor:
    """Each image shifted by up to 4 pixels each way, or an eighth of its side if that is less, zeros coming in, and
    half of them mirrored: (N, C, H, W)."""
    number, channels, height, width = images.shape
    reach = min(4, -(-height // 8))
    padded = functional.pad(images, (reach,) * 4)
    shifts, mirrored = torch.randint(0, 2 * reach + 1, (2, number, 1)), torch.rand(number, 1) < 0.5
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.where(mirrored, torch.arange(width - 1, -1, -1), torch.arange(width))
    sample, channel = torch.arange(number)[:, None, None, None], torch.arange(channels)[None, :, None, None]
    return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


def fixed_split(number: int, test_share: float) -> tuple[Tensor, Tensor]:
    """Training and test samples where a data set does not say: always the same ones, at least one of each."""
    if number < 2:
        raise ValueError("it has too few samples to divide")
    order = permutation(philox(0, "test samples"), number)
    test, train = np.split(order, [min(max(1, round(test_share * number)), number - 1)])
    return torch.from_numpy(np.sort(train)), torch.from_numpy(np.sort(test))


def check_share(test_share: float) -> None:
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, {test_share} was given")


def checked_labels(labels: NDArray[Any], num_classes: int) -> Tensor:
    """Labels as a model takes them; ValueError if one is out of range."""
    if len(labels) == 0:
        raise ValueError("it has no samples")
    if labels.min() < 0 or labels.max() >= num_classes:
        worst = labels.min() if labels.min() < 0 else labels.max()
        raise ValueError(f"a label is {worst}, and there are only the classes 0 to {num_classes - 1}")
    return torch.from_numpy(labels.astype(np.int64))


def same_length(inputs: Tensor, targets: Tensor) -> Pair:
    """Both, if they belong together."""
    if len(inputs) != len(targets):
        raise ValueError(f"there are {len(inputs)} samples and {len(targets)} labels")
    return inputs, targets
