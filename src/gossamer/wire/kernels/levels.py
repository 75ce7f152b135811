"""Integers of 1 to 8 bits as symbols: 8 // b of b bits each, the first one lowest.

So even numbers of one or two bits are coded close to their entropy.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.bits import Bytes, Words, i64, load64, peek, put, trailing_zeros, u64
from gossamer.wire.kernels.code_lengths import Counts
from gossamer.wire.kernels.floats import CODED, ENDS, RAW, UNKNOWN
from gossamer.wire.kernels.huffman import code_histogram, read_coded, write_coded
from gossamer.wire.kernels.symbols import count_symbols, symbols_of

DAMAGED = -4  # why integers cannot be read: a symbol has more in it than they have

Levels = NDArray[np.int16]


@njit(cache=True)
def pack_levels(levels: Levels, mask: Words, num_bits: int, symbols: Bytes) -> bool:
    """The symbols of the integers under a packed mask; False if one has more bits than allowed."""
    offset, shift, allowed = 1 << (num_bits - 1), 0, (1 << num_bits) - 1
    if num_bits == 1:  # -1 and 1 give the digits 0 and 1
        shift, allowed = 1, 2
    full = num_bits * (8 // num_bits)
    found, symbol, filled, used = u64(0), 0, 0, 0
    for i in range(mask.size):
        word, first = mask[i], u64(64 * i)
        while word != 0:
            digit = i64(levels[first + u64(trailing_zeros(word))]) + offset
            word &= word - u64(1)
            used |= digit
            symbol |= (digit >> shift) << filled
            filled += num_bits
            if filled == full:
                symbols[found] = symbol & 255
                found += u64(1)
                symbol, filled = 0, 0
    if filled > 0:
        symbols[found] = symbol & 255
    return used & ~allowed == 0


@njit(cache=True)
def unpack_levels(symbols: Bytes, num_bits: int, levels: Levels) -> bool:
    """The integers of symbols; False if a symbol has more in it than the integers."""
    group = 8 // num_bits
    for i in range(levels.size):
        digit = (i64(symbols[i // group]) >> (num_bits * (i % group))) & ((1 << num_bits) - 1)
        levels[i] = 2 * digit - 1 if num_bits == 1 else digit - (1 << (num_bits - 1))
    beyond = 0
    for i in range(symbols.size):
        used = min(group, levels.size - group * i)
        beyond |= i64(symbols[i]) >> (num_bits * used)
    return beyond == 0


@njit(cache=True)
def write_raw(symbols: Bytes, num_bits: int, out: Bytes, at: int) -> None:
    """Symbols of `num_bits` bits each, from byte `at` on."""
    held, num_held = u64(0), 0
    for symbol in symbols:
        at, held, num_held = put(out, at, held, num_held, u64(symbol), num_bits)


@njit(cache=True)
def read_raw(buffer: Bytes, at: int, num_bits: int, total_bits: int, symbols: Bytes) -> None:
    """Symbols of `num_bits` bits each; what lies behind `total_bits` is taken for zero."""
    for i in range(symbols.size):
        length = min(num_bits, total_bits - i * num_bits)
        word = peek(buffer, 8 * at + i * num_bits)
        symbols[i] = word & ((u64(1) << u64(length)) - u64(1))


@njit(cache=True)
def scale_levels(levels: Levels, scales: NDArray[np.float32], bucket: int, numbers: NDArray[np.float32]) -> None:
    """level * scale, in float32; `bucket` levels share a scale."""
    for first in range(0, levels.size, bucket):
        scale = scales[first // bucket]
        for i in range(first, min(first + bucket, levels.size)):
            numbers[i] = np.float32(levels[i]) * scale


@njit(cache=True)
def plan_levels(levels: Levels, mask: Words, num_bits: int, count: int) -> tuple[int, Bytes, Counts, Bytes, bool]:
    """Bytes of the integers under a mask, coded, the symbols, their histogram and code lengths, and whether all
    integers fit."""
    symbols = np.empty((count + 8 // num_bits - 1) // (8 // num_bits), np.uint8)
    fits = pack_levels(levels, mask, num_bits, symbols)
    counts = np.empty(256, np.int64)
    count_symbols(symbols, counts)
    lengths, num_bytes = code_histogram(counts, num_bits > 4)
    return num_bytes, symbols, counts, lengths, fits


@njit(cache=True)
def _all_fit(levels: Levels, num_bits: int) -> Any:
    """Whether integers have at most so many bits, 4 at a time: then all above them are like the highest of them."""
    changes = u64(0)
    for i in range(0, levels.size - 3, 4):
        four = load64(levels, i)
        changes |= four ^ (four << u64(1))
    for i in range(levels.size & ~3, levels.size):
        changes |= u64(i64(levels[i]) ^ (i64(levels[i]) << 1)) & u64(0xFFFF)
    above = u64(0xFFFF) >> u64(num_bits) << u64(num_bits)
    return changes & (above * u64(0x0001000100010001)) == 0


@njit(cache=True)
def level_bytes(levels: Levels, mask: Words, num_bits: int, count: int) -> Any:
    """Bytes of the integers under a mask, coded, as `plan_levels` finds them; -1 if an integer, sent or not, is too
    large, so that the plan has to be asked."""
    if num_bits <= 4:  # several make a symbol
        num_bytes, _, _, _, fits = plan_levels(levels, mask, num_bits, count)
        return num_bytes if fits else -1
    if not _all_fit(levels, num_bits):
        return -1
    found = np.empty(256, np.int64)
    count_symbols(symbols_of(levels.view(np.uint16), mask, 0, count), found)
    counts = np.empty(256, np.int64)
    for symbol in range(256):
        counts[(symbol + (1 << (num_bits - 1))) & 255] = found[symbol]
    return code_histogram(counts, True)[1]


@njit(cache=True)
def write_levels(
    symbols: Bytes, coded: bool, num_bits: int, counts: Counts, lengths: Bytes, out: Bytes, at: int
) -> int:
    """Symbols of integers with their tag, from byte `at` on; returns the byte behind them if they are coded."""
    out[at] = CODED if coded else RAW
    if coded:
        return write_coded(symbols, counts, lengths, out, at + 1)
    write_raw(symbols, num_bits * (8 // num_bits), out, at + 1)
    return at + 1


@njit(cache=True)
def read_levels(buffer: Bytes, at: int, end: int, num_bits: int, count: int) -> tuple[Any, int]:
    """`count` integers from their tag on, and the byte behind them, or in its place why they cannot be read."""
    nothing = np.empty(0, np.int16)
    if at >= end:
        return nothing, ENDS
    tag = buffer[at]
    if tag > CODED:
        return nothing, UNKNOWN
    at += 1
    group = 8 // num_bits
    num_symbols = (count + group - 1) // group
    if tag == CODED:
        symbols, behind = read_coded(buffer, at, end, num_symbols)
        if behind < 0:
            return nothing, behind
    else:
        behind = at + ((count * num_bits + 7) >> 3)
        if behind > end:
            return nothing, ENDS
        symbols = np.empty(num_symbols, np.uint8)
        read_raw(buffer, at, num_bits * group, count * num_bits, symbols)
    levels = np.empty(count, np.int16)
    return levels, behind if unpack_levels(symbols, num_bits, levels) else DAMAGED
