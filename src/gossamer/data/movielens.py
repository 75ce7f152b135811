"""MovieLens: who gave which film how many stars. Harper and Konstan, "The MovieLens datasets", 2015.

The loss is the mean square error in stars. The accuracy is that of decentralizepy, in which JWINS was measured: a
prediction is cut to the range of 0.5 to 5 stars and rounded to the nearest half, and is right if that is the rating.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from gossamer.core.rng import philox
from gossamer.data.arrays import Arrays, Precision, check_share, task_of
from gossamer.data.sources import Layout, Source
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, MatrixFactorization

_URL = "https://grouplens.org/datasets/movielens/"
_SOURCES = {
    "latest-small": Source("MovieLens latest-small", _URL, (Layout("ml-latest-small", ("ratings.csv",)),)),
    "100k": Source("MovieLens 100K", _URL, (Layout("ml-100k", ("u.data",)),)),
    "1m": Source("MovieLens 1M", _URL, (Layout("ml-1m", ("ratings.dat",)),)),
}
_SEPARATORS = {"latest-small": ",", "100k": "\t", "1m": "::"}


def within(stars: float, output: Tensor, target: Tensor) -> Tensor:
    """1 where the prediction, in half stars from 0.5 to 5, is at most so far from the rating, else 0."""
    return (((output.clamp(0.5, 5) * 2).round() / 2 - target).abs() <= stars).float()


@dataclass(frozen=True)
class MovieLens:
    """MovieLens: ratings of films, to be predicted from user and film; a user is a client."""

    version: Literal["latest-small", "100k", "1m"] = "latest-small"
    test_share: float = 0.3  # of every user's ratings; which ones is fixed
    tolerance: float = 0.0  # stars by which a right prediction may be off
    model: Architecture = MatrixFactorization()
    precision: Precision = "float32"
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    def __post_init__(self) -> None:
        check_share(self.test_share)
        if not 0 <= self.tolerance <= 4.5:
            raise ValueError(f"tolerance must be between 0 and 4.5 stars, {self.tolerance} was given")

    @property
    def source(self) -> Source:
        return _SOURCES[self.version]

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        path = found.path(found.layout.files[0])
        with self.source.reading(path):
            user_names, item_names, stars = _read(path, _SEPARATORS[self.version])
        num_users, users = _numbered(user_names)
        num_items, items = _numbered(item_names)
        pairs, targets = torch.from_numpy(np.stack([users, items], 1)), torch.from_numpy(stars)
        test = _last_of_each(users, self.test_share)
        kept = torch.from_numpy(~test)
        train = pairs[kept], targets[kept]
        held = pairs[~kept], targets[~kept]
        return Arrays(train, held, (num_users, num_items), 1, users[~test], users[test])

    def load(self) -> Supervised:
        score = partial(within, self.tolerance)
        return task_of(self, self.arrays(), loss=functional.mse_loss, score=score, metric="accuracy")


def _read(path: Path, separator: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Users, films and stars of every line."""
    text = path.read_text("utf-8")
    if not text.endswith("\n"):
        raise ValueError("its last line is cut")
    lines = text.splitlines()
    begin = int(separator == ",")  # a line of names
    if begin and lines[0] != "userId,movieId,rating,timestamp":
        raise ValueError("its first line is not userId,movieId,rating,timestamp")
    rows = []
    for number, line in enumerate(lines[begin:], start=begin + 1):
        fields = line.split(separator)
        if len(fields) != 4:
            raise ValueError(f"line {number} has {len(fields)} fields, not 4")
        rows.append((int(fields[0]), int(fields[1]), float(fields[2])))
    if len(rows) < 2:
        raise ValueError("it has no ratings")
    table = np.array(rows, np.float64)  # numbers of users and films are exact up to 2^53
    stars = table[:, 2].astype(np.float32)
    if not ((stars >= 0.5) & (stars <= 5) & (stars * 2 % 1 == 0)).all():
        raise ValueError("a rating is not in half stars from 0.5 to 5")
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), stars


def _numbered(names: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """How many there are, and the same counted from 0."""
    known, numbers = np.unique(names, return_inverse=True)
    return len(known), numbers.astype(np.int64)


def _last_of_each(users: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """A fixed random choice of this share of every user's ratings; one rating at least stays."""
    draws = philox(0, "movielens").random_raw(len(users))
    order = np.lexsort((draws, users))
    counts = np.bincount(users)
    rank = np.empty(len(users), np.int64)
    rank[order] = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen: NDArray[np.bool_] = rank < np.minimum(np.rint(share * counts), counts - 1)[users]
    return chosen
