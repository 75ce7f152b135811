"""Canonical Huffman coding of bytes, with codes of at most 12 bits.

The lengths of the codes follow from a histogram alone, and so does the size of the coded bytes: nothing needs to be
coded to know it. Codes are given out in the order of length, then symbol, counting up from zero, and written highest
bit first. A lone symbol has no code, and its coding no bits.

The table of lengths goes before: the lowest and the highest symbol that occur, a byte each, then the lengths from one
to the other (0: the symbol has no code) in runs of equal ones. A run is its length as a change from that of the run
before it, 8 at first, and how many symbols have it, by Elias-gamma: bits 0 0, one less; 0 1, one more; 1 and four bits,
lowest first, the length itself. For a lone symbol the two bytes are all.

A table of many symbols weighs when few are coded with it. So the codes of numbers, of which neighbours occur about as
often, are also tried with each count replaced by an average over its neighbours: longer codes in fewer runs.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.bits import Bytes, Words, i64, leading_zeros, peek, put, store64, u64
from gossamer.wire.kernels.code_lengths import MAX_LENGTH, Counts, averages, code_lengths, ends
from gossamer.wire.kernels.elias_rice import get_gamma, put_gamma

BEFORE_FIRST = 8
BAD_TABLE = -3  # why symbols cannot be read
FEW = 1 << 14  # symbols coded, for which an average may be worth its making
AT_ONCE = 6  # symbols that one look into a table may show
WORTH_SEVERAL = 4096  # symbols, for which such a table is worth its making
TURNED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)])  # the bits of a byte in reverse


@njit(cache=True)
def _run(lengths: Bytes, symbol: int, high: int) -> int:
    """How many symbols from this one on, up to `high`, have codes of its length."""
    behind = symbol + 1
    while behind <= high and lengths[behind] == lengths[symbol]:
        behind += 1
    return behind - symbol


@njit(cache=True)
def coded_bytes(counts: Counts, lengths: Bytes) -> int:
    """Bytes of the table and of the symbols coded with it."""
    low, high = ends(counts)
    table_bits, symbol_bits = 0, 0
    if low < high:
        for symbol in range(low, high + 1):
            symbol_bits += i64(lengths[symbol]) * counts[symbol]
        before, symbol = BEFORE_FIRST, low
        while symbol <= high:
            run, length = _run(lengths, symbol, high), i64(lengths[symbol])
            table_bits += (2 if abs(length - before) == 1 else 5) + 127 - 2 * leading_zeros(u64(run))
            before = length
            symbol += run
    return 2 + ((table_bits + 7) >> 3) + ((symbol_bits + 7) >> 3)


@njit(cache=True)
def code_histogram(counts: Counts, of_numbers: bool) -> Any:
    """Code lengths of a histogram, and the bytes of table and codes; `of_numbers`: neighbours are about as frequent."""
    lengths = np.empty(256, np.uint8)
    code_lengths(counts, lengths)
    num_bytes = coded_bytes(counts, lengths)
    if of_numbers and lengths.any() and counts.sum() < FEW:
        low, high = ends(counts)
        smoother = np.empty(256, np.uint8)
        code_lengths(averages(counts, low, high), smoother)
        fewer_bytes = coded_bytes(counts, smoother)
        if fewer_bytes < num_bytes:
            return smoother, fewer_bytes
    return lengths, num_bytes


@njit(cache=True)
def write_table(counts: Counts, lengths: Bytes, out: Bytes, at: int) -> int:
    """Write the table from byte `at` on; returns the byte behind."""
    low, high = ends(counts)
    out[at], out[at + 1] = low, high
    at += 2
    if low == high:
        return at
    before, held, num_held, symbol = BEFORE_FIRST, u64(0), 0, low
    while symbol <= high:
        run, length = _run(lengths, symbol, high), i64(lengths[symbol])
        if abs(length - before) == 1:
            word, num_bits = (2 if length > before else 0), 2
        else:
            word, num_bits = 1 + (length << 1), 5
        at, held, num_held = put(out, at, held, num_held, u64(word), num_bits)
        at, held, num_held = put_gamma(out, at, held, num_held, run - 1)
        before = length
        symbol += run
    return at + (num_held > 0)


@njit(cache=True)
def read_table(buffer: Bytes, at: int, end: int, lengths: Bytes) -> tuple[int, int]:
    """Fill in the lengths; returns the byte behind, or -1 if the table is damaged, and a lone symbol or -1."""
    lengths[:] = 0
    if at + 2 > end or buffer[at] > buffer[at + 1]:
        return -1, -1
    low, high = i64(buffer[at]), i64(buffer[at + 1])
    at += 2
    if low == high:
        return at, low
    bit, limit = 8 * at, 8 * end
    length, room, symbol = BEFORE_FIRST, 0, low
    while symbol <= high:
        if bit >= limit:
            return -1, -1
        word = i64(peek(buffer, bit) & u64(31))
        if word & 1:
            length = word >> 1
            bit += 5
        else:
            length += 1 if word & 2 else -1
            bit += 2
        more, bit = get_gamma(buffer, bit)
        behind = symbol + more + 1
        if bit > limit or behind > high + 1 or not 0 <= length <= MAX_LENGTH:
            return -1, -1
        if length > 0:
            lengths[symbol:behind] = length
            room += (behind - symbol) << (MAX_LENGTH - length)
        elif symbol == low or behind > high:
            return -1, -1
        symbol = behind
    if room != 1 << MAX_LENGTH:  # a set of codes that is not full could not be told apart
        return -1, -1
    return (bit + 7) >> 3, -1


@njit(cache=True)
def _codes(lengths: Bytes) -> Words:
    """The code of each symbol, its highest bit turned to the lowest place, where it is written first; below it, in 4
    bits, its length."""
    low, high = ends(lengths)
    following = np.zeros(MAX_LENGTH + 2, np.int64)  # the next code of each length; at first how many are shorter by one
    for symbol in range(low, high + 1):
        following[i64(lengths[symbol]) + 1] += lengths[symbol] > 0
    for length in range(1, MAX_LENGTH + 1):
        following[length] = (following[length] + following[length - 1]) << 1
    codes = np.zeros(256, np.uint64)
    for symbol in range(low, high + 1):
        length = i64(lengths[symbol])
        if length > 0:
            code = following[length]
            following[length] += 1
            codes[symbol] = (TURNED[code & 255] << 8 | TURNED[code >> 8]) >> (16 - length) << 4 | length
    return codes


@njit(cache=True)
def write_symbols(symbols: Bytes, lengths: Bytes, out: Bytes, at: int) -> int:
    """Write the codes from byte `at` on; returns the byte behind."""
    codes = _codes(lengths)
    held, num_held = u64(0), 0
    for symbol in symbols:
        code = codes[symbol]
        at, held, num_held = put(out, at, held, num_held, code >> u64(4), i64(code & u64(15)))
    return at + (num_held > 0)


@njit(cache=True)
def _next_symbols(lengths: Bytes) -> NDArray[np.uint16]:
    """For all that the next bits may be, as many as the longest code has, a symbol and above it its code's length."""
    codes = _codes(lengths)
    low, high = ends(lengths)
    longest = i64(lengths[low : high + 1].max())
    table = np.empty(1 << longest, np.uint16)
    for symbol in range(low, high + 1):
        length = i64(lengths[symbol])
        if length > 0:
            for entry in range(i64(codes[symbol] >> u64(4)), 1 << longest, 1 << length):
                table[entry] = symbol << 4 | length
    return table


@njit(cache=True)
def _next_several(table: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """For all that the next MAX_LENGTH bits may be, the whole symbols in them, at most AT_ONCE, a byte each; then a
    byte that tells how many, and one that tells their bits."""
    several = np.empty(1 << MAX_LENGTH, np.uint64)
    for window in range(1 << MAX_LENGTH):
        found, num_found, used = u64(0), 0, 0
        while num_found < AT_ONCE:
            entry = i64(table[(window >> used) & (table.size - 1)])
            if used + (entry & 15) > MAX_LENGTH:
                break
            found |= u64(entry >> 4) << u64(8 * num_found)
            used += entry & 15
            num_found += 1
        several[window] = found | (u64(num_found) << u64(48)) | (u64(used) << u64(56))
    return several


@njit(cache=True)
def read_symbols(buffer: Bytes, at: int, end: int, lengths: Bytes, symbols: Bytes) -> int:
    """Fill in the symbols, given a table that `read_table` found right; the byte behind, or -1 if they do not end."""
    table = _next_symbols(lengths)
    bit, limit, i = 8 * at, 8 * end, 0
    if symbols.size >= WORTH_SEVERAL:
        several, window = _next_several(table), u64((1 << MAX_LENGTH) - 1)
        while i < symbols.size - 4 * AT_ONCE - 8:  # every look stores 8 bytes
            if bit > limit:
                return -1
            word, used = peek(buffer, bit), u64(0)
            for _ in range(4):  # of 12 bits each: one look into the buffer shows 57
                found = several[(word >> used) & window]
                store64(symbols, i, found)
                i += i64((found >> u64(48)) & u64(255))
                used += found >> u64(56)
            bit += i64(used)
    mask = u64(table.size - 1)
    while i < symbols.size:
        if bit > limit:
            return -1
        word, used = peek(buffer, bit), u64(0)
        for j in range(i, min(i + 4, symbols.size)):
            entry = u64(table[(word >> used) & mask])
            symbols[j] = entry >> u64(4)
            used += entry & u64(15)
        bit += i64(used)
        i += 4
    return (bit + 7) >> 3 if bit <= limit else -1


@njit(cache=True)
def write_coded(symbols: Bytes, counts: Counts, lengths: Bytes, out: Bytes, at: int) -> int:
    """Table and codes of symbols from byte `at` on; returns the byte behind."""
    return write_symbols(symbols, lengths, out, write_table(counts, lengths, out, at))


@njit(cache=True)
def read_coded(buffer: Bytes, at: int, end: int, count: int) -> tuple[Bytes, int]:
    """`count` symbols from their table on, and the byte behind them, -1 if they do not end, or -3 if the table is
    damaged."""
    lengths = np.empty(256, np.uint8)
    at, lone = read_table(buffer, at, end, lengths)
    if at < 0:
        return lengths, BAD_TABLE
    symbols = np.empty(count, np.uint8)
    if lone < 0:
        return symbols, read_symbols(buffer, at, end, lengths, symbols)
    symbols[:] = lone
    return symbols, at
