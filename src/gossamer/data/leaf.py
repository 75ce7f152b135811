"""FEMNIST and CelebA as LEAF prepares them (Caldas et al., "LEAF: a benchmark for federated settings", 2018).

LEAF's `preprocess.sh` leaves JSON files in data/train and data/test:
{"users": [name, ...], "user_data": {name: {"x": [...], "y": [...]}}}. A user (a writer, a celebrity) is a client.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data.arrays import Arrays, Normalize, Precision, checked_labels, crop_and_flip, task_of
from gossamer.data.images import NORMALIZE, read_image
from gossamer.data.sources import Found, Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, CelebaCnn, FemnistCnn

JSON = ("data/train/*.json", "data/test/*.json")
Content = TypeVar("Content", bound=msgspec.Struct)


def leaf_url(name: str) -> str:
    return f"https://github.com/TalwalkarLab/leaf/tree/master/data/{name} (its preprocess.sh)"


def json_layouts(name: str) -> tuple[Layout, ...]:
    return tuple(Layout(folder, JSON) for folder in (name, f"leaf/data/{name}"))


class Part(NamedTuple):
    """Training or test samples, in the order of files and users."""

    inputs: list[Any]  # a user's samples each, as they were converted
    labels: NDArray[np.int64]  # of all samples
    clients: NDArray[np.int64]  # counted from 0


class _File(msgspec.Struct):
    users: list[str]
    user_data: dict[str, msgspec.Raw]  # read one user at a time: as Python's numbers a file takes gigabytes


def read_part(
    source: Source, found: Found, pattern: str, kind: type[Content], convert: Callable[[Content], tuple[Any, Any]]
) -> Part:
    """What the files of this pattern hold; `convert` makes arrays of one user's x and y."""
    inputs: list[Any] = []
    labels: list[NDArray[np.int64]] = []
    clients: list[NDArray[np.int64]] = []
    for path in found.paths(pattern):
        with source.reading(path):
            for user in _users(path, kind):
                x, y = convert(user)
                inputs.append(x)
                labels.append(y)
                clients.append(np.full(len(y), len(clients)))
    if not inputs:
        raise source.damage(found.folder / pattern, "it has no samples")
    return Part(inputs, np.concatenate(labels).astype(np.int64), np.concatenate(clients))


def _users(path: Path, kind: type[Content]) -> Iterator[Content]:
    content = msgspec.json.decode(path.read_bytes(), type=_File)
    for name in content.users:
        if name not in content.user_data:
            raise ValueError(f"it has no data of its user {name!r}")
        user: Any = msgspec.json.decode(content.user_data[name], type=kind)
        if len(user.x) != len(user.y):
            raise ValueError(f"its user {name!r} has {len(user.x)} samples and {len(user.y)} labels")
        if user.x:
            yield user


class _Characters(msgspec.Struct):
    x: list[list[float]]
    y: list[int]


class _Photographs(msgspec.Struct):
    x: list[str]
    y: list[int | str]


@dataclass(frozen=True)
class Femnist:
    """FEMNIST: handwritten letters and digits of 28x28 pixels, 62 classes; a writer is a client."""

    model: Architecture = FemnistCnn()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random

    source: ClassVar[Source] = Source("FEMNIST", leaf_url("femnist"), json_layouts("femnist"))

    def arrays(self) -> Arrays:
        found = self.source.find()
        train, test = (read_part(self.source, found, pattern, _Characters, _pixels) for pattern in JSON)
        pairs = [(torch.from_numpy(np.concatenate(p.inputs)), torch.from_numpy(p.labels)) for p in (train, test)]
        return Arrays(pairs[0], pairs[1], (1, 28, 28), 62, train.clients)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Normalize(), augment=crop_and_flip if self.augment else None)


def _pixels(user: _Characters) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """LEAF's numbers from 0 to 1 are bytes divided by 255, so nothing is lost."""
    if any(len(image) != 28 * 28 for image in user.x):
        raise ValueError("an image does not have 784 pixels")
    values = np.array(user.x)
    if not (values.min() >= 0 and values.max() <= 1):
        raise ValueError("a pixel is not between 0 and 1")
    labels = checked_labels(np.array(user.y), 62).numpy()
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 1, 28, 28), labels


@dataclass(frozen=True)
class CelebA:
    """CelebA: photographs of faces at 84x84 pixels, smiling or not; a celebrity is a client."""

    model: Architecture = CelebaCnn()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random

    source: ClassVar[Source] = Source("CelebA", leaf_url("celeba"), json_layouts("celeba"))

    def arrays(self) -> Arrays:
        found = self.source.find()
        train, test = (read_part(self.source, found, pattern, _Photographs, _names) for pattern in JSON)
        pairs = [(self._photographs(found, p.inputs), torch.from_numpy(p.labels)) for p in (train, test)]
        return Arrays(pairs[0], pairs[1], (3, 84, 84), 2, train.clients)

    def _photographs(self, found: Found, users: list[list[str]]) -> Tensor:
        names = [name for user in users for name in user]
        images = torch.empty(len(names), 3, 84, 84, dtype=torch.uint8)
        for image, name in zip(images, names, strict=True):
            path = found.folder / "data" / "raw" / "img_align_celeba" / name
            with self.source.reading(path):
                image.copy_(read_image(path, 84, crop=False))
        return images

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=NORMALIZE, augment=crop_and_flip if self.augment else None)


def _names(user: _Photographs) -> tuple[list[str], NDArray[np.int64]]:
    for name in user.x:
        if not re.fullmatch(r"\w+\.(jpg|png)", name):
            raise ValueError(f"{name!r} is not the name of a photograph")
    return user.x, checked_labels(np.array([int(label) for label in user.y]), 2).numpy()
