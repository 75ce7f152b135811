"""Texts with a class: AG News, and SentEval's sentence lengths. A text becomes the numbers of its words.

The most frequent words of the training texts have numbers; 0 fills a short text up, and 1 stands for any other word.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.data.arrays import Arrays, Pair, Precision, checked_labels, task_of
from gossamer.data.sources import Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, Transformer

_FILLER, _OTHER = 0, 1
_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")


class Vocabulary:
    """The numbers of the most frequent words."""

    def __init__(self, texts: Iterable[str], size: int):
        counts = Counter(word for text in texts for word in _words(text))
        most = sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]
        self.number = {word: number for number, word in enumerate(most, start=2)}
        self.size = len(most) + 2

    def __call__(self, texts: Sequence[str], length: int) -> Tensor:
        """(texts, length) int32: the first words of each."""
        table = np.full((len(texts), length), _FILLER, np.int32)
        for row, text in zip(table, texts, strict=True):
            words = [self.number.get(word, _OTHER) for word in _words(text)[:length]]
            row[: len(words)] = words
        return torch.from_numpy(table)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


Rows = list[tuple[int, str]]  # label and text


def text_arrays(train: Rows, test: Rows, num_classes: int, vocabulary: int, length: int) -> Arrays:
    """Training and test texts as numbers."""
    words = Vocabulary((text for _, text in train), vocabulary)

    def pair(rows: Rows) -> Pair:
        return words([text for _, text in rows], length), checked_labels(np.array([y for y, _ in rows]), num_classes)

    return Arrays(pair(train), pair(test), (words.size, length), num_classes)


def check_text(vocabulary: int, length: int) -> None:
    if vocabulary < 3:
        raise ValueError(f"vocabulary must be at least 3, {vocabulary} was given")
    if not 1 <= length <= 4096:
        raise ValueError(f"length must be between 1 and 4096 words, {length} was given")


@dataclass(frozen=True)
class AgNews:
    """AG News: 127,600 news in brief, 4 classes: world, sports, business, science."""

    train_file: str = "train.csv"  # another one if it is a part of the official training set
    vocabulary: int = 10_000  # different words that are told apart
    length: int = 64  # words of a text that are read
    model: Architecture = Transformer()
    precision: Precision = "float32"
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    def __post_init__(self) -> None:
        check_text(self.vocabulary, self.length)
        if not re.fullmatch(r"\w[\w.-]*\.csv", self.train_file):
            raise ValueError(f"train_file must be the name of a csv file, {self.train_file!r} was given")

    @property
    def source(self) -> Source:
        files = (self.train_file, "test.csv")
        url = "https://huggingface.co/datasets/fancyzhx/ag_news (the files of Zhang's ag_news_csv.tar.gz)"
        return Source("AG News", url, tuple(Layout(folder, files) for folder in ("ag_news_csv", "ag_news")))

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        parts = []
        for name in found.layout.files:
            with self.source.reading(found.path(name)):
                parts.append(_read_news(found.path(name)))
        return text_arrays(parts[0], parts[1], 4, self.vocabulary, self.length)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Tensor.long)


def _read_news(path: Path) -> Rows:
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        for number, fields in enumerate(csv.reader(file, strict=True), start=1):
            if len(fields) != 3 or fields[0] not in ("1", "2", "3", "4"):
                raise ValueError(f"entry {number} is not a class from 1 to 4, a title and a description")
            rows.append((int(fields[0]) - 1, f"{fields[1]} {fields[2]}"))
    if not rows:
        raise ValueError("it has no texts")
    return rows


@dataclass(frozen=True)
class SentenceLength:
    """SentEval's probing task: in which of 6 ranges a sentence's number of words lies."""

    vocabulary: int = 10_000  # different words that are told apart
    length: int = 32  # words of a sentence that are read
    model: Architecture = Transformer()
    precision: Precision = "float32"
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = Source(
        "SentEval's sentence_length",
        "https://github.com/facebookresearch/SentEval/tree/main/data/probing",
        tuple(Layout(folder, ("sentence_length.txt",)) for folder in ("SentEval/data/probing", "probing", "sentlen")),
    )

    def __post_init__(self) -> None:
        check_text(self.vocabulary, self.length)

    def arrays(self) -> Arrays:
        path = self.source.find(self.root).path("sentence_length.txt")
        with self.source.reading(path):
            parts = _read_sentences(path)
            if not parts["tr"] or not parts["te"]:
                raise ValueError("it has no sentences marked tr, or none marked te")
            num_classes = 1 + max(label for label, _ in parts["tr"])
            return text_arrays(parts["tr"], parts["te"], num_classes, self.vocabulary, self.length)

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=Tensor.long)


def _read_sentences(path: Path) -> dict[str, Rows]:
    """The sentences for training (tr), validation (va) and tests (te)."""
    parts: dict[str, Rows] = {"tr": [], "va": [], "te": []}
    for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        fields = line.split("\t")
        if line and (len(fields) != 3 or fields[0] not in parts or not re.fullmatch(r"\d{1,2}", fields[1])):
            raise ValueError(f"line {number} is not tr, va or te, a class and a sentence")
        if line:
            parts[fields[0]].append((int(fields[1]), fields[2]))
    return parts
