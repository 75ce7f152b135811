"""Which entries of a vector are worth sending."""

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core.rng import Streams

Marks = NDArray[np.bool_]
FIRST_BITS, NEXT_BITS = 11, 10  # a float32 without its sign in three goes: the tables stay in the first cache


@njit(cache=True)
def _bin_of(counts: Any, num_bins: int, k: int) -> tuple[int, int]:
    """The bin of the k-th largest, counted from 1, and how many lie in higher bins."""
    above, place = 0, num_bins - 1
    while above + counts[place] < k:
        above += counts[place]
        place -= 1
    return place, above


@njit(cache=True)
def _threshold(row: Any, k: int, kept: Any, counts: Any) -> tuple[Any, int, int]:
    """The k-th largest magnitude's bits, how many of the k are equal to it, and how many entries are in all."""
    magnitude, shift = np.uint32(0x7FFFFFFF), np.uint32(31 - FIRST_BITS)
    counts[:] = 0
    for j in range(row.size):
        counts[(row[j] & magnitude) >> shift] += 1
    place, above = _bin_of(counts, 1 << FIRST_BITS, k)
    k -= above
    num_kept = 0
    for j in range(row.size):
        key = row[j] & magnitude
        kept[num_kept] = key  # overwritten by the next, unless it counts
        num_kept += key >> shift == place
    mask = np.uint32((1 << NEXT_BITS) - 1)
    while shift > 0:
        shift -= np.uint32(NEXT_BITS)
        counts[: 1 << NEXT_BITS] = 0
        for j in range(num_kept):
            counts[(kept[j] >> shift) & mask] += 1
        place, above = _bin_of(counts, 1 << NEXT_BITS, k)
        k -= above
        found = 0
        for j in range(num_kept):
            key = kept[j]
            kept[found] = key
            found += (key >> shift) & mask == place
        num_kept = found
    return kept[0], k, num_kept


@njit(cache=True)
def mark_largest(rows: NDArray[np.uint32], num_largest: NDArray[np.int64]) -> Marks:
    """(B, width): the num_largest[i] largest magnitudes of row i, float32 given by their bits; of equals the first."""
    num_rows, width = rows.shape
    magnitude = np.uint32(0x7FFFFFFF)
    marks = np.empty((num_rows, width), np.bool_)
    kept = np.empty(width, np.uint32)
    counts = np.empty(1 << FIRST_BITS, np.int64)
    for i in range(num_rows):
        row, out = rows[i], marks[i]
        if num_largest[i] >= width:
            out[:] = True
            continue
        threshold, left, num_equal = _threshold(row, num_largest[i], kept, counts)
        for j in range(width):
            out[j] = row[j] & magnitude >= threshold
        j = width
        while num_equal > left:  # the last of the equals are one too many
            j -= 1
            if row[j] & magnitude == threshold:
                out[j] = False
                num_equal -= 1
    return marks


def count(fraction: float, width: int) -> int:
    """How many of `width` entries a kept fraction means: the nearest whole number, and at least one."""
    return min(width, max(1, int(fraction * width + 0.5)))


def largest(x: Tensor, fraction: Tensor) -> Tensor:
    """(B, D) bool: the `fraction` (B, 1) of each row's entries, float32, with the largest |x|; of equals the first."""
    assert x.dtype == torch.float32
    num_largest = np.array([count(kept, x.shape[-1]) for kept in fraction[:, 0].tolist()], np.int64)
    return torch.from_numpy(mark_largest(x.contiguous().numpy().view(np.uint32), num_largest))


def random_entries(rng: Streams, fraction: float, width: int) -> Tensor:
    """(B, width) bool: a uniformly random `fraction` of the entries of each row, that anyone can draw again."""
    keys = rng.raw("entries", width)
    last = count(fraction, width) - 1
    return torch.from_numpy(keys <= np.partition(keys, last, axis=-1)[:, last : last + 1])
