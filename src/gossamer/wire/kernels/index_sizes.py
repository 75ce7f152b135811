"""The exact sizes of all index codings of a mask, in one pass over it.

The gaps are not listed. The mask is taken sixteen entries at a time, a quarter of a word: a table holds, for each
pattern of sixteen, what the gaps inside it add to every size, and a second one what a gap of a given length adds that
crosses patterns. What is added is one word of nine fields, so that nine sums cost one addition.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.bits import (
    Bytes,
    Positions,
    Words,
    all_sent,
    i64,
    leading_zeros,
    nonzero16,
    ones_in,
    trailing_zeros,
    u64,
)
from gossamer.wire.kernels.block_rice import BITMAP, BLOCK, EMPTY, FULL, GAMMA, INVERTED, block_word

ALL_QUARTERS = u64(0xFFFFFFFF)
FIELDS = 9  # the Elias-gamma bits of gaps up to a block's length, and the sums of gap >> r for r = 1 .. 8
SHIFTS = (0, 11, 20, 28, 35, 41, 46, 50, 53)  # where each field starts
WIDTHS = (11, 9, 8, 7, 6, 5, 4, 3, 2)  # its bits: the sums over a block fit, and a first gap that is a block longer
# Two words hold the fields of several blocks, every second one each, so that a field has the room of its neighbour too.
ROOMS = (20, 17, 15, 13, 11, 9, 7, 14, 11)
EVENS = u64(sum((1 << WIDTHS[r]) - 1 << SHIFTS[r] for r in range(0, FIELDS, 2)))
ODDS = u64(sum((1 << WIDTHS[r]) - 1 << SHIFTS[r] for r in range(1, FIELDS, 2)))
TOGETHER = 8  # blocks: 8 * (2^4 - 1) fits the 7 bits of the seventh field, and the others have more room
MAX_RICE = 24
TAG_ALL, TAG_GAMMA, TAG_BLOCKS, TAG_RICE = 0, 1, 2, 32  # TAG_RICE + r


def _fields(gap: int) -> int:
    sums = [2 * (gap + 1).bit_length() - 1] + [gap >> r for r in range(1, FIELDS)]
    return sum(number << shift for number, shift in zip(sums, SHIFTS, strict=True))


def _inside(pattern: int) -> int:
    places = [place for place in range(8) if pattern >> place & 1]
    return sum(_fields(b - a - 1) for a, b in pairwise(places))


def _all_inside() -> NDArray[np.uint32]:
    few = np.array([_inside(pattern) for pattern in range(256)], np.uint64)
    above = np.array([8 - pattern.bit_length() for pattern in range(256)])
    below = np.array([(pattern & -pattern).bit_length() - 1 for pattern in range(256)])
    crossing = CROSSING[above[None, :] + below[:, None]]
    crossing[0, :] = crossing[:, 0] = 0
    inside: NDArray[np.uint64] = few[:, None] + few[None, :] + crossing
    return inside.ravel().astype(np.uint32)


CROSSING = np.array([_fields(gap) for gap in range(BLOCK + 1)], np.uint64)
INSIDE = _all_inside()


@njit(cache=True, inline="always")
def _gap_sums(
    words: Words, quarters: NDArray[np.uint16], first: int, inside: NDArray[np.uint32]
) -> tuple[Any, int, int]:
    """The fields of the gaps between the ones of the 8 words from `first` on, at least one, and the zeros around them.

    Only the quarters of words that have ones are visited, so that how many they are is all that has to be guessed by
    the processor; guesses are what takes the time in a mask that it has not seen before.
    """
    left = nonzero16(words, first)
    place = trailing_zeros(left)
    pattern = u64(quarters[u64(4 * first + place)])
    zeros_before = 16 * place + trailing_zeros(pattern)
    sums = u64(inside[pattern])
    if left == ALL_QUARTERS:
        run = leading_zeros(pattern) - 48
        for i in range(4 * first + 1, 4 * first + 32):
            pattern = u64(quarters[u64(i)])
            sums += u64(inside[pattern]) + CROSSING[u64(run + trailing_zeros(pattern))]
            run = leading_zeros(pattern) - 48
        return sums, zeros_before, run
    behind = 16 * place + 64 - leading_zeros(pattern)
    left &= left - u64(1)
    while left != 0:
        place = trailing_zeros(left)
        left &= left - u64(1)
        pattern = u64(quarters[u64(4 * first + place)])
        sums += u64(inside[pattern]) + CROSSING[u64(16 * place + trailing_zeros(pattern) - behind)]
        behind = 16 * place + 64 - leading_zeros(pattern)
    return sums, zeros_before, BLOCK - behind


@njit(cache=True, inline="always")
def _field(sums: Any, r: int) -> Any:
    return i64((sums >> u64(SHIFTS[r])) & u64((1 << WIDTHS[r]) - 1))


@njit(cache=True)
def _choose(sums: Any, num_gaps: int, length: int, inverted: bool, before: int) -> tuple[int, int]:
    """The mode of a block with ones and zeros, and its bits with the mode's own.

    `before` is cheaper to name; of equals the lowest wins. So cost and mode make one number, and the least is taken.
    """
    first = INVERTED if inverted else GAMMA
    best = 16 * (length + (1 if before == BITMAP else 5)) + BITMAP
    for r in range(7):
        cost = _field(sums, r) + (num_gaps * (1 + r) if r > 0 else 0) + (1 if before == first + r else 5)
        if first + r < 16:
            best = min(best, 16 * cost + first + r)
    return best & 15, best >> 4


@njit(cache=True, inline="always")
def _add_long(gap: int, rice_bits: Positions) -> Any:
    """Add a gap longer than a block to the sums of Rice; returns its bits by Elias-gamma."""
    for r in range(1, MAX_RICE + 1):
        rice_bits[r] += gap >> r
    return 127 - 2 * leading_zeros(u64(gap + 1))


@njit(cache=True, inline="always")
def _add_fields(evens: Any, odds: Any, rice_bits: Positions) -> None:
    """Add the fields of several blocks to the sums: bits by Elias-gamma to the first, those of Rice to the others."""
    for r in range(0, FIELDS, 2):
        rice_bits[r] += i64((evens >> u64(SHIFTS[r])) & u64((1 << ROOMS[r]) - 1))
    for r in range(1, FIELDS, 2):
        rice_bits[r] += i64((odds >> u64(SHIFTS[r])) & u64((1 << ROOMS[r]) - 1))


@njit(cache=True)
def measure(
    words: Words, width: int, modes: Bytes, rice_bits: Positions, inside: NDArray[np.uint32]
) -> tuple[int, int, int]:
    """How many ones a mask has, and the bits of its Elias-gamma and its block-Rice coding.

    modes, one a block, and rice_bits, one for each r from 0 on, are filled.
    """
    count, gamma_bits, block_bits = 0, 0, 0
    evens, odds = u64(0), u64(0)
    carried = 0  # zeros since the last one of the blocks before
    before = EMPTY
    rice_bits[:] = 0
    quarters = words.view(np.uint16)
    zeros = np.empty(8, np.uint64)  # of a block, as ones
    zero_quarters = zeros.view(np.uint16)
    for block in range(modes.size):
        if block % TOGETHER == 0:
            _add_fields(evens, odds, rice_bits)
            evens, odds = u64(0), u64(0)
        start, length = block * BLOCK, min(BLOCK, width - block * BLOCK)
        num_ones = 0
        for i in range(start >> 6, (start >> 6) + 8):
            num_ones += ones_in(words[i])
        if num_ones == 0:
            block_bits += 1 if before == EMPTY else 5
            before = EMPTY
            modes[block] = EMPTY
            carried += length
            continue
        count += num_ones
        sums, first, last = _gap_sums(words, quarters, start >> 6, inside)
        gap = carried + first  # the first gap reaches back into the blocks before
        carried = last - (BLOCK - length)
        whole = sums
        if gap < CROSSING.size:
            whole += CROSSING[u64(gap)]
            rice_bits[FIELDS] += gap >> FIELDS
        else:
            gamma_bits += _add_long(gap, rice_bits)
        evens += whole & EVENS
        odds += whole & ODDS
        if num_ones == length:
            block_bits += 1 if before == FULL else 5
            before = FULL
            modes[block] = FULL
            continue
        inverted = 2 * num_ones > length
        if inverted:
            for i in range(8):
                zeros[i] = block_word(words, (start >> 6) + i, width, True)
            sums, first, last = _gap_sums(zeros, zero_quarters, 0, inside)
        sums += CROSSING[u64(first)] + CROSSING[u64(last - (BLOCK - length))]
        num_gaps = 1 + (length - num_ones if inverted else num_ones)
        before, bits = _choose(sums, num_gaps, length, inverted, before)
        block_bits += bits
        modes[block] = before
    _add_fields(evens, odds, rice_bits)
    gamma_bits += rice_bits[0]
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
    if all_sent(words, width):
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
