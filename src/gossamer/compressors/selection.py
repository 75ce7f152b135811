"""Which entries of a vector are worth sending."""

import numpy as np
import torch
from torch import Tensor

from gossamer.rng import Streams


def count(fraction: float, width: int) -> int:
    """How many of `width` entries a kept fraction means: the nearest whole number, and at least one."""
    return min(width, max(1, int(fraction * width + 0.5)))


def largest(scores: Tensor, fraction: Tensor) -> Tensor:
    """(B, D) bool: the largest `fraction` (B, 1) of each row's scores; of equal scores the first ones."""
    width = scores.shape[-1]
    sent = np.zeros(scores.shape, dtype=bool)
    for row, kept, marks in zip(scores.numpy(), fraction[:, 0].tolist(), sent, strict=True):
        num_kept = count(kept, width)
        threshold = np.partition(row, width - num_kept)[width - num_kept]
        np.greater(row, threshold, out=marks)
        missing = num_kept - np.count_nonzero(marks)
        marks[np.flatnonzero(row == threshold)[:missing]] = True
    return torch.from_numpy(sent)


def random_entries(rng: Streams, fraction: float, width: int) -> Tensor:
    """(B, width) bool: a uniformly random `fraction` of the entries of each row, that anyone can draw again."""
    keys = rng.raw("entries", width)
    last = count(fraction, width) - 1
    return torch.from_numpy(keys <= np.partition(keys, last, axis=-1)[:, last : last + 1])
