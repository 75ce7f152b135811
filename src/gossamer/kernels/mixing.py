"""Weighted sums over neighbours: the only place where nodes meet.

For each receiver the messages are added in the order in which its list names them (ascending senders), one product
and one addition at a time, in float64, and rounded once. The result is therefore the same to the last bit whether the
rows lie in one matrix, in a worker's share of it, or came over a network; a matrix product promises nothing of the
kind. The columns are taken in blocks that stay in cache.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

BLOCK = 1024


@njit(cache=True)
def weighted_sums(
    indptr: NDArray[np.int64],
    positions: NDArray[np.int64],
    weights: NDArray[np.float64],
    rows: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """out[i] = sum over e in indptr[i] .. indptr[i + 1] of weights[e] * rows[positions[e]]."""
    num_columns = rows.shape[1]
    block = np.empty(BLOCK, np.float64)
    for i in range(out.shape[0]):
        for start in range(0, num_columns, BLOCK):
            target = out[i, start : start + BLOCK]
            sums = block[: target.size]
            sums[:] = 0
            for e in range(indptr[i], indptr[i + 1]):
                weight, row = weights[e], rows[positions[e], start : start + BLOCK]
                for c in range(sums.size):
                    sums[c] += weight * row[c]
            for c in range(sums.size):
                target[c] = sums[c]
