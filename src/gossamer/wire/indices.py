"""Which entries of a row were sent, in as few bytes as the best of several coders needs.

A tag says which: everything is sent, Elias-gamma or Rice of the gaps between positions (Rice with r = 0 is the bitmap
up to its last one), block-Rice, which suits its parameter to every 512 positions, or adaptive binary arithmetic coding
(adaptive.py), the shortest and the slowest, which is tried only for few entries of few bits each.

Block-Rice writes each block in one of 16 modes: nothing or everything sent, a bitmap, or gaps by Elias-gamma or Rice,
of the ones or, in dense blocks, of the zeros. A list of gaps counts from the block's start and ends with the gap to the
block's end, as if a one stood there, so no count is needed. Before each block stands one bit: 1, its mode is that of
the block before (mode 0 before the first), or 0, and four bits give the mode.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.core.kernels import njit
from gossamer.wire.adaptive import FEW, code_marks, read_marks
from gossamer.wire.arithmetic import NOTHING
from gossamer.wire.bits import (
    GAMMA,
    Bytes,
    Positions,
    Words,
    get_gap,
    i64,
    list_ones,
    ones_in,
    pack,
    peek,
    put,
    put_gap,
    trailing_zeros,
    u64,
    unpack,
)
from gossamer.wire.frame import WireError

TAG_ALL, TAG_GAMMA, TAG_BLOCKS, TAG_ADAPTIVE, TAG_RICE = 0, 1, 2, 3, 32  # TAG_RICE + r
MAX_RICE = 24
BLOCK = 512
BLOCK_WORDS = BLOCK // 64
EMPTY, FULL, BITMAP, ONES, ZEROS, NUM_MODES = 0, 1, 2, 3, 10, 16
# ONES: gaps of the ones, by Elias-gamma, and the six modes behind it by Rice with r = 1 .. 6; ZEROS: gaps of the
# zeros, and the five modes behind it by Rice with r = 1 .. 5

Gaps = NDArray[np.uint32]  # gap = position - position before - 1


class IndexPlan(NamedTuple):
    """How a row's indices will be written."""

    tag: int
    num_bytes: int  # without the tag
    positions: Positions | None  # None: everything is sent
    blocks: tuple[Words, Bytes] | None = None  # of block-Rice: the row of zeros and ones, packed, and the modes
    marks: Bytes | None = None  # of adaptive coding: the row of zeros and ones


EVERYTHING = IndexPlan(TAG_ALL, 0, None)


def plan(marks: Bytes, adaptive: bool = False) -> IndexPlan:
    """The shortest coding of a row of zeros and ones; `adaptive`: if the slowest is worth a try."""
    words = pack(marks)
    positions = unpack(words)
    tag, num_bytes, modes = shortest(words, positions, marks.size)
    if tag == TAG_ALL:
        return EVERYTHING
    if adaptive and FEW * positions.size <= marks.size:
        adaptive_bytes = code_marks(marks, NOTHING, 0)
        if adaptive_bytes < num_bytes:
            return IndexPlan(TAG_ADAPTIVE, adaptive_bytes, positions, marks=marks)
    return IndexPlan(tag, num_bytes, positions, (words, modes) if tag == TAG_BLOCKS else None)


def write(plan: IndexPlan, width: int, out: Bytes, at: int) -> int:
    """Write tag and indices from byte `at` on; returns the byte behind."""
    out[at] = plan.tag
    at += 1
    if plan.positions is None:
        return at
    if plan.marks is not None:
        return code_marks(plan.marks, out, at)
    if plan.blocks is not None:
        return write_blocks(*plan.blocks, plan.positions, width, out, at)
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
    row = marks[0].view(np.uint8)
    if tag == TAG_BLOCKS:
        positions, bit = read_blocks(buffer, 8 * at, 8 * end, row)
    elif tag == TAG_ADAPTIVE:
        at = read_marks(buffer, at, end, row)
        positions, bit = unpack(pack(row)), 8 * at if at <= end else -1
    elif tag == TAG_GAMMA or TAG_RICE <= tag <= TAG_RICE + MAX_RICE:
        count, at = _read_varint(buffer, at, end)
        if count > width:
            raise WireError(f"A part of {width} numbers claims more indices than that.")
        fits = count <= 8 * (end - at)  # an index takes a bit or more: before there is room made for them
        positions = np.empty(count if fits else 0, np.uint32)
        bit = read_gaps(buffer, 8 * at, 8 * end, width, _parameter(tag), positions) if fits else -1
        if bit >= 0:
            mark(positions, 1, row)
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


# -- gaps of a whole row -----------------------------------------------------------------------------------------------


@njit(cache=True)
def list_gaps(positions: Positions, start: int, end: int, gaps: Gaps) -> Gaps:
    """Fill in the gaps of positions from `start` on, and the one to `end`; returns those that are filled in."""
    count, previous = positions.size, start - 1
    for i in range(min(count, 1)):
        gaps[i] = positions[i] - start
    for i in range(1, count):
        gaps[i] = positions[i] - positions[i - 1] - u64(1)
    if count > 0:
        previous = i64(positions[count - 1])
    gaps[count] = end - previous - 1
    return gaps[: count + 1]


@njit(cache=True)
def rice_bits(gaps: Gaps, r: int) -> int:
    """Bits of all these gaps, whose sum is below 2^32, by Rice."""
    zeros, shift = np.uint32(0), np.uint32(r)  # nothing wider, so that many are added up at once
    for i in range(gaps.size):
        zeros = np.uint32(zeros + (gaps[i] >> shift))
    num_bits: int = i64(zeros) + gaps.size * (1 + r)
    return num_bits


@njit(cache=True)
def gamma_bits(gaps: Gaps, limit: int) -> int:
    """Bits of all these gaps by Elias-gamma, or some number above the limit if they are more than that."""
    total, power = gaps.size, 1
    while total <= limit:
        longer = np.uint32(0)  # a gap has two bits more for each power of two that gap + 1 reaches
        power *= 2
        for i in range(gaps.size):
            longer = np.uint32(longer + (gaps[i] >= np.uint32(power - 1)))
        if longer == 0:
            break
        total += 2 * i64(longer)
    return total


@njit(cache=True)
def plan_gaps(positions: Positions) -> tuple[int, int]:
    """The shortest code, GAMMA or the parameter of Rice, and its bits."""
    gaps = list_gaps(positions, 0, 0, np.empty(positions.size + 1, np.uint32))[: positions.size]
    best, fewest = 0, i64(positions[-1]) + 1 if positions.size > 0 else 0
    for r in range(1, MAX_RICE + 1):
        bits = rice_bits(gaps, r)
        if bits >= fewest:  # a larger r gains less than the one before did: none is shorter
            break
        best, fewest = r, bits
    bits = gamma_bits(gaps, fewest)
    return (best, fewest) if fewest < bits else (GAMMA, bits)


@njit(cache=True)
def write_gaps(positions: Positions, r: int, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    previous, held, num_held = -1, u64(0), 0
    for i in range(positions.size):
        position = i64(positions[i])
        at, held, num_held = put_gap(out, at, held, num_held, position - previous - 1, r)
        previous = position
    return at + (num_held > 0)


@njit(cache=True)
def read_positions(
    buffer: Bytes, bit: int, limit: int, r: int, start: int, end: int, positions: Positions
) -> tuple[int, int, int]:
    """Fill in positions from `start` on until one is not below `end` or there is no room for more.

    Returns how many they are, the last one, and the bit position behind it, above `limit` if they go on behind that.
    """
    found, position = 0, start - 1
    while found < positions.size and position < end and bit <= limit:
        word, used = peek(buffer, bit), 0
        zeros = trailing_zeros(word)
        num_low = zeros if r == GAMMA else r
        if zeros + num_low > 56:
            gap, bit = get_gap(buffer, bit, limit, r)
            position += gap + 1
            positions[found] = position
            found += 1
            continue
        # all gaps that are whole in the bits at hand: to look into the buffer again takes longer
        while used + zeros + num_low < 57 and found < positions.size and position < end:
            low = i64((word >> u64(zeros + 1)) & ((u64(1) << u64(num_low)) - u64(1)))
            position += low + (1 << zeros if r == GAMMA else (zeros << r) + 1)
            positions[u64(found)] = position
            found += 1
            word >>= u64(zeros + num_low + 1)
            used += zeros + num_low + 1
            zeros = trailing_zeros(word)
            num_low = zeros if r == GAMMA else r
        bit += used
    return found, position, bit


@njit(cache=True)
def read_gaps(buffer: Bytes, bit: int, limit: int, width: int, r: int, positions: Positions) -> int:
    """Fill in the positions; returns the bit position behind them, or -1 if they are not below `width` or go on behind
    the bit position `limit`."""
    found, last, bit = read_positions(buffer, bit, limit, r, 0, width, positions)
    return -1 if found < positions.size or last >= width or bit > limit else bit


@njit(cache=True)
def mark(positions: Positions, value: int, marks: Bytes) -> None:
    """Give the marks at these positions a value."""
    for i in range(positions.size):
        marks[positions[i]] = value


# -- blocks ------------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _mode_parameter(mode: int) -> int:
    """Of the code of gaps, for modes from ONES on."""
    r = mode - (ZEROS if mode >= ZEROS else ONES)
    return r if r > 0 else GAMMA


@njit(cache=True)
def _shortest_mode(gaps: Gaps, length: int, zeros: bool, before: int) -> tuple[int, int]:
    """The mode in which a block of this length and these gaps is shortest, of equals the lowest, and its bits with
    those that tell the mode."""
    best, fewest = BITMAP, length + (1 if before == BITMAP else 5)
    gamma = ZEROS if zeros else ONES
    shortest = length + 1  # by Rice with r = 0
    for mode in range(gamma + 1, NUM_MODES if zeros else ZEROS):
        bits = rice_bits(gaps, mode - gamma)
        total = bits + (1 if mode == before else 5)
        if total < fewest:
            best, fewest = mode, total
        if bits >= shortest and mode >= before:  # as above; the mode before takes four bits less to tell
            break
        shortest = min(shortest, bits)
    bits = gamma_bits(gaps, fewest) + (1 if gamma == before else 5)
    if bits < fewest or (bits == fewest and best > gamma):
        best, fewest = gamma, bits
    return best, fewest


@njit(cache=True)
def _num_ones(words: Words, block: int) -> int:
    total = 0
    for i in range(block * BLOCK_WORDS, min((block + 1) * BLOCK_WORDS, words.size)):
        total += ones_in(words[i])
    return total


@njit(cache=True)
def _block_gaps(words: Words, block: int, end: int, ones: Positions, zeros: bool, room: Any) -> Gaps:
    """The gaps of the ones of a block, or of its zeros, and the one to its end."""
    start, (positions, gaps) = block * BLOCK, room
    if not zeros:
        return list_gaps(ones, start, end, gaps)
    list_ones(words, block * BLOCK_WORDS, min((block + 1) * BLOCK_WORDS, words.size), True, positions)
    return list_gaps(positions[: end - start - ones.size], start, end, gaps)


@njit(cache=True)
def _room() -> tuple[Positions, Gaps]:
    """For the positions and the gaps of a block."""
    return np.empty(BLOCK, np.uint32), np.empty(BLOCK + 1, np.uint32)


@njit(cache=True)
def plan_blocks(words: Words, positions: Positions, width: int) -> tuple[Bytes, int]:
    """The mode of each block of a packed row with ones at these positions, and the bits of all."""
    modes = np.empty((width + BLOCK - 1) // BLOCK, np.uint8)
    mode, total, first, room = EMPTY, 0, 0, _room()
    for block in range(modes.size):
        before, end = mode, min((block + 1) * BLOCK, width)
        num_ones, length = _num_ones(words, block), end - block * BLOCK
        if num_ones == 0 or num_ones == length:
            mode = EMPTY if num_ones == 0 else FULL
            bits = 1 if mode == before else 5
        else:
            zeros = 2 * num_ones > length
            gaps = _block_gaps(words, block, end, positions[first : first + num_ones], zeros, room)
            mode, bits = _shortest_mode(gaps, length, zeros, before)
        modes[block] = mode
        total += bits
        first += num_ones
    return modes, total


@njit(cache=True)
def shortest(words: Words, positions: Positions, width: int) -> tuple[int, int, Bytes]:
    """The tag of the shortest coding of a packed row with ones at these positions, its bytes, and its blocks' modes."""
    if positions.size == width:
        return TAG_ALL, 0, np.empty(0, np.uint8)
    r, gap_bits = plan_gaps(positions)
    modes, block_bits = plan_blocks(words, positions, width)
    gap_bytes, block_bytes = 1 + ((gap_bits + 7) >> 3), (block_bits + 7) >> 3
    count = positions.size
    while count >= 128:  # as in _varint
        gap_bytes += 1
        count >>= 7
    if block_bytes < gap_bytes:
        return TAG_BLOCKS, block_bytes, modes
    return TAG_GAMMA if r == GAMMA else TAG_RICE + r, gap_bytes, modes


@njit(cache=True)
def write_blocks(words: Words, modes: Bytes, positions: Positions, width: int, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    before, held, num_held, first, room = EMPTY, u64(0), 0, 0, _room()
    for block in range(modes.size):
        mode, start = i64(modes[block]), block * BLOCK
        end, num_ones = min(start + BLOCK, width), _num_ones(words, block)
        same = mode == before
        before = mode
        at, held, num_held = put(out, at, held, num_held, u64(1 if same else mode << 1), 1 if same else 5)
        if mode == BITMAP:
            for half in range(start, end, 32):
                word = (words[half >> 6] >> u64(half & 32)) & u64(0xFFFFFFFF)
                at, held, num_held = put(out, at, held, num_held, word, min(32, end - half))
        elif mode >= ONES:
            r = _mode_parameter(mode)
            ones = positions[first : first + num_ones]
            gaps = _block_gaps(words, block, end, ones, mode >= ZEROS, room)
            for i in range(gaps.size):
                at, held, num_held = put_gap(out, at, held, num_held, i64(gaps[i]), r)
        first += num_ones
    return at + (num_held > 0)


@njit(cache=True)
def read_blocks(buffer: Bytes, bit: int, limit: int, marks: Bytes) -> tuple[Positions, int]:
    """Fill in a row of zeros and ones; returns where the ones are, and the bit position behind what was read, or -1 if
    it is damaged."""
    mode, count, positions = EMPTY, 0, np.empty(marks.size + 1, np.uint32)
    for start in range(0, marks.size, BLOCK):
        if bit >= limit:
            return positions, -1
        end = min(start + BLOCK, marks.size)
        head = i64(peek(buffer, bit) & u64(31))
        if head & 1:
            bit += 1
        else:
            mode = head >> 1
            bit += 5
        marks[start:end] = mode == FULL or mode >= ZEROS
        found = 0
        if mode == BITMAP:
            if bit + end - start > limit:
                return positions, -1
            for i in range(start, end):
                marks[i] = (buffer[bit >> 3] >> (bit & 7)) & 1
                bit += 1
        elif mode >= ONES:
            r = _mode_parameter(mode)
            found, last, bit = read_positions(buffer, bit, limit, r, start, end, positions[count:])
            if last != end or bit > limit:
                return positions, -1
            found -= 1
            mark(positions[count : count + found], i64(mode < ZEROS), marks)
        if ONES <= mode < ZEROS:
            count += found
        elif mode != EMPTY:
            for i in range(start, end):  # all are written, without a branch, and those that have another written over
                positions[u64(count)] = i
                count += i64(marks[i])
    return positions[:count], bit if bit <= limit else -1
