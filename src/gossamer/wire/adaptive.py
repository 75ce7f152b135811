"""Contexts for what is sparse and has few levels, coded by an adaptive binary arithmetic coder.

Marks (is this entry sent?) depend on how many were lately: on two running averages, over about 16 and about 128
entries. Each, to half a power of two, makes a context together with the mark just before; the probability is the mean
of what the two contexts say. Levels, none of them 0: the sign, in the context of the two signs before; then whether
the size is larger than 1, than 2, and so on, in the context of the two sizes before.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.core.kernels import njit
from gossamer.wire.arithmetic import (
    FULL,
    HALF,
    ONE,
    PRECISION,
    TOP,
    Cells,
    begin,
    decode,
    encode,
    finish,
    learn,
    usable,
)
from gossamer.wire.bits import Bytes, i64, leading_zeros, u64

FEW = 4  # it is tried if no more than one in so many entries is sent: else it gains little for its time
FAST, SLOW = 4, 7  # averages move by 2^-4 and 2^-7 of the way
START = ONE >> 5  # of both averages
LEAST = 1 << 11  # of an average, as a context
LOWEST = 2 * 12  # the bucket of LEAST
NUM_CONTEXTS = 2 * (2 * (PRECISION + 1) - LOWEST)  # of an average and the mark before
RAREST = ONE >> 8  # no context begins with a smaller probability
MARK_TRUST, MARK_MEMORY = 50, 1024  # how many decisions a context's first probability is worth, and the last ones
LEVEL_TRUST, LEVEL_MEMORY = 4, 64
NUM_UNARY = 15  # sizes up to here are told one by one

Levels = NDArray[np.int16]


@njit(cache=True)
def _mark_cells() -> Cells:
    """Contexts of the fast average, then of the slow one; each begins as if its average were right."""
    cells = np.full((2, 2 * NUM_CONTEXTS), MARK_TRUST, np.int64)
    for context in range(2 * NUM_CONTEXTS):
        bucket = ((context % NUM_CONTEXTS) >> 1) + LOWEST
        cells[0, context] = max((2 + (bucket & 1)) << ((bucket >> 1) - 2), RAREST)
    return cells


@njit(cache=True)
def _mark_context(average: int, before: int) -> Any:
    """Which context an average is: its highest bit and the next one, and the mark before."""
    average |= LEAST
    length = 64 - leading_zeros(u64(average))
    return u64(4 * length + 2 * ((average >> (length - 2)) & 1) + before - 2 * LOWEST)


@njit(cache=True)
def code_marks(marks: Bytes, out: Bytes, at: int) -> int:
    """Write a row of zeros and ones from byte `at` on; returns the byte behind. With NOTHING to write into it only
    counts."""
    cells, fast, slow, target = _mark_cells(), START, START, 0
    low, span = 0, FULL
    for i in range(marks.size):
        a, b = _mark_context(fast, target >> PRECISION), _mark_context(slow, target >> PRECISION) + u64(NUM_CONTEXTS)
        p = usable(cells[0, a] + cells[0, b], PRECISION + 1)
        low, span, at = encode(marks[i], p, low, span, out, at)
        target = i64(marks[i]) << PRECISION
        learn(cells, a, target, MARK_MEMORY)
        learn(cells, b, target, MARK_MEMORY)
        fast += (target - fast) >> FAST
        slow += (target - slow) >> SLOW
    return finish(low, out, at)


@njit(cache=True)
def read_marks(buffer: Bytes, at: int, end: int, marks: Bytes) -> int:
    """Fill in a row of zeros and ones; returns the byte behind them, which is behind the end if they are damaged."""
    cells, fast, slow, target = _mark_cells(), START, START, 0
    code, span = begin(buffer, at), FULL
    at += 4
    for i in range(marks.size):
        a, b = _mark_context(fast, target >> PRECISION), _mark_context(slow, target >> PRECISION) + u64(NUM_CONTEXTS)
        p = usable(cells[0, a] + cells[0, b], PRECISION + 1)
        yes, code, span, at = decode(p, code, span, buffer, at, end)
        if span < TOP:
            return end + 1
        marks[i] = yes
        target = ONE if yes else 0
        learn(cells, a, target, MARK_MEMORY)
        learn(cells, b, target, MARK_MEMORY)
        fast += (target - fast) >> FAST
        slow += (target - slow) >> SLOW
    return at - 2


@njit(cache=True)
def _level_cells(p: int, num_contexts: int) -> Cells:
    cells = np.full((2, num_contexts), LEVEL_TRUST, np.int64)
    cells[0] = p
    return cells


@njit(cache=True)
def _size_context(passed: int, around: int) -> int:
    """Of the question whether a size is larger than `passed`, when the two before were `around` in all."""
    return min(around - 2, 3) + 4 * (passed - 1) if passed < 3 else passed + 5


@njit(cache=True)
def code_levels(levels: Levels, num_bits: int, out: Bytes, at: int) -> int:
    """Write levels, none of them 0, from byte `at` on; returns the byte behind. With NOTHING to write into it only
    counts."""
    signs, sizes = _level_cells(ONE >> 1, 4), _level_cells(ONE >> 3, NUM_UNARY + 6)
    low, span, before, around, last = 0, FULL, 3, 2, 1
    for i in range(levels.size):
        level = i64(levels[i])
        positive = i64(level > 0)
        low, span, at = encode(positive, usable(signs[0, before], PRECISION), low, span, out, at)
        learn(signs, before, positive << PRECISION, LEVEL_MEMORY)
        before = (2 * before + positive) & 3
        size, most = abs(level), _largest(num_bits, positive)
        passed = 1
        while passed < min(most, NUM_UNARY + 1):
            context, larger = _size_context(passed, around), i64(size > passed)
            low, span, at = encode(larger, usable(sizes[0, context], PRECISION), low, span, out, at)
            learn(sizes, context, larger << PRECISION, LEVEL_MEMORY)
            if not larger:
                break
            passed += 1
        if passed > NUM_UNARY and most > passed:
            for shift in range(num_bits - 2, -1, -1):
                low, span, at = encode(((size - passed) >> shift) & 1, HALF, low, span, out, at)
        around, last = last + size, size
    return finish(low, out, at)


@njit(cache=True)
def read_levels(buffer: Bytes, at: int, end: int, num_bits: int, levels: Levels) -> int:
    """Fill in levels; returns the byte behind them, which is behind the end if they are damaged."""
    signs, sizes = _level_cells(ONE >> 1, 4), _level_cells(ONE >> 3, NUM_UNARY + 6)
    code, span, before, around, last = begin(buffer, at), FULL, 3, 2, 1
    at += 4
    for i in range(levels.size):
        positive, code, span, at = decode(usable(signs[0, before], PRECISION), code, span, buffer, at, end)
        learn(signs, before, i64(positive) << PRECISION, LEVEL_MEMORY)
        before = (2 * before + positive) & 3
        size, most = 1, _largest(num_bits, positive)
        while size < min(most, NUM_UNARY + 1):
            context = _size_context(size, around)
            larger, code, span, at = decode(usable(sizes[0, context], PRECISION), code, span, buffer, at, end)
            learn(sizes, context, i64(larger) << PRECISION, LEVEL_MEMORY)
            if not larger:
                break
            size += 1
        if size > NUM_UNARY and most > size:
            rest = 0
            for _ in range(num_bits - 1):
                larger, code, span, at = decode(HALF, code, span, buffer, at, end)
                rest = 2 * rest + larger
            size += rest
        if span < TOP or size > most:
            return end + 1
        levels[i] = size if positive else -size
        around, last = last + size, size
    return at - 2


@njit(cache=True)
def _largest(num_bits: int, positive: int) -> int:
    """The largest size that a level of so many bits has."""
    return 1 if num_bits == 1 else (1 << (num_bits - 1)) - positive
