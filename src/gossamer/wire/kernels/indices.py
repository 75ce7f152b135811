"""Tag and indices of a row, by any coder: planned, written and read in one call each."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels import block_rice as blocks
from gossamer.wire.kernels import elias_rice as gaps
from gossamer.wire.kernels.bits import Bytes, Positions, Words, i64, mark, ones_in_all, pack, positions_of
from gossamer.wire.kernels.index_sizes import (
    MAX_RICE,
    TAG_BLOCKS,
    TAG_GAMMA,
    TAG_RICE,
    plan_indices,
)

UNKNOWN, NO_COUNT, TOO_MANY, DAMAGED = -1, -2, -3, -4  # why indices cannot be read


@njit(cache=True)
def plan_marks(marks: Bytes, inside: NDArray[np.uint32]) -> tuple[Words, int, int, int, Bytes]:
    """A mask packed, and what `plan_indices` says of it."""
    words = pack(marks)
    tag, count, num_bytes, modes = plan_indices(words, marks.size, inside)
    return words, tag, count, num_bytes, modes


@njit(cache=True)
def write_varint(number: int, out: Bytes, at: int) -> int:
    while number >= 128:
        out[at] = number & 127 | 128
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


@njit(cache=True)
def write_indices(
    tag: int, words: Words, modes: Bytes, count: int, width: int, out: Bytes, at: int
) -> tuple[Positions, int]:
    """Write tag and indices from byte `at` on; returns the positions and the byte behind."""
    positions = positions_of(words, count)
    out[at] = tag
    at += 1
    if tag == TAG_BLOCKS:
        return positions, blocks.write_blocks(words, modes, width, out, at)
    at = write_varint(count, out, at)
    if tag == TAG_GAMMA:
        return positions, gaps.write_gamma(positions, out, at)
    return positions, gaps.write_rice(positions, tag - TAG_RICE, out, at)


@njit(cache=True)
def read_varint(buffer: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number and the byte behind it, or NO_COUNT in its place."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = i64(buffer[at])
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    return 0, NO_COUNT


@njit(cache=True)
def read_indices(buffer: Bytes, at: int, end: int, marks: NDArray[np.bool_]) -> tuple[Any, int]:
    """The positions from their tag on, which is there, and the byte behind, or in its place why they cannot be read.

    They are marked in a row of zeros, (1, width), if they can.
    """
    positions, behind = _read_positions(buffer, at, end, marks.shape[1])
    if behind >= 0:
        mark(positions, marks[0])
    return positions, behind


@njit(cache=True)
def _read_positions(buffer: Bytes, at: int, end: int, width: int) -> tuple[Any, int]:
    nothing = np.empty(0, np.int64)
    tag = i64(buffer[at])
    at += 1
    if tag == TAG_BLOCKS:
        words = np.zeros((width + 511) >> 9 << 3, np.uint64)
        bit = blocks.read_blocks(buffer, 8 * at, 8 * end, width, words)
        return (positions_of(words, ones_in_all(words)), (bit + 7) >> 3) if bit >= 0 else (nothing, DAMAGED)
    if tag != TAG_GAMMA and not TAG_RICE <= tag <= TAG_RICE + MAX_RICE:
        return nothing, UNKNOWN
    count, at = read_varint(buffer, at, end)
    if at < 0:
        return nothing, at
    if count > width:
        return nothing, TOO_MANY
    if count > 8 * (end - at):  # an index takes a bit or more
        return nothing, DAMAGED
    positions = np.empty(count, np.int64)
    if tag == TAG_GAMMA:
        bit = gaps.read_gamma(buffer, 8 * at, 8 * end, width, positions)
    else:
        bit = gaps.read_rice(buffer, 8 * at, 8 * end, width, tag - TAG_RICE, positions)
    return (positions, (bit + 7) >> 3) if bit >= 0 else (nothing, DAMAGED)
