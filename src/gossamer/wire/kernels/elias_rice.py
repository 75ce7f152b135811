"""Two codes of gaps between ascending positions: gap = position - previous position - 1, from 0 on.

Elias-gamma writes gap + 1: as many zeros as that number has bits behind its highest, a one, then those bits. Rice with
parameter r writes gap >> r as so many zeros and a one, then the low r bits of the gap; with r = 0 it is the bitmap up
to its last one. Functions for both take GAMMA in place of a parameter.
"""

from typing import Any

import numpy as np
from numba import njit

from gossamer.wire.kernels.bits import Bytes, Positions, i64, leading_zeros, peek, put, put_zeros, trailing_zeros, u64

GAMMA = -1
MAX_RICE = 24


@njit(cache=True)
def gap_bits(gaps: Positions, r: int) -> int:
    """Bits of all these gaps."""
    total = 0
    if r == GAMMA:
        for gap in gaps:
            total += 127 - 2 * leading_zeros(u64(gap + 1))
        return total
    for gap in gaps:
        total += gap >> r
    return total + gaps.size * (1 + r)


@njit(cache=True)
def gaps_of(positions: Positions, start: int) -> Positions:
    """The gaps of positions from `start` on."""
    gaps = np.empty_like(positions)
    previous = start - 1
    for i in range(positions.size):
        gaps[i] = positions[i] - previous - 1
        previous = positions[i]
    return gaps


@njit(cache=True)
def plan_gaps(positions: Positions) -> tuple[int, int]:
    """The shortest code, GAMMA or the parameter of Rice, and its bits."""
    gaps = gaps_of(positions, 0)
    best, fewest = 0, gap_bits(gaps, 0)
    for r in range(1, MAX_RICE + 1):
        bits = gap_bits(gaps, r)
        if bits >= fewest:  # a larger r gains less than the one before did: none is shorter
            break
        best, fewest = r, bits
    gamma_bits = gap_bits(gaps, GAMMA)
    return (best, fewest) if fewest < gamma_bits else (GAMMA, gamma_bits)


@njit(cache=True, inline="always")
def _put_gamma(out: Bytes, at: int, held: Any, num_held: int, gap: int) -> tuple[int, Any, int]:
    number = u64(gap + 1)
    length = 63 - leading_zeros(number)
    code = ((number ^ (u64(1) << u64(length))) << u64(1)) | u64(1)
    if length > 27:  # longer than what can be put at once
        at, held, num_held = put_zeros(out, at, held, num_held, length)
        return put(out, at, held, num_held, code, length + 1)
    return put(out, at, held, num_held, code << u64(length), 2 * length + 1)


@njit(cache=True, inline="always")
def _put_rice(out: Bytes, at: int, held: Any, num_held: int, gap: int, r: int) -> tuple[int, Any, int]:
    zeros = gap >> r
    code = (u64(gap & ((1 << r) - 1)) << u64(1)) | u64(1)
    if zeros + r > 55:
        at, held, num_held = put_zeros(out, at, held, num_held, zeros)
        return put(out, at, held, num_held, code, r + 1)
    return put(out, at, held, num_held, code << u64(zeros), zeros + r + 1)


@njit(cache=True)
def put_gap(out: Bytes, at: int, held: Any, num_held: int, gap: int, r: int) -> tuple[int, Any, int]:
    """Append the code of a gap to a stream; the writer's state is that of `put`."""
    if r == GAMMA:
        return _put_gamma(out, at, held, num_held, gap)
    return _put_rice(out, at, held, num_held, gap, r)


@njit(cache=True, inline="always")
def _get_gamma(buffer: Bytes, bit: int) -> tuple[int, int]:
    """Reads at most 12 bytes from `bit` on, and never a gap of 2^32 or more."""
    word = peek(buffer, bit)
    length = trailing_zeros(word)
    if length > 31:
        return 1 << 32, bit + 64
    if length > 28:
        word = peek(buffer, bit + length) << u64(length)
    rest = (word >> u64(length + 1)) & ((u64(1) << u64(length)) - u64(1))
    return i64(rest) + (1 << length) - 1, bit + 2 * length + 1


@njit(cache=True, inline="always")
def _get_rice(buffer: Bytes, bit: int, limit: int, r: int) -> tuple[int, int]:
    """Stops at the limit, and reads at most 8 bytes behind it."""
    word = peek(buffer, bit)
    zeros = trailing_zeros(word)
    if zeros + r <= 56:
        low = (word >> u64(zeros + 1)) & ((u64(1) << u64(r)) - u64(1))
        return (zeros << r) + i64(low), bit + zeros + r + 1
    zeros = 0
    while True:
        more = trailing_zeros(peek(buffer, bit))
        if more < 57:
            break
        zeros += 57
        bit += 57
        if bit > limit:
            return 0, bit
    bit += more + 1
    if bit > limit:
        return 0, bit
    low = peek(buffer, bit) & ((u64(1) << u64(r)) - u64(1))
    return ((zeros + more) << r) + i64(low), bit + r


@njit(cache=True)
def get_gap(buffer: Bytes, bit: int, limit: int, r: int) -> tuple[int, int]:
    """A gap and the bit position behind it, which is above `limit` if the stream ends before."""
    if r == GAMMA:
        return _get_gamma(buffer, bit)
    return _get_rice(buffer, bit, limit, r)


@njit(cache=True)
def write_gaps(positions: Positions, r: int, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    previous, held, num_held = -1, u64(0), 0
    for position in positions:
        at, held, num_held = put_gap(out, at, held, num_held, position - previous - 1, r)
        previous = position
    return at + (num_held > 0)


@njit(cache=True)
def read_gaps(buffer: Bytes, bit: int, limit: int, width: int, r: int, positions: Positions) -> int:
    """Fill in the positions; returns the bit position behind them, or -1 if they are not below `width` or go on behind
    the bit position `limit`."""
    previous = -1
    for i in range(positions.size):
        gap, bit = get_gap(buffer, bit, limit, r)
        previous += gap + 1
        if bit > limit or previous >= width:
            return -1
        positions[i] = previous
    return bit
