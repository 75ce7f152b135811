"""Adaptive binary range coder of a mask: the probability of a one is learned while coding.

It is the mean of two estimates: the share of ones among the last 16 or so positions, and the share among the last 256
or so of the same context (a wavelet band of a layer, say). Both start at the mask's own share of ones, which travels.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.kernels.bits import Bytes, i64

ONE = 1 << 22  # estimates are so many parts of one
SLOW, FAST = 255, 4  # a context's estimate moves by 1/256 in the end, the local one by 1/16
LEAST, MOST = 32, 65536 - 32  # bounds of the probability that is coded with, in parts of 65536
# the n-th time that a context is met its estimate moves by 1 / (n + 1.5), until it is SLOW
RATES = np.array([65536 * 2 // (2 * n + 3) for n in range(SLOW)] + [256])

Contexts = NDArray[np.uint16]


@njit(cache=True, inline="always")
def _probability(slow: int, fast: int) -> Any:
    return min(max((slow + fast) >> 7, LEAST), MOST)


@njit(cache=True)
def _start(count: int, width: int, num_contexts: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    share = count * ONE // width
    return np.full(num_contexts, share, np.int64), np.zeros(num_contexts, np.int64), share


@njit(cache=True)
def write_range(mask: Bytes, contexts: Contexts, num_contexts: int, count: int, out: Bytes) -> int:
    """Write from the start of `out`; the bytes written, or -1 if there is no room for them."""
    slow, met, fast = _start(count, mask.size, num_contexts)
    low, high = i64(0), i64(0xFFFFFFFF)
    at = 0
    for i in range(mask.size):
        context = contexts[i]
        middle = low + ((high - low) >> 16) * _probability(slow[context], fast)
        rate = RATES[met[context]]
        met[context] = min(met[context] + 1, SLOW)
        if mask[i]:
            high = middle
            slow[context] += ((ONE - slow[context]) * rate) >> 16
            fast += (ONE - fast) >> FAST
        else:
            low = middle + 1
            slow[context] -= (slow[context] * rate) >> 16
            fast -= fast >> FAST
        while (low ^ high) >> 24 == 0:
            if at == out.size:
                return -1
            out[at] = low >> 24
            at += 1
            low = (low << 8) & 0xFFFFFFFF
            high = (high << 8) & 0xFFFFFFFF | 255
    if low == 0:  # the reader takes zeros for what is not there
        return at
    if at == out.size:
        return -1
    out[at] = (low >> 24) + 1
    return at + 1


@njit(cache=True)
def read_range(
    buffer: Bytes, at: int, end: int, contexts: Contexts, num_contexts: int, count: int, mask: Bytes
) -> bool:
    """Fill the mask from the bytes from `at` up to `end`; False if it does not have `count` ones."""
    slow, met, fast = _start(count, mask.size, num_contexts)
    low, high, code = i64(0), i64(0xFFFFFFFF), i64(0)
    for _ in range(4):
        code = code << 8 | (i64(buffer[at]) if at < end else 0)
        at += 1
    found = 0
    for i in range(mask.size):
        context = contexts[i]
        middle = low + ((high - low) >> 16) * _probability(slow[context], fast)
        rate = RATES[met[context]]
        met[context] = min(met[context] + 1, SLOW)
        if code <= middle:
            high = middle
            slow[context] += ((ONE - slow[context]) * rate) >> 16
            fast += (ONE - fast) >> FAST
            mask[i] = 1
            found += 1
        else:
            low = middle + 1
            slow[context] -= (slow[context] * rate) >> 16
            fast -= fast >> FAST
            mask[i] = 0
        while (low ^ high) >> 24 == 0:
            low = (low << 8) & 0xFFFFFFFF
            high = (high << 8) & 0xFFFFFFFF | 255
            code = (code << 8) & 0xFFFFFFFF | (i64(buffer[at]) if at < end else 0)
            at += 1
    return found == count
