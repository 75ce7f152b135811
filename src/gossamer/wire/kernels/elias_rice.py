"""Two index coders over the gaps between ascending positions: gap = position - previous position - 1, from 0 on.

Elias-gamma writes gap + 1: as many zeros as that number has bits behind its highest, a one, then those bits. Rice with
parameter r writes gap >> r as so many zeros and a one, then the low r bits of the gap; with r = 0 it is the bitmap up
to its last one. A reader stops at `limit`, a position in bits, and returns the position behind what it read, or -1 if
that is not a list of positions below `width`.
"""

from typing import Any

from numba import njit

from gossamer.wire.kernels.bits import Bytes, Positions, i64, leading_zeros, peek, put, put_zeros, trailing_zeros, u64


@njit(cache=True, inline="always")
def put_gamma(out: Bytes, at: int, held: Any, num_held: int, gap: int) -> tuple[int, Any, int]:
    number = u64(gap + 1)
    length = 63 - leading_zeros(number)
    code = ((number ^ (u64(1) << u64(length))) << u64(1)) | u64(1)
    if length > 27:  # longer than what can be put at once
        at, held, num_held = put_zeros(out, at, held, num_held, length)
        return put(out, at, held, num_held, code, length + 1)
    return put(out, at, held, num_held, code << u64(length), 2 * length + 1)


@njit(cache=True, inline="always")
def put_rice(out: Bytes, at: int, held: Any, num_held: int, gap: int, r: int) -> tuple[int, Any, int]:
    zeros = gap >> r
    code = (u64(gap & ((1 << r) - 1)) << u64(1)) | u64(1)
    if zeros + r > 55:
        at, held, num_held = put_zeros(out, at, held, num_held, zeros)
        return put(out, at, held, num_held, code, r + 1)
    return put(out, at, held, num_held, code << u64(zeros), zeros + r + 1)


@njit(cache=True, inline="always")
def get_gamma(buffer: Bytes, bit: int) -> tuple[int, int]:
    """A gap and the position behind it. Reads at most 12 bytes from `bit` on, and never a gap of 2^32 or more."""
    word = peek(buffer, bit)
    length = trailing_zeros(word)
    if length > 31:
        return 1 << 32, bit + 64
    if length > 28:
        word = peek(buffer, bit + length) << u64(length)
    rest = (word >> u64(length + 1)) & ((u64(1) << u64(length)) - u64(1))
    return i64(rest) + (1 << length) - 1, bit + 2 * length + 1


@njit(cache=True, inline="always")
def get_rice(buffer: Bytes, bit: int, limit: int, r: int) -> tuple[int, int]:
    """A gap and the position behind it. Stops at the limit, and reads at most 8 bytes behind it."""
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
def write_gamma(positions: Positions, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    previous, held, num_held = -1, u64(0), 0
    for position in positions:
        at, held, num_held = put_gamma(out, at, held, num_held, position - previous - 1)
        previous = position
    return at + (num_held > 0)


@njit(cache=True)
def write_rice(positions: Positions, r: int, out: Bytes, at: int) -> int:
    """Write from byte `at` on; returns the byte behind."""
    previous, held, num_held = -1, u64(0), 0
    for position in positions:
        at, held, num_held = put_rice(out, at, held, num_held, position - previous - 1, r)
        previous = position
    return at + (num_held > 0)


@njit(cache=True)
def read_gamma(buffer: Bytes, bit: int, limit: int, width: int, positions: Positions) -> Any:
    previous, i = -1, 0
    while i < positions.size:
        word, used = peek(buffer, bit), 0
        length = trailing_zeros(word)
        if length > 28:
            gap, bit = get_gamma(buffer, bit)
            previous += gap + 1
            positions[i] = previous
            i += 1
        else:  # all gaps that are whole in the bits at hand: a look into the buffer takes longer than what it shows
            while i < positions.size and used + 2 * length < 57:
                previous += i64((word >> u64(length + 1)) & ((u64(1) << u64(length)) - u64(1))) + (1 << length)
                positions[i] = previous
                i += 1
                word >>= u64(2 * length + 1)
                used += 2 * length + 1
                length = trailing_zeros(word)
            bit += used
        if bit > limit or previous >= width:
            return -1
    return bit


@njit(cache=True)
def read_rice(buffer: Bytes, bit: int, limit: int, width: int, r: int, positions: Positions) -> Any:
    previous, i = -1, 0
    while i < positions.size:
        word, used = peek(buffer, bit), 0
        zeros = trailing_zeros(word)
        if zeros + r > 56:
            gap, bit = get_rice(buffer, bit, limit, r)
            previous += gap + 1
            positions[i] = previous
            i += 1
        else:
            while i < positions.size and used + zeros + r < 57:
                low = (word >> u64(zeros + 1)) & ((u64(1) << u64(r)) - u64(1))
                previous += (zeros << r) + i64(low) + 1
                positions[i] = previous
                i += 1
                word >>= u64(zeros + r + 1)
                used += zeros + r + 1
                zeros = trailing_zeros(word)
            bit += used
        if bit > limit or previous >= width:
            return -1
    return bit
