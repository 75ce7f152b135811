"""The sizes of many rows in one call: what a simulation asks for every node in every round."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.kernels.bits import Words, ones_in_all, pack
from gossamer.kernels.measure import plan_indices
from gossamer.kernels.symbols import plan_floats

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
    """(B, 2): bytes of the indices and of the floats of each row, tags excluded.

    marks without rows mean that everything is sent, all_sent being the packed mask of that.
    """
    num_rows, width = numbers.shape
    sizes = np.zeros((num_rows, 2), np.int64)
    for row in range(num_rows):
        words, num_sent = all_sent, width
        if marks.shape[0] > 0:
            words = pack(marks[row])
            if indexed:
                _, num_sent, sizes[row, 0], _ = plan_indices(words, width, inside)
            else:
                num_sent = ones_in_all(words)
        coded_bytes, _, _ = plan_floats(numbers[row], words, num_bits, num_sent)
        sizes[row, 1] = min(coded_bytes, num_sent * num_bits >> 3)
    return sizes
