"""The sizes of many rows in one call: what a simulation asks for every node in every round."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.bits import Words, all_ones, ones_in_all, pack
from gossamer.wire.kernels.floats import plan_floats
from gossamer.wire.kernels.indices import plan_marks
from gossamer.wire.kernels.levels import level_bytes

Marks = NDArray[np.uint8]  # (B, width), 1: sent


@njit(cache=True)
def float_sizes(
    numbers: NDArray[np.uint32],
    num_bits: int,
    marks: Marks,
    all_sent: Words,
    indexed: bool,
    inside: NDArray[np.uint32],
) -> Any:
    """(3, B): bytes of the tags, the indices and the floats of each row.

    marks without rows mean that everything is sent, all_sent being the packed mask of that.
    """
    num_rows, width = numbers.shape
    sizes = np.empty((3, num_rows), np.int64)
    sizes[0] = 1 + indexed
    for row in range(num_rows):
        words, num_sent, sizes[1, row] = _indices(marks, row, width, all_sent, indexed, inside)
        coded_bytes, _, _, _ = plan_floats(numbers[row], words, num_bits, num_sent)
        sizes[2, row] = min(coded_bytes, num_sent * num_bits >> 3)
    return sizes


@njit(cache=True)
def level_sizes(
    levels: NDArray[np.int16],
    num_bits: int,
    scales: Any,  # (B, most that a row has) float32
    bucket: int,
    marks: Marks,
    all_sent: Words,
    indexed: bool,
    inside: NDArray[np.uint32],
) -> Any:
    """(3, B): the same for integers and their scales; the last is -1 where something may not be right with them."""
    num_rows, width = levels.shape
    sizes = np.empty((3, num_rows), np.int64)
    sizes[0] = 1 + indexed + (bucket > 0)
    for row in range(num_rows):
        words, num_sent, sizes[1, row] = _indices(marks, row, width, all_sent, indexed, inside)
        num_scales = (num_sent + bucket - 1) // bucket if bucket > 0 else 1
        coded_bytes = level_bytes(levels[row], words, num_bits, num_sent)
        if coded_bytes < 0 or scales.shape[1] < num_scales or not np.isfinite(scales[row, :num_scales]).all():
            sizes[2, row] = -1
            continue
        scale_bytes = 4 * num_scales
        if bucket > 0:
            scale_words = scales[row, :num_scales].view(np.uint32)
            scale_bytes = min(scale_bytes, plan_floats(scale_words, all_ones(num_scales), 32, num_scales)[0])
        sizes[2, row] = scale_bytes + min(coded_bytes, (num_sent * num_bits + 7) >> 3)
    return sizes


@njit(cache=True)
def _indices(
    marks: Marks, row: int, width: int, all_sent: Words, indexed: bool, inside: NDArray[np.uint32]
) -> tuple[Words, int, int]:
    """The packed mask of a row, its ones, and the bytes that tell them."""
    if marks.shape[0] == 0:
        return all_sent, width, 0
    if not indexed:
        words = pack(marks[row])
        return words, ones_in_all(words), 0
    words, _, num_sent, num_bytes, _ = plan_marks(marks[row], inside)
    return words, num_sent, num_bytes
