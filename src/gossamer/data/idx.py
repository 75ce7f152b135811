"""MNIST, Fashion-MNIST and EMNIST: four files in the idx format, plain or gzipped.

An idx file is a big-endian header (0, 0, type, number of dimensions, then each dimension in four bytes) and the
numbers. The header is believed only as far as there are bytes to match it.
"""

import gzip
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal

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
from gossamer.data.sources import Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, GnLeNet

_TYPES = {0x08: ("u1", 1), 0x0C: (">i4", 4)}  # those that these data sets use, and their bytes
_MOST_A_BYTE = 1032  # deflate cannot make more of one byte


def read_idx(path: Path, num_dimensions: int, code: int = 0x08) -> NDArray[Any]:
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
        if expected > (size * _MOST_A_BYTE if zipped else size - len(header)):  # before any of it is allocated
            raise ValueError(f"its header promises {' x '.join(map(str, shape))} numbers, and it is shorter")
        data = file.read(expected + 1)
    if len(data) != expected:
        raise ValueError(f"it has {'more' if len(data) > expected else 'fewer'} bytes than its header says")
    return np.frombuffer(bytearray(data), kind).reshape(shape)


def read_four(source: Source, num_classes: int, first_label: int = 0, turned: bool = False) -> Arrays:
    """Training and test images with their labels; `turned` ones have rows and columns exchanged."""
    found = source.find()

    def pair(images_name: str, labels_name: str) -> Pair:
        images_path, labels_path = found.path(images_name), found.path(labels_name)
        with source.reading(images_path):
            pixels = read_idx(images_path, 3)
            if not pixels.size:
                raise ValueError("it has no pixels")
            images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 2, 1)) if turned else pixels)
        with source.reading(labels_path):
            labels = checked_labels(read_idx(labels_path, 1).astype(np.int64) - first_label, num_classes)
            return same_length(images[:, None], labels)

    train_images, train_labels, test_images, test_labels = found.layout.files
    train, test = pair(train_images, train_labels), pair(test_images, test_labels)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise source.damage(found.path(test_images), "its images are not as large as the training images")
    return Arrays(train, test, tuple(train[0].shape[1:]), num_classes)


_KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
_FILES = tuple(f"{part}-{kind}" for part in ("train", "t10k") for kind in _KINDS)

MNIST = Source(
    "MNIST",
    "https://ossci-datasets.s3.amazonaws.com/mnist/ (the files of http://yann.lecun.com/exdb/mnist/)",
    tuple(Layout(folder, _FILES) for folder in ("mnist", "MNIST/raw")),
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
    tuple(Layout(folder, _FILES) for folder in ("fashion-mnist", "FashionMNIST/raw")),
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

    source: ClassVar[Source] = MNIST

    def arrays(self) -> Arrays:
        return read_four(self.source, num_classes=10)

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

    @property
    def source(self) -> Source:
        parts = (f"emnist-{self.split}-{part}-{kind}" for part in ("train", "test") for kind in _KINDS)
        files = tuple(parts)
        folders = ("emnist", "gzip", "EMNIST/raw")
        return Source(f"EMNIST ({self.split})", _EMNIST_URL, tuple(Layout(folder, files) for folder in folders))

    def arrays(self) -> Arrays:
        # Its images lie on their side, and its letters are counted from 1.
        first = int(self.split == "letters")
        return read_four(self.source, _EMNIST_CLASSES[self.split], first, turned=True)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Normalize(), augment=crop_and_flip if self.augment else None)
