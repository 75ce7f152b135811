"""Shakespeare: the next character of a role's text, from the 80 before it. A speaking role is a client.

It is read from LEAF's JSON files, or from the texts of the roles as LEAF keeps them before its last step. Of a text,
the beginning is trained on and the end is for tests, with no character in both. (LEAF itself draws test windows at
random from among the training windows, which overlap them.)
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data.arrays import Arrays, Pair, Precision, check_share, task_of
from gossamer.data.leaf import JSON, json_layouts, leaf_url, read_part
from gossamer.data.sources import Found, Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, StackedLstm

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's 80
LENGTH = 80  # characters in a window

_NUMBERS = np.full(128, LETTERS.index(" "), np.uint8)  # anything else counts as a space
_NUMBERS[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))
_ROLES = "by_play_and_character/*.txt"
_ROLES_FOLDERS = ("shakespeare", "shakespeare/data/raw_data", "leaf/data/shakespeare/data/raw_data")


def numbers(text: str) -> NDArray[np.uint8]:
    """A text as numbers of letters."""
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    found: NDArray[np.uint8] = _NUMBERS[np.minimum(codes, 127)]
    return found


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

    source: ClassVar[Source] = Source(
        "Shakespeare",
        leaf_url("shakespeare"),
        (*json_layouts("shakespeare"), *(Layout(folder, (_ROLES,)) for folder in _ROLES_FOLDERS)),
    )

    def __post_init__(self) -> None:
        check_share(self.test_share)

    def arrays(self) -> Arrays:
        return self._read()[0]

    def load(self) -> Supervised:
        arrays, windows = self._read()
        return task_of(self, arrays, prepare=windows or Tensor.long)

    def _read(self) -> tuple[Arrays, Windows | None]:
        found = self.source.find()
        return self._from_texts(found) if found.layout.files == (_ROLES,) else (self._from_json(found), None)

    def _from_json(self, found: Found) -> Arrays:
        train, test = (read_part(self.source, found, pattern, _Windows, _windows) for pattern in JSON)
        pairs = [(torch.from_numpy(np.concatenate(p.inputs)), torch.from_numpy(p.labels)) for p in (train, test)]
        return Arrays(pairs[0], pairs[1], (len(LETTERS), LENGTH), len(LETTERS), train.clients)

    def _from_texts(self, found: Found) -> tuple[Arrays, Windows]:
        texts: list[NDArray[np.uint8]] = []
        starts: tuple[list[NDArray[np.int64]], ...] = [], []  # of windows for training and for tests
        clients: list[NDArray[np.int64]] = []
        begin = 0
        for path in found.paths(_ROLES):
            with self.source.reading(path):
                text = numbers(_joined(path))
            first = int(len(text) * (1 - self.test_share))  # of the characters for tests
            if first <= LENGTH:
                continue  # too short a role for one window
            texts.append(text)
            starts[0].append(np.arange(begin, begin + first - LENGTH))
            starts[1].append(np.arange(begin + first, begin + max(first, len(text) - LENGTH)))
            clients.append(np.full(len(starts[0][-1]), len(clients)))
            begin += len(text)
        if not texts or not sum(map(len, starts[1])):
            raise self.source.damage(found.folder / _ROLES, "its texts are too short")
        whole = torch.from_numpy(np.concatenate(texts))
        pairs = [_targets(whole, torch.from_numpy(np.concatenate(one))) for one in starts]
        arrays = Arrays(pairs[0], pairs[1], (len(LETTERS), LENGTH), len(LETTERS), np.concatenate(clients))
        return arrays, Windows(whole)


def _joined(path: Path) -> str:
    """A role's text in one line, as LEAF has it."""
    return re.sub(r"  +", " ", path.read_text("utf-8").replace("\n", " "))


def _targets(text: Tensor, starts: Tensor) -> Pair:
    return starts, text[starts + LENGTH].long()


def _windows(user: _Windows) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if any(len(x) != LENGTH for x in user.x) or any(len(y) != 1 for y in user.y):
        raise ValueError(f"a sample is not {LENGTH} characters and the next one")
    return numbers("".join(user.x)).reshape(-1, LENGTH), numbers("".join(user.y)).astype(np.int64)
