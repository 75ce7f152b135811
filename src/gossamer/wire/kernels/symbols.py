"""The symbols of a row, bytes that are worth entropy coding, taken from the numbers that are sent, and counted."""

from typing import Any

import numpy as np
from numba import njit

from gossamer.wire.kernels.bits import Bytes, Words, load64, ones_in, places_of, trailing_zeros, u64
from gossamer.wire.kernels.code_lengths import Counts
from gossamer.wire.kernels.simd import COMPRESSES, LANES, take_bytes, within

SPARSE = 16  # where fewer than one of so many numbers is sent, they are listed first
PIECE = 1024  # symbols that are counted together
WINDOW = 10  # symbols next to each other that are counted one at a time, if nearly all are of them


@njit(cache=True)
def symbols_of(numbers: Any, mask: Words, shift: int, count: int) -> Bytes:
    """(number >> shift) & 255 of the `count` numbers under a packed mask."""
    symbols = np.empty(count + LANES, np.uint8)
    if count == numbers.size:
        for i in range(count):
            symbols[i] = (u64(numbers[i]) >> u64(shift)) & u64(255)
    elif COMPRESSES and SPARSE * count >= numbers.size:
        _take_many(numbers, mask, shift, symbols)
    else:
        _take_few(numbers, mask, shift, count, symbols)
    return symbols[:count]


@njit(cache=True)
def _take_many(numbers: Any, mask: Words, shift: int, symbols: Bytes) -> None:
    at = 0
    whole = numbers.size >> 6
    for i in range(whole):
        take_bytes(numbers, 64 * i, u64(shift), mask[i], symbols, at)
        at += ones_in(mask[i])
    for i in range(64 * whole, numbers.size):
        if (mask[whole] >> u64(i & 63)) & u64(1) != 0:
            symbols[at] = (u64(numbers[i]) >> u64(shift)) & u64(255)
            at += 1


@njit(cache=True)
def _take_few(numbers: Any, mask: Words, shift: int, count: int, symbols: Bytes) -> None:
    places = np.empty(count + 8, np.uint32)
    places_of(mask, places)
    for i in range(count):
        symbols[i] = (u64(numbers[u64(places[i])]) >> u64(shift)) & u64(255)


@njit(cache=True)
def count_symbols(symbols: Bytes, counts: Counts) -> None:
    """Histogram of symbols.

    Exponents of floats are nearly all among a few that follow each other. Where the first symbols are, comparing the
    others with each of these is faster than counting them one by one.
    """
    counts[:] = 0
    _count_each(symbols[:PIECE], counts)
    if symbols.size <= PIECE:
        return
    low, most, total = 0, 0, 0
    for symbol in range(256):
        total += counts[symbol] - (counts[symbol - WINDOW] if symbol >= WINDOW else 0)
        if total > most:
            low, most = max(symbol - WINDOW + 1, 0), total
    if most * 32 < 31 * PIECE:
        _count_each(symbols[PIECE:], counts)
        return
    behind = symbols.size & ~(PIECE - 1)
    for start in range(PIECE, behind, PIECE):
        _count_window(symbols, start, low, counts)
    _count_each(symbols[behind:], counts)


@njit(cache=True)
def _count_each(symbols: Bytes, counts: Counts) -> None:
    lanes = np.zeros(1024, np.int32)  # four histograms, so that equal neighbours do not wait for each other
    for i in range(0, symbols.size - 7, 8):
        word = load64(symbols, i)
        for j in range(8):
            lanes[((word >> u64(8 * j)) & u64(255)) + u64(256 * (j & 3))] += 1
    for i in range(symbols.size & ~7, symbols.size):
        lanes[symbols[i]] += 1
    for symbol in range(256):
        counts[symbol] += lanes[symbol] + lanes[256 + symbol] + lanes[512 + symbol] + lanes[768 + symbol]


@njit(cache=True)
def _count_window(symbols: Bytes, start: int, low: int, counts: Counts) -> None:
    """Count a piece of which nearly all is from `low` up to WINDOW more."""
    for symbol in range(low, low + WINDOW):
        found = 0
        for i in range(start, start + PIECE, LANES):
            found += ones_in(within(symbols, i, u64(symbol), u64(1)))
        counts[symbol] += found
    for i in range(start, start + PIECE, LANES):
        others = ~within(symbols, i, u64(low), u64(WINDOW))
        while others != 0:
            counts[symbols[i + trailing_zeros(others)]] += 1
            others &= others - u64(1)
