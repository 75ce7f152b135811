"""Which entries of a row were sent, in as few bytes as the best of several coders needs.

A tag says which: everything is sent, Elias-gamma, Rice (r = 0 is the bitmap), or block-Rice.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.wire.frame import WireError
from gossamer.wire.kernels import indices
from gossamer.wire.kernels.bits import Bytes, Positions, Words
from gossamer.wire.kernels.index_sizes import INSIDE, TAG_ALL

WHY = {
    indices.UNKNOWN: "Index coding {tag} is not known here.",
    indices.NO_COUNT: "A count is cut off or too long.",
    indices.TOO_MANY: "A part of {width} numbers claims more indices than that.",
    indices.DAMAGED: "The indices of a part are damaged.",
}


class IndexPlan(NamedTuple):
    """How a row's indices will be written."""

    tag: int
    num_sent: int
    num_bytes: int  # without the tag
    words: Words  # the packed mask
    modes: Bytes  # how each block would be coded by block-Rice


def plan(mask: Bytes) -> IndexPlan:
    """The shortest coding of a mask of zeros and ones."""
    words, tag, count, num_bytes, modes = indices.plan_marks(mask, INSIDE)
    return IndexPlan(tag, count, num_bytes, words, modes)


def everything(words: Words, width: int) -> IndexPlan:
    """The coding of a row of which everything is sent."""
    return IndexPlan(TAG_ALL, width, 0, words, np.empty(0, np.uint8))


def write(plan: IndexPlan, width: int, out: Bytes, at: int) -> tuple[Positions | None, int]:
    """Write tag and indices from byte `at` on; returns the positions, None if they are all, and the byte behind."""
    if plan.tag == TAG_ALL:
        out[at] = TAG_ALL
        return None, at + 1
    return indices.write_indices(plan.tag, plan.words, plan.modes, plan.num_sent, width, out, at)


def read(buffer: Bytes, at: int, end: int, width: int) -> tuple[Positions | None, NDArray[np.bool_], int]:
    """The positions, or None if they are all, the row of marks, (1, width), and the byte behind what was read."""
    if at >= end:
        raise WireError("The frame ends before the indices of a part.")
    if buffer[at] == TAG_ALL:
        return None, np.ones((1, width), np.bool_), at + 1
    marks = np.zeros((1, width), np.bool_)
    positions, behind = indices.read_indices(buffer, at, end, marks)
    if behind < 0:
        raise WireError(WHY[behind].format(tag=buffer[at], width=width))
    return positions, marks, behind
