"""Numbers as bytes worth entropy coding and bytes that are not.

A float of n bits gives one symbol, the 8 bits below its sign (for float32 and bfloat16 the exponent, for float16 the
exponent and the first 3 bits of the fraction), and a rest of n - 8 bits, the sign above what is left of the fraction,
which is as good as random. Integers of b bits give no rest: 8 // b of them make a symbol, the first one lowest, so that
even numbers of one or two bits are coded close to their entropy.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.kernels.bits import Bytes, Words, i64, load64, ones_in, peek, places_of, put, store64, trailing_zeros, u64
from gossamer.kernels.blocks import ALL_ONES
from gossamer.kernels.huffman import Counts, code_histogram

Floats = NDArray[np.uint32]  # the bits of floats, of 16 or 32 bits each
Levels = NDArray[np.int16]


@njit(cache=True)
def count_bytes(numbers: Any, mask: Words, shift: Any, offset: int, count: int, counts: Counts) -> None:
    """Histogram of (number >> shift) + offset, modulo 256, of the `count` numbers under a packed mask."""
    lanes = np.zeros(1024, np.int32)  # four histograms, so that equal neighbours do not wait for each other
    if 4 * count < numbers.size:
        _count_few(numbers, mask, shift, count, lanes)
    else:
        _count_many(numbers, mask, shift, lanes)
    for i in range(256):
        counts[(i + offset) & 255] = lanes[i] + lanes[256 + i] + lanes[512 + i] + lanes[768 + i]


@njit(cache=True, inline="always")
def _count4(a: Any, b: Any, c: Any, d: Any, shift: Any, lanes: NDArray[np.int32]) -> None:
    lanes[(u64(a) >> shift) & u64(255)] += 1
    lanes[((u64(b) >> shift) & u64(255)) + u64(256)] += 1
    lanes[((u64(c) >> shift) & u64(255)) + u64(512)] += 1
    lanes[((u64(d) >> shift) & u64(255)) + u64(768)] += 1


@njit(cache=True)
def _count_few(numbers: Any, mask: Words, shift: Any, count: int, lanes: NDArray[np.int32]) -> None:
    """List the places first: where few are taken, their number differs most from word to word."""
    places = np.empty(count + 8, np.uint32)
    places_of(mask, places)
    for i in range(0, count - 3, 4):
        a, b = u64(places[u64(i)]), u64(places[u64(i + 1)])
        c, d = u64(places[u64(i + 2)]), u64(places[u64(i + 3)])
        _count4(numbers[a], numbers[b], numbers[c], numbers[d], shift, lanes)
    for i in range(count & ~3, count):
        lanes[(u64(numbers[u64(places[i])]) >> shift) & u64(255)] += 1


@njit(cache=True)
def _count_many(numbers: Any, mask: Words, shift: Any, lanes: NDArray[np.int32]) -> None:
    for i in range(mask.size):
        word, first = mask[i], u64(64 * i)
        if word == ALL_ONES:
            for j in range(0, 64, 4):
                k = first + u64(j)
                _count4(numbers[k], numbers[k + u64(1)], numbers[k + u64(2)], numbers[k + u64(3)], shift, lanes)
            continue
        num_ones = ones_in(word)
        for _ in range(num_ones >> 2):
            a = first + u64(trailing_zeros(word))
            word &= word - u64(1)
            b = first + u64(trailing_zeros(word))
            word &= word - u64(1)
            c = first + u64(trailing_zeros(word))
            word &= word - u64(1)
            d = first + u64(trailing_zeros(word))
            word &= word - u64(1)
            _count4(numbers[a], numbers[b], numbers[c], numbers[d], shift, lanes)
        for _ in range(num_ones & 3):
            a = first + u64(trailing_zeros(word))
            word &= word - u64(1)
            lanes[(u64(numbers[a]) >> shift) & u64(255)] += 1


@njit(cache=True)
def split_floats(numbers: Floats, num_bits: int, symbols: Bytes, out: Bytes, at: int) -> None:
    """The symbols of floats, and their rests into `out` from byte `at` on."""
    shift = u64(num_bits - 9)
    fraction = (u64(1) << shift) - u64(1)
    step = (num_bits - 8) >> 3
    for i in range(numbers.size):
        word = u64(numbers[i])
        symbols[i] = (word >> shift) & u64(255)
        store64(out, at, (word >> u64(num_bits - 1) << shift) | (word & fraction))
        at += step


@njit(cache=True)
def join_floats(symbols: Bytes, buffer: Bytes, at: int, num_bits: int, numbers: Floats) -> None:
    shift = u64(num_bits - 9)
    fraction = (u64(1) << shift) - u64(1)
    step = (num_bits - 8) >> 3
    for i in range(symbols.size):
        rest = load64(buffer, at)
        sign = (rest >> shift) & u64(1)
        numbers[i] = (sign << u64(num_bits - 1)) | (u64(symbols[i]) << shift) | (rest & fraction)
        at += step


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
def count_symbols(symbols: Bytes, counts: Counts) -> None:
    """Histogram of symbols."""
    lanes = np.zeros(512, np.int32)
    for i in range(symbols.size >> 1):
        lanes[u64(symbols[u64(2 * i)])] += 1
        lanes[u64(symbols[u64(2 * i + 1)]) + u64(256)] += 1
    if symbols.size & 1:
        lanes[symbols[symbols.size - 1]] += 1
    for symbol in range(256):
        counts[symbol] = lanes[symbol] + lanes[256 + symbol]


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
def plan_floats(numbers: Floats, mask: Words, num_bits: int, count: int) -> tuple[int, Counts, Bytes]:
    """Bytes of the floats under a mask, their symbols coded, the symbols' histogram and their codes' lengths."""
    counts = np.empty(256, np.int64)
    count_bytes(numbers, mask, u64(num_bits - 9), 0, count, counts)
    lengths, num_bytes = code_histogram(counts)
    return num_bytes + count * ((num_bits - 8) >> 3), counts, lengths


@njit(cache=True)
def plan_levels(levels: Levels, mask: Words, num_bits: int, count: int) -> tuple[int, Counts, Bytes, Bytes, bool]:
    """Bytes of the integers under a mask, coded, their symbols' histogram and code lengths, the symbols, and whether
    all integers fit."""
    symbols = np.empty((count + 8 // num_bits - 1) // (8 // num_bits), np.uint8)
    fits = pack_levels(levels, mask, num_bits, symbols)
    counts = np.empty(256, np.int64)
    count_symbols(symbols, counts)
    lengths, num_bytes = code_histogram(counts)
    return num_bytes, counts, lengths, symbols, fits


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
    counts = np.empty(256, np.int64)
    count_bytes(levels.view(np.uint16), mask, u64(0), 1 << (num_bits - 1), count, counts)
    _, num_bytes = code_histogram(counts)
    return num_bytes
