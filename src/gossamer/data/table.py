"""Your own table: a csv or Parquet file in which one column is to be predicted from the others.

Columns of numbers are scaled to mean 0 and deviation 1 over the training rows, and what is missing becomes the mean.
Columns of words become one column per word. Several sites that train together, each with a table of its own, must do so
in the same way: then `numbers`, `words` and `classes` say how, and `gossamer data agree` writes them.
"""

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from gossamer.data.arrays import Arrays, Precision, check_share, fixed_split, task_of
from gossamer.data.sources import DataError, Source, own
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, Mlp

_MOST_WORDS = 100  # different ones in a column
Column = list[Any]  # texts, numbers, or None where nothing is known


def absolute_error(output: Tensor, target: Tensor) -> Tensor:
    """How far each prediction is off."""
    return (output.squeeze(-1) - target).abs()


def square_error(output: Tensor, target: Tensor) -> Tensor:
    """The mean square of how far predictions are off."""
    return functional.mse_loss(output.squeeze(-1), target)


@dataclass(frozen=True)
class Table:
    """Your own csv or Parquet file, of which one column is to be predicted from the others."""

    file: str  # inside the directory with data
    target: str  # the column to predict: classes, or numbers if regression
    regression: bool = False
    client: str | None = None  # the column that says whose a row is
    leave_out: tuple[str, ...] = ()  # columns not to look at, such as numbers of rows
    test_share: float = 0.2  # which rows is fixed
    model: Architecture = Mlp()
    precision: Precision = "float32"
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names
    numbers: tuple[
        tuple[str, float, float], ...
    ] = ()  # columns of numbers with mean and deviation; by default the file's
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()  # columns of words with their words; others become zeros
    classes: tuple[str, ...] = ()  # of the target, in order

    def __post_init__(self) -> None:
        own(self.file)
        if any(deviation <= 0 for _, _, deviation in self.numbers):
            raise ValueError("numbers: a deviation must be above 0")
        check_share(self.test_share)
        if not self.file.endswith((".csv", ".parquet")):
            raise ValueError(f"file must end in .csv or .parquet, {self.file!r} was given")

    @property
    def source(self) -> Source:
        return own(self.file)

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        path = found.path(found.layout.files[0])
        with self.source.reading(path):
            columns = read_columns(path)
            self.check_columns(path, columns)
            targets, outputs = self._targets(columns[self.target])
            train, test = fixed_split(len(targets), self.test_share)
            if self.numbers or self.words:
                tables = self._agreed(columns)
            else:
                tables = [_numbers(name, columns[name], train.numpy()) for name in self.input_columns(columns)]
            if not tables:
                raise ValueError("it has no column to predict from")
            inputs = torch.from_numpy(np.concatenate(tables, 1))
        numbers = None if self.client is None else _numbered(columns[self.client])[1]
        clients = [None if numbers is None else numbers[part.numpy()] for part in (train, test)]
        pairs = [(inputs[part], targets[part]) for part in (train, test)]
        return Arrays(pairs[0], pairs[1], (inputs.shape[1],), outputs, *clients)

    def inputs(self, path: str | os.PathLike[str]) -> Tensor:
        """(rows, columns): what the model takes for the rows of a file, such as new ones, which need not have the
        target. For tables whose `numbers` and `words` are given, as `gossamer data agree` writes them."""
        if not (self.numbers or self.words):
            raise DataError("numbers and words say how rows become inputs; give them, as gossamer data agree does")
        path = Path(path)
        with self.source.reading(path):
            columns = read_columns(path)
            for name in [name for name, *_ in (*self.numbers, *self.words)]:
                if name not in columns:
                    raise DataError(f"{path} has no column {name!r}, only {', '.join(columns)}")
            return torch.from_numpy(np.concatenate(self._agreed(columns), 1))

    def _agreed(self, columns: dict[str, Column]) -> list[NDArray[np.float32]]:
        """The columns to predict from, as `numbers` and `words` say."""
        tables = [_scaled(_as_numbers(name, columns[name]), mean, std) for name, mean, std in self.numbers]
        return tables + [_one_hot(columns[name], words) for name, words in self.words]

    def check_columns(self, path: Path, columns: dict[str, Column]) -> None:
        agreed = [name for name, *_ in (*self.numbers, *self.words)]
        for name in (self.target, *self.leave_out, *([self.client] if self.client else []), *agreed):
            if name not in columns:
                raise DataError(f"{path} has no column {name!r}, only {', '.join(columns)}")

    def input_columns(self, columns: dict[str, Column]) -> list[str]:
        """Those to predict from."""
        return [name for name in columns if name not in {self.target, self.client, *self.leave_out}]

    def _targets(self, column: Column) -> tuple[Tensor, int]:
        if any(value is None for value in column):
            raise ValueError(f"its column {self.target!r} has empty places")
        if self.regression:
            return torch.tensor([float(value) for value in column]), 1
        if not self.classes:
            names, numbers = _numbered(column)
            return torch.from_numpy(numbers), len(names)
        if strange := sorted({str(value) for value in column} - {*self.classes}):
            raise ValueError(
                f"its column {self.target!r} has {strange[0]!r}, and the classes are {', '.join(self.classes)}"
            )
        return torch.tensor([self.classes.index(str(value)) for value in column]), len(self.classes)

    def load(self) -> Supervised:
        if not self.regression:
            return task_of(self, self.arrays())
        measure = {"score": absolute_error, "metric": "absolute_error", "higher_is_better": False}
        return task_of(self, self.arrays(), loss=square_error, **measure)


def read_columns(path: Path) -> dict[str, Column]:
    """The columns of a csv or Parquet file. ValueError if it is damaged."""
    return _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)


def _read_csv(path: Path) -> dict[str, Column]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = list(csv.reader(file, strict=True)) or [[]]
    if len(set(header)) != len(header) or not rows:
        raise ValueError("it needs a first line with the columns' names, all different, and rows")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"line {number} has {len(row)} fields, and there are {len(header)} columns")
    return {name: [row[i] or None for row in rows] for i, name in enumerate(header)}


def _read_parquet(path: Path) -> dict[str, Column]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError("Parquet is read with pyarrow; install gossamer[arrow]") from error
    columns: dict[str, Column] = parquet.read_table(path).to_pydict()
    return columns


def _numbered(column: Column) -> tuple[list[str], NDArray[np.int64]]:
    """The different values, and the number of each place's."""
    names = sorted({str(value) for value in column}, key=_in_order)
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.array([numbers[str(value)] for value in column], np.int64)


def _in_order(name: str) -> tuple[float, str]:
    try:
        return float(name), name
    except ValueError:
        return float("inf"), name


def is_number(column: Column) -> bool:
    """Is everything in it a number, or missing?"""
    try:
        _as_numbers("", column)
    except ValueError:
        return False
    return True


def _as_numbers(name: str, column: Column) -> NDArray[np.float64]:
    """NaN where nothing is known. ValueError if something is no number."""
    values = np.full(len(column), np.nan)
    for row, value in enumerate(column):
        try:
            values[row] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            raise ValueError(f"its column {name!r} has {value!r} where a number belongs") from None
    return values


def _numbers(name: str, column: Column, train: NDArray[np.int64]) -> NDArray[np.float32]:
    """(rows, 1) of a column of numbers, (rows, words) of one of words."""
    if not is_number(column):
        words, places = _numbered(column)
        if len(words) > _MOST_WORDS:
            raise ValueError(f"its column {name!r} has {len(words)} different words; name it in leave_out")
        return np.eye(len(words), dtype=np.float32)[places]
    values = _as_numbers(name, column)
    known = values[train][np.isfinite(values[train])]
    mean, deviation = (known.mean(), known.std()) if len(known) else (0.0, 0.0)
    return _scaled(values, mean, deviation or 1.0)


def _scaled(values: NDArray[np.float64], mean: float, deviation: float) -> NDArray[np.float32]:
    """(rows, 1); what is missing becomes the mean."""
    return np.where(np.isfinite(values), (values - mean) / deviation, 0.0).astype(np.float32)[:, None]


def _one_hot(column: Column, words: tuple[str, ...]) -> NDArray[np.float32]:
    """(rows, words); of a word that is not among them, zeros."""
    texts = np.array([str(value) for value in column])
    return (
        (texts[:, None] == np.array(words)[None, :]).astype(np.float32)
        if words
        else np.zeros((len(texts), 0), np.float32)
    )
