"""Canonical Huffman coding of bytes, with codes of at most 12 bits.

The lengths of the codes follow from a histogram alone, and so does the size of the coded bytes: nothing needs to be
coded to know it. Codes are given out in the order of length, then symbol, counting up from zero, and written highest
bit first. A lone symbol has no code, and its coding no bits.

The table of lengths goes before: the lowest and the highest symbol that occur, a byte each, then for each symbol from
one to the other its code's length (0: the symbol does not occur) as a change from the length before it, 8 at first:
bits 0, the same; 1 0 0, one less; 1 0 1, one more; 1 1 and four bits, lowest first, the length itself. For a lone
symbol the two bytes are all.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.kernels.bits import Bytes, i64, peek, put, store64, u64

MAX_LENGTH = 12
BEFORE_FIRST = 8
MANY = 64
AT_ONCE = 6  # symbols that one look into a table may show
WORTH_SEVERAL = 4096  # symbols, for which such a table is worth its making
NEVER = 1 << 62  # heavier than anything that is still to be joined

Counts = NDArray[np.int64]


@njit(cache=True)
def _sort(keys: Counts) -> Counts:
    """Different numbers in ascending order."""
    if keys.size > MANY:
        return np.sort(keys)
    ordered = np.empty_like(keys)
    for i in range(keys.size):  # few numbers are quickest put where they belong: behind those that are less
        place = 0
        for j in range(keys.size):
            place += keys[j] < keys[i]
        ordered[place] = keys[i]
    return ordered


@njit(cache=True)
def _depths(keys: Counts, lengths: Bytes) -> Any:
    """Code lengths of the symbols in `keys`, ascending numbers count * 256 + symbol; returns the longest."""
    n = keys.size
    leaves = np.empty(n + 2, np.int64)
    for i in range(n):
        leaves[i] = keys[i] >> 8
    leaves[n:] = NEVER
    nodes = np.full(n + 1, NEVER, np.int64)
    parents = np.empty(2 * n, np.int64)  # of leaves, then of nodes
    leaf, node = 0, 0
    for new in range(n - 1):  # both the leaves and the nodes made so far are in ascending order
        weight = 0
        for _ in range(2):
            is_leaf = leaves[leaf] <= nodes[node]  # a number and no branch, as it cannot be foreseen
            weight += min(leaves[leaf], nodes[node])
            parents[leaf if is_leaf else n + node] = new
            leaf += is_leaf
            node += not is_leaf
        nodes[new] = weight
    depths = nodes
    depths[n - 2] = 0
    for i in range(n - 3, -1, -1):
        depths[i] = depths[parents[n + i]] + 1
    for i in range(n):
        lengths[keys[i] & 255] = min(depths[parents[i]] + 1, 255)
    return i64(depths[parents[0]]) + 1  # nothing is deeper than the lightest leaf


@njit(cache=True)
def code_lengths(counts: Counts, lengths: Bytes) -> None:
    """The code length of each of 256 symbols; 0 for those that do not occur, and for a lone one."""
    lengths[:] = 0
    keys = np.empty(257, np.int64)
    n = 0
    for symbol in range(256):
        keys[n] = counts[symbol] * 256 + symbol
        n += counts[symbol] > 0
    if n < 2:
        return
    keys = _sort(keys[:n])
    while _depths(keys, lengths) > MAX_LENGTH:  # flatter counts give shorter codes
        for i in range(n):
            key = ((keys[i] >> 9) + 1) * 256 + (keys[i] & 255)
            place = i
            while place > 0 and keys[place - 1] > key:  # most are in order still
                keys[place] = keys[place - 1]
                place -= 1
            keys[place] = key


@njit(cache=True)
def _ends(counts: Counts) -> tuple[int, int]:
    low, high = 0, 255
    while low < 255 and counts[low] == 0:
        low += 1
    while high > low and counts[high] == 0:
        high -= 1
    return low, high


@njit(cache=True)
def coded_bytes(counts: Counts, lengths: Bytes) -> int:
    """Bytes of the table and of the symbols coded with it."""
    low, high = _ends(counts)
    table_bits, symbol_bits = 0, 0
    if low < high:
        before = BEFORE_FIRST
        for symbol in range(low, high + 1):
            length = i64(lengths[symbol])
            change = abs(length - before)
            table_bits += 1 + 2 * (change > 0) + 3 * (change > 1)
            symbol_bits += length * counts[symbol]
            before = length
    return 2 + ((table_bits + 7) >> 3) + ((symbol_bits + 7) >> 3)


@njit(cache=True)
def _codes(lengths: Bytes) -> NDArray[np.uint16]:
    """The code of each symbol, its highest bit turned to the lowest place, where it is written first."""
    codes = np.zeros(256, np.uint16)
    code = 0
    for length in range(1, MAX_LENGTH + 1):
        code <<= 1
        for symbol in range(256):
            if lengths[symbol] == length:
                turned = 0
                for i in range(length):
                    turned |= ((code >> i) & 1) << (length - 1 - i)
                codes[symbol] = turned
                code += 1
    return codes


@njit(cache=True)
def write_table(counts: Counts, lengths: Bytes, out: Bytes, at: int) -> int:
    """Write the table from byte `at` on; returns the byte behind."""
    low, high = _ends(counts)
    out[at], out[at + 1] = low, high
    at += 2
    if low == high:
        return at
    before, held, num_held = BEFORE_FIRST, u64(0), 0
    for symbol in range(low, high + 1):
        length = i64(lengths[symbol])
        if length == before:
            word, num_bits = 0, 1
        elif abs(length - before) == 1:
            word, num_bits = (5 if length > before else 1), 3
        else:
            word, num_bits = 3 + (length << 2), 6
        at, held, num_held = put(out, at, held, num_held, u64(word), num_bits)
        before = length
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
    length, room = BEFORE_FIRST, 0
    for symbol in range(low, high + 1):
        if bit >= limit:
            return -1, -1
        word = i64(peek(buffer, bit) & u64(63))
        if word & 1 == 0:
            bit += 1
        elif word & 2 == 0:
            length += 1 if word & 4 else -1
            bit += 3
        else:
            length = word >> 2
            bit += 6
        if not 0 <= length <= MAX_LENGTH or (length == 0 and symbol in (low, high)):
            return -1, -1
        lengths[symbol] = length
        room += (1 << MAX_LENGTH) >> length if length > 0 else 0
    if bit > limit or room != 1 << MAX_LENGTH:  # a set of codes that is not full could not be told apart
        return -1, -1
    return (bit + 7) >> 3, -1


@njit(cache=True)
def write_symbols(symbols: Bytes, lengths: Bytes, out: Bytes, at: int) -> int:
    """Write the codes from byte `at` on; returns the byte behind."""
    codes = _codes(lengths)
    both = np.empty(256, np.uint64)
    for symbol in range(256):
        both[symbol] = (u64(codes[symbol]) << u64(4)) | u64(lengths[symbol])
    held, num_held = u64(0), 0
    for symbol in symbols:
        code = both[symbol]
        at, held, num_held = put(out, at, held, num_held, code >> u64(4), i64(code & u64(15)))
    return at + (num_held > 0)


@njit(cache=True)
def _next_symbols(lengths: Bytes) -> NDArray[np.uint16]:
    """For all that the next bits may be, as many as the longest code has, a symbol and above it its code's length."""
    codes = _codes(lengths)
    longest = 0
    for symbol in range(256):
        longest = max(longest, i64(lengths[symbol]))
    table = np.empty(1 << longest, np.uint16)
    for symbol in range(256):
        length = i64(lengths[symbol])
        if length > 0:
            for entry in range(i64(codes[symbol]), 1 << longest, 1 << length):
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
    for j in range(i, symbols.size):
        if bit > limit:
            return -1
        entry = table[peek(buffer, bit) & mask]
        symbols[j] = entry >> 4
        bit += i64(entry & 15)
    return (bit + 7) >> 3 if bit <= limit else -1


@njit(cache=True)
def code_histogram(counts: Counts) -> Any:
    """Code lengths of a histogram, and the bytes of table and codes."""
    lengths = np.empty(256, np.uint8)
    code_lengths(counts, lengths)
    return lengths, coded_bytes(counts, lengths)
