"""LEAF's data sets (Caldas et al., "LEAF: a benchmark for federated settings", 2018): FEMNIST, CelebA, Shakespeare.

LEAF's `preprocess.sh` leaves _JSON files in data/train and data/test:
{"users": [name, ...], "user_data": {name: {"x": [...], "y": [...]}}}. A user (a writer, a celebrity, a
speaking role) is a client.

Shakespeare is read from these files, or from the texts of the roles as LEAF keeps them before its last step. Of a text,
the beginning is trained on and the end is for tests, with no character in both. (LEAF itself draws test windows at
random from among the training windows, which overlap them.)
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data.arrays import (
    Arrays,
    Normalize,
    Pair,
    Precision,
    check_share,
    checked_labels,
    crop_and_flip,
    task_of,
)
from gossamer.data.images import NORMALIZE, read_image
from gossamer.data.sources import Found, Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, CelebaCnn, FemnistCnn, StackedLstm

_JSON = ("data/train/*.json", "data/test/*.json")
Content = TypeVar("Content", bound=msgspec.Struct)


def _url(name: str) -> str:
    return f"https://github.com/TalwalkarLab/leaf/tree/master/data/{name} (its preprocess.sh)"


def _json_layouts(name: str) -> tuple[Layout, ...]:
    return tuple(Layout(folder, _JSON) for folder in (name, f"leaf/data/{name}"))


class _Part(NamedTuple):
    """Training or test samples, in the order of files and users."""

    inputs: list[Any]  # a user's samples each, as they were converted
    labels: NDArray[np.int64]  # of all samples
    clients: NDArray[np.int64]  # counted from 0
    users: list[str]  # their names


class _File(msgspec.Struct):
    users: list[str]
    user_data: dict[str, msgspec.Raw]  # read one user at a time: as Python's numbers a file takes gigabytes


def _read_part(
    source: Source, found: Found, pattern: str, kind: type[Content], convert: Callable[[Content], tuple[Any, Any]]
) -> _Part:
    """What the files of this pattern hold; `convert` makes arrays of one user's x and y."""
    inputs: list[Any] = []
    labels: list[NDArray[np.int64]] = []
    clients: list[NDArray[np.int64]] = []
    users: list[str] = []
    for path in found.paths(pattern):
        with source.reading(path):
            for name, user in _users(path, kind):
                x, y = convert(user)
                inputs.append(x)
                labels.append(y)
                clients.append(np.full(len(y), len(clients)))
                users.append(name)
    if not inputs:
        raise source.damage(found.folder / pattern, "it has no samples")
    return _Part(inputs, np.concatenate(labels).astype(np.int64), np.concatenate(clients), users)


def _clients(train: _Part, test: _Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whose the training samples are, and whose the test samples, in the same numbers; -1: of no user of the former."""
    numbers = {name: number for number, name in enumerate(train.users)}
    return train.clients, np.array([numbers.get(name, -1) for name in test.users])[test.clients]


def _users(path: Path, kind: type[Content]) -> Iterator[tuple[str, Content]]:
    content = msgspec.json.decode(path.read_bytes(), type=_File)
    for name in content.users:
        if name not in content.user_data:
            raise ValueError(f"it has no data of its user {name!r}")
        user: Any = msgspec.json.decode(content.user_data[name], type=kind)
        if len(user.x) != len(user.y):
            raise ValueError(f"its user {name!r} has {len(user.x)} samples and {len(user.y)} labels")
        if user.x:
            yield name, user


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
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = Source("FEMNIST", _url("femnist"), _json_layouts("femnist"))

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        train, test = (_read_part(self.source, found, pattern, _Characters, _pixels) for pattern in _JSON)
        pairs = [(torch.from_numpy(np.concatenate(p.inputs)), torch.from_numpy(p.labels)) for p in (train, test)]
        return Arrays(pairs[0], pairs[1], (1, 28, 28), 62, *_clients(train, test))

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
    pixels: Literal["centred", "bytes"] = "centred"  # from -1 to 1; or 0 to 255, as in the JWINS authors' code
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = Source("CelebA", _url("celeba"), _json_layouts("celeba"))

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        train, test = (_read_part(self.source, found, pattern, _Photographs, _names) for pattern in _JSON)
        pairs = [(self._photographs(found, p.inputs), torch.from_numpy(p.labels)) for p in (train, test)]
        return Arrays(pairs[0], pairs[1], (3, 84, 84), 2, *_clients(train, test))

    def _photographs(self, found: Found, users: list[list[str]]) -> Tensor:
        names = [name for user in users for name in user]
        images = torch.empty(len(names), 3, 84, 84, dtype=torch.uint8)
        for image, name in zip(images, names, strict=True):
            path = found.folder / "data" / "raw" / "img_align_celeba" / name
            with self.source.reading(path):
                image.copy_(read_image(path, 84, crop=False))
        return images

    def load(self) -> Supervised:
        prepare = NORMALIZE if self.pixels == "centred" else Normalize(deviation=1 / 255)
        return task_of(self, self.arrays(), prepare=prepare, augment=crop_and_flip if self.augment else None)


def _names(user: _Photographs) -> tuple[list[str], NDArray[np.int64]]:
    for name in user.x:
        if not re.fullmatch(r"\w+\.(jpg|png)", name):
            raise ValueError(f"{name!r} is not the name of a photograph")
    return user.x, checked_labels(np.array([int(label) for label in user.y]), 2).numpy()


LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's 80
LENGTH = 80  # characters in a window

_NUMBERS = np.full(128, LETTERS.index(" "), np.uint8)  # anything else counts as a space
_NUMBERS[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))
_ROLES = "by_play_and_character/*.txt"
_ROLES_FOLDERS = ("shakespeare", "shakespeare/data/raw_data", "leaf/data/shakespeare/data/raw_data")


def letter_numbers(text: str) -> NDArray[np.uint8]:
    """A text as numbers of letters."""
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    letters: NDArray[np.uint8] = _NUMBERS[np.minimum(codes, 127)]
    return letters


@dataclass(frozen=True, eq=False)
class Windows:
    """Where windows begin to the windows themselves, so that a text is in memory once and not 80 times."""

    text: Tensor  # (characters,) uint8

    def __call__(self, starts: Tensor) -> Tensor:
        return self.text[starts[:, None] + torch.arange(LENGTH)].long()


class _Windows(msgspec.Struct):
    x: list[str]
    y: list[str]


@dataclass(frozen=True)
class Shakespeare:
    """Shakespeare's plays: the next of 80 characters, from the 80 before it; a speaking role is a client."""

    test_share: float = 0.2  # of every role's text, if texts are read
    model: Architecture = StackedLstm()
    precision: Precision = "float32"
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = Source(
        "Shakespeare",
        _url("shakespeare"),
        (*_json_layouts("shakespeare"), *(Layout(folder, (_ROLES,)) for folder in _ROLES_FOLDERS)),
    )

    def __post_init__(self) -> None:
        check_share(self.test_share)

    def arrays(self) -> Arrays:
        return self._read()[0]

    def load(self) -> Supervised:
        arrays, windows = self._read()
        return task_of(self, arrays, prepare=windows or Tensor.long)

    def _read(self) -> tuple[Arrays, Windows | None]:
        found = self.source.find(self.root)
        return self._from_texts(found) if found.layout.files == (_ROLES,) else (self._from_json(found), None)

    def _from_json(self, found: Found) -> Arrays:
        train, test = (_read_part(self.source, found, pattern, _Windows, _windows) for pattern in _JSON)
        pairs = [(torch.from_numpy(np.concatenate(p.inputs)), torch.from_numpy(p.labels)) for p in (train, test)]
        return Arrays(pairs[0], pairs[1], (len(LETTERS), LENGTH), len(LETTERS), *_clients(train, test))

    def _from_texts(self, found: Found) -> tuple[Arrays, Windows]:
        texts: list[NDArray[np.uint8]] = []
        starts: tuple[list[NDArray[np.int64]], ...] = [], []  # of windows for training and for tests
        clients: tuple[list[NDArray[np.int64]], ...] = [], []
        begin = 0
        for path in found.paths(_ROLES):
            with self.source.reading(path):
                text = letter_numbers(_joined(path))
            first = int(len(text) * (1 - self.test_share))  # of the characters for tests
            if first <= LENGTH:
                continue  # too short a role for one window
            texts.append(text)
            starts[0].append(np.arange(begin, begin + first - LENGTH))
            starts[1].append(np.arange(begin + first, begin + max(first, len(text) - LENGTH)))
            for part in (0, 1):
                clients[part].append(np.full(len(starts[part][-1]), len(clients[part])))
            begin += len(text)
        if not texts or not sum(map(len, starts[1])):
            raise self.source.damage(found.folder / _ROLES, "its texts are too short")
        whole = torch.from_numpy(np.concatenate(texts))
        pairs = [_targets(whole, torch.from_numpy(np.concatenate(one))) for one in starts]
        whose = [np.concatenate(one) for one in clients]
        arrays = Arrays(pairs[0], pairs[1], (len(LETTERS), LENGTH), len(LETTERS), *whose)
        return arrays, Windows(whole)


def _joined(path: Path) -> str:
    """A role's text in one line, as LEAF has it."""
    return re.sub(r"  +", " ", path.read_text("utf-8").replace("\n", " "))


def _targets(text: Tensor, starts: Tensor) -> Pair:
    return starts, text[starts + LENGTH].long()


def _windows(user: _Windows) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if any(len(x) != LENGTH for x in user.x) or any(len(y) != 1 for y in user.y):
        raise ValueError(f"a sample is not {LENGTH} characters and the next one")
    return letter_numbers("".join(user.x)).reshape(-1, LENGTH), letter_numbers("".join(user.y)).astype(np.int64)
