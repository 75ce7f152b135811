"""Numbers as small integers times the scale of their bucket, row by row.

A bucket is a run of consecutive sent entries of a row; `scales` has room for the buckets of a row that is sent whole.
Sums are taken entry after entry in float64, so that a row's bits depend on the row alone: torch adds in another order
if the block has another shape.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

LARGEST, LENGTH, MEAN = 0, 1, 2  # of a bucket: the largest |x|, the l2 norm, the mean |x|

Rows = NDArray[np.float32]
Marks = NDArray[np.bool_]
Levels = NDArray[np.int16]
Words = NDArray[np.uint64]


@njit(cache=True)
def _size(held: float, num_held: int, norm: int) -> float:
    if norm == LENGTH:
        return float(np.sqrt(held))
    return held / num_held if norm == MEAN else held


@njit(cache=True)
def measure(rows: Rows, sent: Marks, bucket: int, norm: int, top: int, scales: Rows) -> None:
    """The scale of each bucket: its size by the norm, over the `top` level. A NaN makes the scale NaN."""
    for r in range(rows.shape[0]):
        held, num_held, which = 0.0, 0, 0
        for c in range(rows.shape[1]):
            if not sent[r, c]:
                continue
            size = abs(np.float64(rows[r, c]))
            if norm == LARGEST:
                if size > held or np.isnan(size):
                    held = size
            else:
                held += size * size if norm == LENGTH else size
            num_held += 1
            if num_held == bucket:
                scales[r, which] = _size(held, num_held, norm) / top
                held, num_held, which = 0.0, 0, which + 1
        if num_held:
            scales[r, which] = _size(held, num_held, norm) / top


@njit(cache=True)
def to_levels(rows: Rows, sent: Marks, bucket: int, scales: Rows, top: int, words: Words, levels: Levels) -> None:
    """The sent entries in units of their scales, as whole numbers from -top to top.

    Rounded to the nearest (of two, the even one) if there are no words; else up or down at random, so that the mean is
    right. A row's k-th sent entry takes the k-th 32 bits of its words.
    """
    nearest = words.shape[1] == 0
    for r in range(rows.shape[0]):
        num_held, which, rank = 0, 0, 0
        for c in range(rows.shape[1]):
            if not sent[r, c]:
                continue
            scale = np.float64(scales[r, which])
            level = 0.0
            if scale > 0:
                if nearest:
                    level = np.rint(rows[r, c] / scale)
                else:
                    half = (words[r, rank >> 1] >> np.uint64(32 * (rank & 1))) & np.uint64(0xFFFFFFFF)
                    level = np.floor(rows[r, c] / scale + half * 2.0**-32)
            levels[r, c] = min(max(level, -top), top)  # the scale is rounded, so the largest may be a bit over the top
            rank += 1
            num_held += 1
            if num_held == bucket:
                num_held, which = 0, which + 1


@njit(cache=True)
def to_values(levels: Levels, sent: Marks, bucket: int, scales: Rows, values: Rows) -> None:
    """level * scale in float32 of the sent entries: what the decoder computes."""
    for r in range(levels.shape[0]):
        num_held, which = 0, 0
        for c in range(levels.shape[1]):
            if not sent[r, c]:
                continue
            values[r, c] = np.float32(levels[r, c]) * scales[r, which]
            num_held += 1
            if num_held == bucket:
                num_held, which = 0, which + 1
