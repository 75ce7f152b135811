"""MNIST with the writers' names: QMNIST (Yadav and Bottou, "Cold case: the lost MNIST digits", 2019).

It is read from QMNIST's own files, whose labels have eight numbers a digit (the class, the series, the writer, ...), or
from one NumPy archive with the arrays x_train, y_train, writer_train, x_test and y_test.
"""

import zipfile
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.data.arrays import (
    Arrays,
    Normalize,
    Pair,
    Precision,
    checked_labels,
    crop_and_flip,
    same_length,
    task_of,
)
from gossamer.data.idx import read_idx
from gossamer.data.sources import Found, Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, GnLeNet

_ARCHIVE = "mnist_by_writer.npz"
_FILES = tuple(
    f"qmnist-{part}-{kind}" for part in ("train", "test") for kind in ("images-idx3-ubyte", "labels-idx2-int")
)
_CLASS, _WRITER = 0, 2  # columns of the labels
_MOST_A_BYTE = 1032  # deflate cannot make more of one byte
_KINDS = {"x_train": (3, "u"), "y_train": (1, "ui"), "writer_train": (1, "ui"), "x_test": (3, "u"), "y_test": (1, "ui")}


@dataclass(frozen=True)
class Qmnist:
    """MNIST with its writers: 60,000 handwritten digits to train on, 10 classes; a writer is a client."""

    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random

    source: ClassVar[Source] = Source(
        "QMNIST",
        "https://github.com/facebookresearch/qmnist",
        (*(Layout(folder, _FILES) for folder in ("qmnist", "QMNIST/raw")), Layout("mnist-by-writer", (_ARCHIVE,))),
    )

    def arrays(self) -> Arrays:
        found = self.source.find()
        train, test, writers = self._archive(found) if found.layout.files == (_ARCHIVE,) else self._own_files(found)
        numbered = np.unique(writers, return_inverse=True)[1].astype(np.int64)
        return Arrays(train, test, (1, 28, 28), 10, numbered)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Normalize(), augment=crop_and_flip if self.augment else None)

    def _own_files(self, found: Found) -> tuple[Pair, Pair, NDArray[Any]]:
        pairs, writers = [], []
        for images_name, labels_name in zip(_FILES[::2], _FILES[1::2], strict=True):
            with self.source.reading(found.path(images_name)):
                images = read_idx(found.path(images_name), 3)
            with self.source.reading(found.path(labels_name)):
                table = read_idx(found.path(labels_name), 2, code=0x0C)
                if table.shape[1] != 8:
                    raise ValueError(f"a digit has {table.shape[1]} numbers, not 8")
                pairs.append(_pair(images, table[:, _CLASS]))
                writers.append(table[:, _WRITER])
        return pairs[0], pairs[1], writers[0]

    def _archive(self, found: Found) -> tuple[Pair, Pair, NDArray[Any]]:
        path = found.path(_ARCHIVE)
        with self.source.reading(path):
            arrays = _read_archive(path)
            pairs = [_pair(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
            if arrays["writer_train"].shape != arrays["y_train"].shape:
                raise ValueError("there are not as many writers as labels")
        return pairs[0], pairs[1], arrays["writer_train"]


def _pair(images: NDArray[Any], labels: NDArray[Any]) -> Pair:
    if images.shape[1:] != (28, 28):
        raise ValueError(f"its images have the shape {images.shape[1:]}, not (28, 28)")
    return same_length(torch.from_numpy(images[:, None]), checked_labels(labels, 10))


def _read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays, once their headers are known to promise no more than there can be."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in _KINDS:
                info = archive.getinfo(f"{name}.npy")
                with archive.open(info) as file:
                    _check_header(name, file, min(info.file_size, info.compress_size * _MOST_A_BYTE))
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in _KINDS}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ValueError(str(error)) from error


def _check_header(name: str, file: IO[bytes], most_bytes: int) -> None:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is not in the first version of NumPy's format")
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    dimensions, kinds = _KINDS[name]
    if len(shape) != dimensions or kind.kind not in kinds:
        raise ValueError(f"{name} is not an array of {dimensions} dimensions of whole numbers")
    if prod(shape) * kind.itemsize > most_bytes:
        raise ValueError(f"{name} promises more numbers than there are")
