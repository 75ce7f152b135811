"""Which entries of a row are the largest, and what is taken of two rows by a mask.

The k-th largest magnitude is found without sorting. The bits of a float, its sign left out, are in the order of the
magnitudes. So the entries are counted by their highest bits, those that share the bits of the k-th are set aside, and
these are counted by the bits that follow, until none are left. It takes the same few passes whatever the numbers are.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

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


@njit(cache=True)
def pick(marks: Marks, yes: Any, no: Any) -> Any:
    """(B, width): `yes` where marked, else `no`."""
    out = np.empty_like(yes)
    for i in range(yes.shape[0]):
        for j in range(yes.shape[1]):
            marked, other = yes[i, j], no[i, j]  # loaded both, so that no branch is left
            out[i, j] = marked if marks[i, j] else other
    return out


@njit(cache=True)
def pick_or_zero(marks: Marks, yes: Any) -> Any:
    """(B, width): `yes` where marked, else 0."""
    out = np.empty_like(yes)
    zero = yes.dtype.type(0)
    for i in range(yes.shape[0]):
        for j in range(yes.shape[1]):
            marked = yes[i, j]
            out[i, j] = marked if marks[i, j] else zero
    return out
