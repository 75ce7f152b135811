"""Block-Rice: an index coder that suits its parameter to every 512 positions.

Each block is written in one of 16 modes: nothing or everything sent, a bitmap, or gaps by Elias-gamma or Rice, of the
ones or, in dense blocks, of the zeros. A list of gaps counts from the block's start and ends with the gap to the
block's end, as if a one stood there, so no count is needed. Before each block stands one bit: 1, its mode is that of
the block before (mode 0 before the first), or 0, and four bits give the mode.
"""

import numpy as np
from numba import njit

from gossamer.wire.kernels.bits import Bytes, Positions, i64, list_positions, peek, put, u64
from gossamer.wire.kernels.elias_rice import GAMMA, gap_bits, gaps_of, get_gap, put_gap

BLOCK = 512
EMPTY, FULL, BITMAP, ONES, ZEROS, NUM_MODES = 0, 1, 2, 3, 10, 16
# ONES: gaps of the ones, by Elias-gamma, and the six modes behind it by Rice with r = 1 .. 6; ZEROS: gaps of the
# zeros, and the five modes behind it by Rice with r = 1 .. 5


@njit(cache=True)
def _parameter(mode: int) -> int:
    """Of the code of gaps, for modes from ONES on."""
    r = mode - (ZEROS if mode >= ZEROS else ONES)
    return r if r > 0 else GAMMA


@njit(cache=True)
def _block_gaps(marks: Bytes, start: int, end: int, zeros: bool) -> Positions:
    """The gaps of the ones, or of the zeros, of a block, and the one to its end."""
    positions = np.empty(BLOCK + 1, np.int64)
    count = list_positions(marks, start, end, 0 if zeros else 1, positions)
    positions[count] = end
    return gaps_of(positions[: count + 1], start)


@njit(cache=True)
def _choose(marks: Bytes, start: int, end: int, before: int) -> tuple[int, int]:
    """The mode in which a block is shortest, of equals the lowest, and its bits with those that tell the mode."""
    num_ones = i64(marks[start:end].sum())
    if num_ones == 0 or num_ones == end - start:
        mode = EMPTY if num_ones == 0 else FULL
        return mode, 1 if mode == before else 5
    zeros = 2 * num_ones > end - start
    gaps = _block_gaps(marks, start, end, zeros)
    best, fewest = BITMAP, end - start + (1 if before == BITMAP else 5)
    for mode in range(ZEROS if zeros else ONES, NUM_MODES if zeros else ZEROS):
        bits = gap_bits(gaps, _parameter(mode)) + (1 if mode == before else 5)
        if bits < fewest:
            best, fewest = mode, bits
    return best, fewest


@njit(cache=True)
def plan_blocks(marks: Bytes) -> tuple[Bytes, int]:
    """The mode of each block of a row of zeros and ones, and the bits of all."""
    modes = np.empty((marks.size + BLOCK - 1) // BLOCK, np.uint8)
    before, total = EMPTY, 0
    for block in range(modes.size):
        start = block * BLOCK
        before, bits = _choose(marks, start, min(start + BLOCK, marks.size), before)
        modes[block] = before
        total += bits
    return modes, total


@njit(cache=True)
def write_blocks(marks: Bytes, modes: Bytes, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    before, held, num_held = EMPTY, u64(0), 0
    for block in range(modes.size):
        mode, start = i64(modes[block]), block * BLOCK
        end = min(start + BLOCK, marks.size)
        same = mode == before
        before = mode
        at, held, num_held = put(out, at, held, num_held, u64(1 if same else mode << 1), 1 if same else 5)
        if mode == BITMAP:
            for i in range(start, end):
                at, held, num_held = put(out, at, held, num_held, u64(marks[i]), 1)
        elif mode >= ONES:
            for gap in _block_gaps(marks, start, end, mode >= ZEROS):
                at, held, num_held = put_gap(out, at, held, num_held, gap, _parameter(mode))
    return at + (num_held > 0)


@njit(cache=True)
def read_blocks(buffer: Bytes, bit: int, limit: int, marks: Bytes) -> int:
    """Fill in a row of zeros and ones; returns the bit position behind what was read, or -1 if it is damaged."""
    mode = EMPTY
    for start in range(0, marks.size, BLOCK):
        if bit >= limit:
            return -1
        end = min(start + BLOCK, marks.size)
        head = i64(peek(buffer, bit) & u64(31))
        if head & 1:
            bit += 1
        else:
            mode = head >> 1
            bit += 5
        marks[start:end] = mode == FULL or mode >= ZEROS
        if mode == BITMAP:
            if bit + end - start > limit:
                return -1
            for i in range(start, end):
                marks[i] = (buffer[bit >> 3] >> (bit & 7)) & 1
                bit += 1
        elif mode >= ONES:
            position = start - 1
            while True:
                if bit > limit:
                    return -1
                gap, bit = get_gap(buffer, bit, limit, _parameter(mode))
                position += gap + 1
                if position >= end:
                    break
                marks[position] ^= 1
            if position > end:
                return -1
    return bit if bit <= limit else -1
