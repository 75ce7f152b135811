"""Which entries of a row were sent, in as few bytes as the best of several coders needs.

A tag says which: everything is sent, Elias-gamma, Rice (r = 0 is the bitmap), or block-Rice.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.wire.frame import WireError
from gossamer.wire.kernels.bits import Bytes, Positions, positions_of
from gossamer.wire.kernels.block_rice import plan_blocks, read_blocks, write_blocks
from gossamer.wire.kernels.elias_rice import GAMMA, MAX_RICE, plan_gaps, read_gaps, write_gaps

TAG_ALL, TAG_GAMMA, TAG_BLOCKS, TAG_RICE = 0, 1, 2, 32  # TAG_RICE + r


class IndexPlan(NamedTuple):
    """How a row's indices will be written."""

    tag: int
    num_bytes: int  # without the tag
    positions: Positions | None  # None: everything is sent
    blocks: tuple[Bytes, Bytes] | None = None  # of block-Rice: the row of zeros and ones, and the modes


EVERYTHING = IndexPlan(TAG_ALL, 0, None)


def plan(marks: Bytes) -> IndexPlan:
    """The shortest coding of a row of zeros and ones."""
    positions = positions_of(marks)
    if positions.size == marks.size:
        return EVERYTHING
    r, gap_bits = plan_gaps(positions)
    modes, block_bits = plan_blocks(marks)
    gap_bytes, block_bytes = len(_varint(positions.size)) + (gap_bits + 7) // 8, (block_bits + 7) // 8
    if block_bytes < gap_bytes:
        return IndexPlan(TAG_BLOCKS, block_bytes, positions, (marks, modes))
    return IndexPlan(TAG_GAMMA if r == GAMMA else TAG_RICE + r, gap_bytes, positions)


def write(plan: IndexPlan, out: Bytes, at: int) -> int:
    """Write tag and indices from byte `at` on; returns the byte behind."""
    out[at] = plan.tag
    at += 1
    if plan.positions is None:
        return at
    if plan.blocks is not None:
        return write_blocks(*plan.blocks, out, at)
    count = _varint(plan.positions.size)
    out[at : at + len(count)] = np.frombuffer(count, np.uint8)
    return write_gaps(plan.positions, _parameter(plan.tag), out, at + len(count))


def read(buffer: Bytes, at: int, end: int, width: int) -> tuple[Positions | None, NDArray[np.bool_], int]:
    """The positions, or None if they are all, the row of marks, (1, width), and the byte behind what was read."""
    if at >= end:
        raise WireError("The frame ends before the indices of a part.")
    tag = int(buffer[at])
    at += 1
    if tag == TAG_ALL:
        return None, np.ones((1, width), np.bool_), at
    marks = np.zeros((1, width), np.bool_)
    if tag == TAG_BLOCKS:
        row = marks[0].view(np.uint8)
        bit = read_blocks(buffer, 8 * at, 8 * end, row)
        positions = positions_of(row)
    elif tag == TAG_GAMMA or TAG_RICE <= tag <= TAG_RICE + MAX_RICE:
        count, at = _read_varint(buffer, at, end)
        if count > width:
            raise WireError(f"A part of {width} numbers claims more indices than that.")
        fits = count <= 8 * (end - at)  # an index takes a bit or more: before there is room made for them
        positions = np.empty(count if fits else 0, np.int64)
        bit = read_gaps(buffer, 8 * at, 8 * end, width, _parameter(tag), positions) if fits else -1
        if bit >= 0:
            marks[0, positions] = True
    else:
        raise WireError(f"Index coding {tag} is not known here.")
    if bit < 0:
        raise WireError("The indices of a part are damaged.")
    return positions, marks, (bit + 7) >> 3


def _parameter(tag: int) -> int:
    return GAMMA if tag == TAG_GAMMA else tag - TAG_RICE


def _varint(number: int) -> bytes:
    """Seven bits per byte, low ones first; the high bit says that another byte follows."""
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(buffer: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number of at most five bytes, and the byte behind it."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = int(buffer[at])
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise WireError("A count is cut off or too long.")
