"""MNIST, Fashion-MNIST, EMNIST and QMNIST: files in the idx format, plain or gzipped.

QMNIST is MNIST with its writers (Yadav and Bottou, "Cold case: the lost MNIST digits", 2019). It is read from its own
files, whose labels have eight numbers per digit (the class, the series, the writer, ...), or from one NumPy archive
with the arrays x_train, y_train, writer_train, x_test and y_test.

An idx file is a big-endian header (0, 0, type, number of dimensions, then each dimension in four bytes) and the
numbers. The header is believed only as far as there are bytes to match it.
"""

import gzip
import zipfile
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

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
from gossamer.data.sources import Found, Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, GnLeNet

_TYPES = {0x08: ("u1", 1), 0x0C: (">i4", 4)}  # those that these data sets use, and their bytes
_MAX_INFLATION = 1032  # bytes that deflate can make of one


def _read_idx(path: Path, num_dimensions: int, code: int = 0x08) -> NDArray[Any]:
    """The array in an idx file of this type and number of dimensions."""
    size = path.stat().st_size
    kind, num_bytes = _TYPES[code]
    zipped = path.suffix == ".gz"
    with gzip.open(path) if zipped else path.open("rb") as file:
        header = file.read(4 + 4 * num_dimensions)
        if header[:4] != bytes([0, 0, code, num_dimensions]):
            raise ValueError(f"it is not an idx file of {num_dimensions} dimensions")
        shape = np.frombuffer(header, ">u4", offset=4).tolist()
        if len(shape) != num_dimensions:
            raise ValueError("it ends in its header")
        expected = prod(shape) * num_bytes
        if expected > (size * _MAX_INFLATION if zipped else size - len(header)):  # before any of it is allocated
            raise ValueError(f"its header promises {' x '.join(map(str, shape))} numbers, and it is shorter")
        data = file.read(expected + 1)
    if len(data) != expected:
        raise ValueError(f"it has {'more' if len(data) > expected else 'fewer'} bytes than its header says")
    return np.frombuffer(bytearray(data), kind).reshape(shape)


def _read(source: Source, root: str | None, num_classes: int, first_label: int = 0, transposed: bool = False) -> Arrays:
    """Training and test images with their labels; `transposed` ones have rows and columns exchanged."""
    found = source.find(root)

    def pair(images_name: str, labels_name: str) -> Pair:
        images_path, labels_path = found.path(images_name), found.path(labels_name)
        with source.reading(images_path):
            pixels = _read_idx(images_path, 3)
            if not pixels.size:
                raise ValueError("it has no pixels")
            images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 2, 1)) if transposed else pixels)
        with source.reading(labels_path):
            labels = checked_labels(_read_idx(labels_path, 1).astype(np.int64) - first_label, num_classes)
            return same_length(images[:, None], labels)

    train_images, train_labels, test_images, test_labels = found.layout.files
    train, test = pair(train_images, train_labels), pair(test_images, test_labels)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise source.damage(found.path(test_images), "its images are not as large as the training images")
    return Arrays(train, test, tuple(train[0].shape[1:]), num_classes)


_IDX_NAMES = ("images-idx3-ubyte", "labels-idx1-ubyte")
_MNIST_FILES = tuple(f"{part}-{kind}" for part in ("train", "t10k") for kind in _IDX_NAMES)

MNIST = Source(
    "MNIST",
    "https://ossci-datasets.s3.amazonaws.com/mnist/ (the files of http://yann.lecun.com/exdb/mnist/)",
    tuple(Layout(folder, _MNIST_FILES) for folder in ("mnist", "MNIST/raw")),
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)
FASHION_MNIST = Source(
    "Fashion-MNIST",
    "https://github.com/zalandoresearch/fashion-mnist",
    tuple(Layout(folder, _MNIST_FILES) for folder in ("fashion-mnist", "FashionMNIST/raw")),
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)
_EMNIST_URL = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
_EMNIST_CLASSES = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}


@dataclass(frozen=True)
class Mnist:
    """MNIST: 70,000 handwritten digits of 28x28 pixels, 10 classes."""

    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = MNIST

    def arrays(self) -> Arrays:
        return _read(self.source, self.root, num_classes=10)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Normalize(), augment=crop_and_flip if self.augment else None)


@dataclass(frozen=True)
class FashionMnist(Mnist):
    """Fashion-MNIST: 70,000 pictures of clothes of 28x28 pixels, 10 classes."""

    source: ClassVar[Source] = FASHION_MNIST


@dataclass(frozen=True)
class Emnist:
    """EMNIST: up to 814,255 handwritten letters and digits of 28x28 pixels, 10 to 62 classes."""

    split: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] = "balanced"
    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    @property
    def source(self) -> Source:
        parts = (f"emnist-{self.split}-{part}-{kind}" for part in ("train", "test") for kind in _IDX_NAMES)
        files = tuple(parts)
        folders = ("emnist", "gzip", "EMNIST/raw")
        return Source(f"EMNIST ({self.split})", _EMNIST_URL, tuple(Layout(folder, files) for folder in folders))

    def arrays(self) -> Arrays:
        # Its images lie on their side, and its letters are counted from 1.
        first = int(self.split == "letters")
        return _read(self.source, self.root, _EMNIST_CLASSES[self.split], first, transposed=True)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Normalize(), augment=crop_and_flip if self.augment else None)


_ARCHIVE = "mnist_by_writer.npz"
_QMNIST_FILES = tuple(
    f"qmnist-{part}-{kind}" for part in ("train", "test") for kind in ("images-idx3-ubyte", "labels-idx2-int")
)
_CLASS, _WRITER = 0, 2  # columns of the labels
_ARRAYS = {
    "x_train": (3, "u"),
    "y_train": (1, "ui"),
    "writer_train": (1, "ui"),
    "x_test": (3, "u"),
    "y_test": (1, "ui"),
}


@dataclass(frozen=True)
class Qmnist:
    """MNIST with its writers: 60,000 handwritten digits to train on, 10 classes; a writer is a client."""

    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = Source(
        "QMNIST",
        "https://github.com/facebookresearch/qmnist",
        (
            Layout("qmnist", _QMNIST_FILES),
            Layout("QMNIST/raw", _QMNIST_FILES),
            Layout("mnist-by-writer", (_ARCHIVE,)),
        ),
    )

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        train, test, writers = self._archive(found) if found.layout.files == (_ARCHIVE,) else self._own_files(found)
        numbered = np.unique(writers, return_inverse=True)[1].astype(np.int64)
        return Arrays(train, test, (1, 28, 28), 10, numbered)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Normalize(), augment=crop_and_flip if self.augment else None)

    def _own_files(self, found: Found) -> tuple[Pair, Pair, NDArray[Any]]:
        pairs, writers = [], []
        for images_name, labels_name in zip(_QMNIST_FILES[::2], _QMNIST_FILES[1::2], strict=True):
            with self.source.reading(found.path(images_name)):
                images = _read_idx(found.path(images_name), 3)
            with self.source.reading(found.path(labels_name)):
                table = _read_idx(found.path(labels_name), 2, code=0x0C)
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
            for name in _ARRAYS:
                info = archive.getinfo(f"{name}.npy")
                with archive.open(info) as file:
                    _check_header(name, file, min(info.file_size, info.compress_size * _MAX_INFLATION))
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in _ARRAYS}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ValueError(str(error)) from error


def _check_header(name: str, file: IO[bytes], max_bytes: int) -> None:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is not in the first version of NumPy's format")
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    dimensions, kinds = _ARRAYS[name]
    if len(shape) != dimensions or kind.kind not in kinds:
        raise ValueError(f"{name} is not an array of {dimensions} dimensions of whole numbers")
    if prod(shape) * kind.itemsize > max_bytes:
        raise ValueError(f"{name} promises more numbers than there are")
