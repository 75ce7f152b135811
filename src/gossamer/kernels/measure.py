"""The exact sizes of all index codings of a mask, in one pass over it.

The gaps are not listed. The mask is taken eight entries at a time: a table holds, for each pattern of eight, what the
gaps inside it add to every size, and a second one what a gap of a given length adds that crosses patterns. What is
added is one word of nine fields, so that nine sums cost one addition.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.kernels.bits import Bytes, Positions, Words, i64, leading_zeros, ones_in, ones_in_all, trailing_zeros, u64
from gossamer.kernels.blocks import BITMAP, BLOCK, EMPTY, FULL, GAMMA, INVERTED, block_word

FIELDS = 9  # the Elias-gamma bits of gaps below a block's length, and the sums of gap >> r for r = 1 .. 8
SHIFTS = np.array([0, 11, 20, 28, 35, 41, 46, 50, 53, 55])  # where each field starts: the sums over a block fit
MAX_RICE = 24
TAG_ALL, TAG_GAMMA, TAG_BLOCKS, TAG_RANGE, TAG_RICE = 0, 1, 2, 3, 32  # TAG_RICE + r


def _fields(gap: int) -> int:
    sums = [2 * (gap + 1).bit_length() - 1] + [gap >> r for r in range(1, FIELDS)]
    return sum(number << int(shift) for number, shift in zip(sums, SHIFTS, strict=False))


def _inside(pattern: int) -> int:
    places = [place for place in range(8) if pattern >> place & 1]
    return sum(_fields(b - a - 1) for a, b in pairwise(places))


def _all_inside() -> NDArray[np.uint32]:
    few = np.array([_inside(pattern) for pattern in range(256)], np.uint64)
    above = np.array([8 - pattern.bit_length() for pattern in range(256)])
    below = np.array([(pattern & -pattern).bit_length() - 1 for pattern in range(256)])
    crossing = CROSSING[1 + above[None, :] + below[:, None]]
    crossing[0, :] = crossing[:, 0] = 0
    inside: NDArray[np.uint64] = few[:, None] + few[None, :] + crossing
    return inside.ravel().astype(np.uint32)


CROSSING = np.array([0] + [_fields(gap) for gap in range(BLOCK + 1)], np.uint64)  # at gap + 1
INSIDE = _all_inside()


@njit(cache=True)
def _gap_sums(words: Words, start: int, end: int, inverted: bool, inside: NDArray[np.uint32]) -> tuple[Any, int]:
    """The fields of the gaps before each one of a block, counted from its start, and the zeros behind the last one."""
    sums, run = u64(0), u64(0)  # unsigned, as numba would look after negative indices
    for i in range(start >> 6, (end + 63) >> 6):
        word = block_word(words, i, end, inverted)
        if word == 0:
            run += u64(64)
            continue
        for _ in range(4):
            pattern = word & u64(0xFFFF)
            word >>= u64(16)
            if pattern == 0:
                run += u64(16)
            else:
                sums += u64(inside[pattern]) + CROSSING[run + u64(trailing_zeros(pattern)) + u64(1)]
                run = u64(leading_zeros(pattern)) - u64(48)
    return sums, i64(run) - (-end & 63)


@njit(cache=True)
def _field(sums: Any, r: int) -> Any:
    width = SHIFTS[r + 1] - SHIFTS[r]
    return i64((sums >> u64(SHIFTS[r])) & ((u64(1) << u64(width)) - u64(1)))


@njit(cache=True)
def _choose(sums: Any, num_gaps: int, length: int, num_ones: int, inverted: bool, before: int) -> tuple[int, int]:
    """A block's mode and its bits with the mode's own. `before` is cheaper to name; of equals the lowest wins."""
    mode, bits = BITMAP, length + (1 if before == BITMAP else 5)
    if num_ones == 0 or num_ones == length:
        mode = EMPTY if num_ones == 0 else FULL
        return mode, (1 if before == mode else 5)
    first = INVERTED if inverted else GAMMA
    for r in range(6 if inverted else 7):
        cost = _field(sums, r) + (num_gaps * (1 + r) if r else 0) + (1 if before == first + r else 5)
        if cost < bits:
            mode, bits = first + r, cost
    return mode, bits


@njit(cache=True)
def measure(
    words: Words, width: int, modes: Bytes, rice_bits: Positions, inside: NDArray[np.uint32]
) -> tuple[int, int, int]:
    """How many ones a mask has, and the bits of its Elias-gamma and its block-Rice coding.

    modes, one a block, and rice_bits, one for each r from 0 on, are filled.
    """
    count, gamma_bits, block_bits = 0, 0, 0
    carried = 0  # zeros since the last one of the blocks before
    before = EMPTY
    rice_bits[:] = 0
    for block in range(modes.size):
        start, end = block * BLOCK, min(block * BLOCK + BLOCK, width)
        num_ones, first = 0, -1
        for i in range(start >> 6, (end + 63) >> 6):
            num_ones += ones_in(words[i])
            if first < 0 and words[i] != 0:
                first = 64 * i + trailing_zeros(words[i]) - start
        count += num_ones
        sums, run = _gap_sums(words, start, end, False, inside)
        if num_ones > 0:  # the first gap reaches back into the blocks before
            others = sums - CROSSING[first + 1]
            gap = carried + first
            gamma_bits += _field(others, 0) + 127 - 2 * leading_zeros(u64(gap + 1))
            for r in range(1, FIELDS):
                rice_bits[r] += _field(others, r)
            for r in range(1, MAX_RICE + 1):
                if gap >> r == 0:
                    break
                rice_bits[r] += gap >> r
            carried = run
        else:
            carried += end - start
        inverted = 2 * num_ones > end - start
        if inverted:
            sums, run = _gap_sums(words, start, end, True, inside)
        num_gaps = (end - start - num_ones if inverted else num_ones) + 1
        before, bits = _choose(sums + CROSSING[run + 1], num_gaps, end - start, num_ones, inverted, before)
        modes[block] = before
        block_bits += bits
    rice_bits[0] = width - carried - count
    for r in range(MAX_RICE + 1):
        rice_bits[r] += count * (1 + r)
    return count, gamma_bits, block_bits


@njit(cache=True)
def varint_bytes(number: int) -> int:
    """Bytes of a number written seven bits a byte."""
    length = 1
    while number >= 128:
        number >>= 7
        length += 1
    return length


@njit(cache=True)
def plan_indices(words: Words, width: int, inside: NDArray[np.uint32]) -> tuple[int, int, int, Bytes]:
    """The tag of the shortest coding of a mask, its ones, the coding's bytes without the tag, and its block modes."""
    modes = np.empty((width + BLOCK - 1) // BLOCK, np.uint8)
    if ones_in_all(words) == width:
        return TAG_ALL, width, 0, modes
    rice_bits = np.empty(MAX_RICE + 1, np.int64)
    count, gamma_bits, block_bits = measure(words, width, modes, rice_bits, inside)
    tag, bits = TAG_GAMMA, gamma_bits
    for r in range(MAX_RICE + 1):
        if rice_bits[r] < bits:
            tag, bits = TAG_RICE + r, rice_bits[r]
    num_bytes = varint_bytes(count) + ((bits + 7) >> 3)
    if (block_bits + 7) >> 3 < num_bytes:
        tag, num_bytes = TAG_BLOCKS, (block_bits + 7) >> 3
    return tag, count, num_bytes, modes
