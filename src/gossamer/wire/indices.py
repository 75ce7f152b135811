"""Which entries of a row were sent, in as few bytes as the best of several coders needs.

A tag says which: everything is sent, Elias-gamma, Rice (r = 0 is the bitmap), block-Rice, or the range coder.
"""

from typing import NamedTuple

import numpy as np

from gossamer.kernels import blocks, gaps, ranges
from gossamer.kernels.bits import Bytes, Positions, Words, ones_in_all, pack, positions_of
from gossamer.kernels.measure import (
    INSIDE,
    MAX_RICE,
    TAG_ALL,
    TAG_BLOCKS,
    TAG_GAMMA,
    TAG_RANGE,
    TAG_RICE,
    plan_indices,
    varint_bytes,
)
from gossamer.wire.frame import WireError

CODERS = {TAG_ALL: "all", TAG_GAMMA: "gamma", TAG_BLOCKS: "blocks", TAG_RANGE: "range"} | {
    TAG_RICE + r: f"rice{r}" for r in range(MAX_RICE + 1)
}


class IndexPlan(NamedTuple):
    """How a row's indices will be written."""

    tag: int
    num_sent: int
    num_bytes: int  # without the tag
    words: Words  # the packed mask
    modes: Bytes  # how each block would be coded by block-Rice
    coded: Bytes | None = None  # the range coder's bytes: their number is known only once they are there


class Contexts(NamedTuple):
    """The range coder's context of each position."""

    numbers: ranges.Contexts
    num_different: int


def plan(mask: Bytes, contexts: Contexts | None = None) -> IndexPlan:
    """The shortest coding of a mask of zeros and ones; with contexts, the range coder is tried as well."""
    words = pack(mask)
    tag, count, num_bytes, modes = plan_indices(words, mask.size, INSIDE)
    if contexts is not None and tag != TAG_ALL and num_bytes > 4:
        scratch = np.empty(num_bytes, np.uint8)
        length = ranges.write_range(mask, contexts.numbers, contexts.num_different, count, scratch)
        with_counts = varint_bytes(count) + varint_bytes(length) + length
        if length >= 0 and with_counts < num_bytes:
            return IndexPlan(TAG_RANGE, count, with_counts, words, modes, scratch[:length])
    return IndexPlan(tag, count, num_bytes, words, modes)


def everything(words: Words, width: int) -> IndexPlan:
    """The coding of a row of which everything is sent."""
    return IndexPlan(TAG_ALL, width, 0, words, np.empty(0, np.uint8))


def write(plan: IndexPlan, positions: Positions | None, width: int, out: Bytes, at: int) -> int:
    """Write tag and indices from byte `at` on; returns the byte behind them."""
    out[at] = plan.tag
    at += 1
    if positions is None:
        return at
    if plan.tag == TAG_BLOCKS:
        return blocks.write_blocks(plan.words, plan.modes, width, out, at)
    at = _write_varint(plan.num_sent, out, at)
    if plan.coded is not None:
        at = _write_varint(plan.coded.size, out, at)
        out[at : at + plan.coded.size] = plan.coded
        return at + plan.coded.size
    if plan.tag == TAG_GAMMA:
        return gaps.write_gamma(positions, out, at)
    return gaps.write_rice(positions, plan.tag - TAG_RICE, out, at)


def read(buffer: Bytes, at: int, end: int, width: int, contexts: Contexts) -> tuple[Positions | None, int]:
    """The positions, or None if they are all, and the byte behind them."""
    if at >= end:
        raise WireError("The frame ends before the indices of a part.")
    tag = int(buffer[at])
    at += 1
    if tag == TAG_ALL:
        return None, at
    if tag == TAG_BLOCKS:
        words = np.zeros((width + 63) // 64, np.uint64)
        behind = blocks.read_blocks(buffer, 8 * at, 8 * end, width, words)
        _check(behind >= 0)
        return positions_of(words, ones_in_all(words)), (behind + 7) // 8
    if tag not in CODERS:
        raise WireError(f"Index coding {tag} is not known here.")
    count, at = _read_varint(buffer, at, end)
    if count > width:
        raise WireError(f"A part of {width} numbers claims {count} indices.")
    if tag == TAG_RANGE:
        length, at = _read_varint(buffer, at, end)
        _check(length <= end - at)
        mask = np.empty(width, np.uint8)
        _check(ranges.read_range(buffer, at, at + length, contexts.numbers, contexts.num_different, count, mask))
        return positions_of(pack(mask), count), at + length
    _check(count <= 8 * (end - at))  # an index takes a bit or more
    positions = np.empty(count, np.int64)
    if tag == TAG_GAMMA:
        behind = gaps.read_gamma(buffer, 8 * at, 8 * end, width, positions)
    else:
        behind = gaps.read_rice(buffer, 8 * at, 8 * end, width, tag - TAG_RICE, positions)
    _check(behind >= 0)
    return positions, (behind + 7) // 8


def _check(right: bool) -> None:
    if not right:
        raise WireError("The indices of a part are damaged.")


def _write_varint(number: int, out: Bytes, at: int) -> int:
    while number >= 128:
        out[at] = number & 127 | 128
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


def _read_varint(buffer: Bytes, at: int, end: int) -> tuple[int, int]:
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
