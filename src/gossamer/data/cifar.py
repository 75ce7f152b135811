"""CIFAR-10 and CIFAR-100, in the version for Python or the binary one.

Krizhevsky, "Learning multiple layers of features from tiny images", 2009: 60,000 colour photographs of 32x32 pixels,
50,000 of them for training. The files for Python are pickles, which could run anything; `read_pickle` carries out only
the instructions that CIFAR's files need, and calls nothing.
"""

import pickletools
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

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

_URL = "https://www.cs.toronto.edu/~kriz/cifar.html"
_IMAGE_BYTES = 3 * 32 * 32  # red, green and blue planes
Size = Literal[32, 16, 8]  # pixels per side
_NORMALIZE = Normalize(mean=0.5, deviation=0.5)
_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")

CIFAR10 = Source(
    "CIFAR-10",
    _URL,
    (
        Layout("cifar-10-batches-py", _BATCHES),
        Layout("cifar-10-batches-bin", tuple(f"{name}.bin" for name in _BATCHES)),
    ),
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)
CIFAR100 = Source(
    "CIFAR-100",
    _URL,
    (Layout("cifar-100-python", ("train", "test")), Layout("cifar-100-binary", ("train.bin", "test.bin"))),
    md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
)


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10: 60,000 colour photographs of 32x32 pixels, 10 classes."""

    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    size: Size = 32  # pixels per side: 16 or 8 are means of squares of 2 x 2 or 4 x 4
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = CIFAR10

    def __post_init__(self) -> None:
        _check_size(self.size)

    def arrays(self) -> Arrays:
        return _read(self.source, self.root, "labels", label_bytes=1, label_at=0, num_classes=10, size=self.size)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=_NORMALIZE, augment=crop_and_flip if self.augment else None)


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100: 60,000 colour photographs of 32x32 pixels, 100 classes in 20 groups."""

    labels: Literal["fine", "coarse"] = "fine"  # 100 classes, or their 20 groups
    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    size: Size = 32  # pixels per side: 16 or 8 are means of squares of 2 x 2 or 4 x 4
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = CIFAR100

    def __post_init__(self) -> None:
        _check_size(self.size)

    def arrays(self) -> Arrays:
        fine = self.labels == "fine"
        key, num_classes = f"{self.labels}_labels", 100 if fine else 20
        return _read(
            self.source, self.root, key, label_bytes=2, label_at=int(fine), num_classes=num_classes, size=self.size
        )

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=_NORMALIZE, augment=crop_and_flip if self.augment else None)


def _check_size(size: int) -> None:
    if type(size) is not int or size not in get_args(Size):
        raise ValueError(f"size must be 32, 16 or 8 pixels, {size} was given")


def _read(
    source: Source, root: str | None, label_key: str, label_bytes: int, label_at: int, num_classes: int, size: int
) -> Arrays:
    found = source.find(root)

    def read(*names: str) -> Pair:
        capacity = 0  # images, at most
        for path in map(found.path, names):
            with source.reading(path):
                capacity += path.stat().st_size // _IMAGE_BYTES
        images, labels = torch.empty(capacity, 3, size, size, dtype=torch.uint8), []
        end = 0
        for name in names:  # one by one into place, so that they are not all there twice
            path = found.path(name)
            with source.reading(path):
                if name.endswith(".bin"):
                    pixels, numbers = _read_binary(path, label_bytes, label_at)
                else:
                    pixels, numbers = _read_python(path, label_key)
                start, end = end, end + len(pixels)
                images.numpy()[start:end] = _scaled(pixels.reshape(-1, 3, 32, 32), size)
                labels.append(same_length(images[start:end], checked_labels(numbers, num_classes))[1])
        return images[:end], torch.cat(labels)

    *training, test = found.layout.files
    return Arrays(read(*training), read(test), (3, size, size), num_classes)


def _scaled(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Images of so many pixels per side; a pixel is the mean of a square, a half rounded up."""
    if size == images.shape[-1]:
        return images
    factor = images.shape[-1] // size
    sums = images.reshape(-1, 3, size, factor, size, factor).sum((3, 5), dtype=np.uint16)
    means: NDArray[np.uint8] = ((sums + factor**2 // 2) // factor**2).astype(np.uint8)
    return means


def _read_python(path: Path, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if path.stat().st_size == 0:
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        content = read_pickle(data)
    if not isinstance(content, dict) or not {"data", label_key} <= content.keys():
        raise ValueError(f"it has no data and {label_key}")
    labels = content[label_key]
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError(f"its {label_key} are not whole numbers")
    pixels = _pixels(content["data"])
    if pixels.ndim != 2 or pixels.shape[1] != _IMAGE_BYTES:
        raise ValueError(f"its images have the shape {pixels.shape}, not (number, {_IMAGE_BYTES})")
    return pixels, np.array(labels, np.int64)


def _read_binary(path: Path, label_bytes: int, label_at: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    data = np.fromfile(path, np.uint8)
    if len(data) % (label_bytes + _IMAGE_BYTES):
        raise ValueError(f"its {len(data)} bytes are not records of {label_bytes + _IMAGE_BYTES}")
    records = data.reshape(-1, label_bytes + _IMAGE_BYTES)
    return records[:, label_bytes:], records[:, label_at].astype(np.int64)


# Pickles, without `pickle`: a stack machine that makes numbers, texts, lists, tuples, dictionaries and stubs.

_LITERALS = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "BINBYTES", "SHORT_BINBYTES"}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ARRAY = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_GLOBALS = _ARRAY | {"numpy ndarray", "numpy dtype"}


class _Stub:
    """What the file says of an array or its type."""

    def __init__(self, name: str):
        self.name = name
        self.arguments: tuple[Any, ...] = ()
        self.state: tuple[Any, ...] = ()


class _Mark:
    """Where the items of a list, tuple or dictionary begin."""


def read_pickle(data: bytes | mmap) -> Any:
    """What the file holds; ValueError if it asks for anything that CIFAR's files do not."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):  # type: ignore[arg-type]  # a map can be read like a file
        if opcode.name == "STOP":
            return stack.pop()
        _execute(opcode.name, argument, stack, memo)
    raise ValueError("it ends too early")


def _execute(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _LITERALS:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name in ("BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name == "MARK":
        stack.append(_Mark)
    elif name in _TUPLES:
        stack.append(tuple([stack.pop() for _ in range(_TUPLES[name])][::-1]))
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name in ("APPEND", "APPENDS"):
        items = _since_mark(stack) if name == "APPENDS" else [stack.pop()]
        _checked(list, stack[-1]).extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = _since_mark(stack) if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1]
        _checked(dict, stack[-1]).update(zip(items[::2], items[1::2], strict=True))
    elif name == "GLOBAL":
        if argument not in _GLOBALS:
            raise ValueError(f"it asks for {argument!r}, which is no part of this data set")
        stack.append(_Stub(argument))
    elif name == "REDUCE":
        arguments, made = _checked(tuple, stack.pop()), _Stub(_checked(_Stub, stack.pop()).name)
        made.arguments = arguments
        stack.append(made)
    elif name == "BUILD":
        state = _checked(tuple, stack.pop())
        _checked(_Stub, stack[-1]).state = state
    elif name != "PROTO":
        raise ValueError(f"it has the instruction {name}, which is no part of this data set")


def _since_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while (item := stack.pop()) is not _Mark:
        items.append(item)
    return items[::-1]


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it has a {type(value).__name__} in place of a {kind.__name__}")
    return value


def _pixels(stub: Any) -> NDArray[np.uint8]:
    """The array of unsigned bytes that a stub describes, not to be written to."""
    if _checked(_Stub, stub).name not in _ARRAY or len(stub.state) != 5:
        raise ValueError("it has no array where its pixels should be")
    _, shape, kind, by_columns, data = stub.state
    if _checked(_Stub, kind).name != "numpy dtype" or kind.arguments[:1] not in (("u1",), (b"u1",)):
        raise ValueError("its pixels are not unsigned bytes")
    flat = np.frombuffer(data.encode("latin-1") if isinstance(data, str) else _checked(bytes, data), np.uint8)
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
