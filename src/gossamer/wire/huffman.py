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
from numpy.typing import NDArray

from gossamer.core.kernels import njit
from gossamer.wire.bits import GAMMA, Bytes, get_gap, i64, leading_zeros, peek, put, put_gap, u64

MAX_LENGTH = 12
DEEPEST = 64  # more than any tree is deep: its weights grow at least as Fibonacci's numbers do, and end below 2^40
NEVER = 1 << 62  # heavier than anything that is still to be joined
ENOUGH = 32  # times that the symbols occur over which an average is taken
FEW = 1 << 14  # symbols coded, for which an average may be worth its making
BEFORE_FIRST = 8  # the length of which the first run of a table tells the change
ENDS, BAD_TABLE = -1, -3  # why symbols cannot be read

Counts = NDArray[np.int64]  # of 256 symbols


@njit(cache=True)
def ends(numbers: Any) -> tuple[int, int]:
    """The first and the last of 256 that are not zero; one, if all are: 255 and 255."""
    low, high = 0, 255
    while low < 255 and numbers[low] == 0:
        low += 1
    while high > low and numbers[high] == 0:
        high -= 1
    return low, high


@njit(cache=True)
def _sorted_symbols(counts: Counts) -> Counts:
    """The symbols that occur, rare ones first, of equals the lowest first."""
    symbols = np.flatnonzero(counts)
    return np.sort(counts[symbols] * 256 + symbols) & 255


@njit(cache=True)
def _join(counts: Counts, symbols: Counts, num_codes: Counts) -> None:
    """Huffman's procedure on two symbols or more: how many codes have each length.

    Of equals leaves are joined before nodes, and older nodes before newer ones.
    """
    n = symbols.size
    leaves = np.empty(n + 2, np.int64)
    for i in range(n):
        leaves[i] = counts[symbols[i]]
    leaves[n:] = NEVER
    nodes = np.full(n + 1, NEVER, np.int64)
    parents = np.empty(n, np.int64)  # of nodes
    leaf, node = 0, 0
    for new in range(n - 1):  # both the leaves and the nodes made so far are in ascending order
        weight = 0
        for _ in range(2):
            is_leaf = leaves[leaf] <= nodes[node]  # a number and no branch, as it cannot be foreseen
            weight += min(leaves[leaf], nodes[node])
            parents[node] = new  # the last time that this is written the node is taken
            leaf += is_leaf
            node += not is_leaf
        nodes[new] = weight
    depths = nodes
    depths[n - 2] = 0
    num_codes[0] = -1  # what is not a node is a code: under each node are two
    num_codes[1] = 2
    for i in range(n - 3, -1, -1):
        depth = depths[parents[i]] + 1
        depths[i] = depth
        num_codes[depth] -= 1
        num_codes[depth + 1] += 2
    num_codes[0] = 0


@njit(cache=True)
def _shorten(num_codes: Counts) -> None:
    """Make a full set of codes one of at most MAX_LENGTH bits.

    Longer codes are cut off. As long as that are too many, one of MAX_LENGTH goes, and the longest that are shorter
    give one code for two that are a bit longer.
    """
    room = 0
    for length in range(MAX_LENGTH + 1, DEEPEST):
        num_codes[MAX_LENGTH] += num_codes[length]
    for length in range(1, MAX_LENGTH + 1):
        room += num_codes[length] << (MAX_LENGTH - length)
    for _ in range(room - (1 << MAX_LENGTH)):
        length = MAX_LENGTH - 1
        while num_codes[length] == 0:
            length -= 1
        num_codes[MAX_LENGTH] -= 1
        num_codes[length] -= 1
        num_codes[length + 1] += 2


@njit(cache=True)
def code_lengths(counts: Counts, lengths: Bytes) -> None:
    """The code length of each of 256 symbols; 0 for those that do not occur, and for a lone one."""
    lengths[:] = 0
    symbols = _sorted_symbols(counts)
    if symbols.size < 2:
        return
    num_codes = np.zeros(DEEPEST, np.int64)
    _join(counts, symbols, num_codes)
    _shorten(num_codes)
    i = 0
    for length in range(MAX_LENGTH, 0, -1):  # the rarest get the longest
        for _ in range(num_codes[length]):
            lengths[symbols[i]] = length
            i += 1


@njit(cache=True)
def averages(counts: Counts, low: int, high: int) -> Counts:
    """About sixteen times the mean count of each symbol from low to high and its neighbours, 1 at least.

    It is the mean of two: over the fewest symbols up to this one that occur ENOUGH times (or all), and over the fewest
    from this one on. Where n symbols occur c times, c * floor(2^20 / n) >> 16 is taken.
    """
    means = np.zeros(256, np.int64)
    start, total = low, 0
    for symbol in range(low, high + 1):
        total += counts[symbol]
        while total - counts[start] >= ENOUGH:
            total -= counts[start]
            start += 1
        means[symbol] = total * ((1 << 20) // (symbol - start + 1)) >> 16
    stop, total = high, 0
    for symbol in range(high, low - 1, -1):
        total += counts[symbol]
        while total - counts[stop] >= ENOUGH:
            total -= counts[stop]
            stop -= 1
        means[symbol] = max(1, (means[symbol] + (total * ((1 << 20) // (stop - symbol + 1)) >> 16)) >> 1)
    return means


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
def plan_symbols(symbols: Bytes, of_numbers: bool) -> tuple[int, Counts, Bytes]:
    """Bytes of table and codes of these symbols, their histogram, and the lengths of their codes."""
    each = np.zeros((4, 256), np.int64)  # four histograms, so that equal neighbours do not wait for each other
    for i in range(symbols.size):
        each[i & 3, symbols[i]] += 1
    counts = each.sum(0)
    lengths, num_bytes = code_histogram(counts, of_numbers)
    return num_bytes, counts, lengths


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
        at, held, num_held = put_gap(out, at, held, num_held, run - 1, GAMMA)
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
        more, bit = get_gap(buffer, bit, limit, GAMMA)
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
def _codes(lengths: Bytes) -> NDArray[np.uint32]:
    """Per symbol its code, the highest bit turned to the lowest place, where it is written first; below it, in four
    bits, its length."""
    codes = np.zeros(256, np.uint32)
    following = np.zeros(MAX_LENGTH + 2, np.int64)  # the next code of each length; at first how many are shorter by one
    for symbol in range(256):
        following[i64(lengths[symbol]) + 1] += lengths[symbol] > 0
    for length in range(1, MAX_LENGTH + 1):
        following[length] = (following[length] + following[length - 1]) << 1
    for symbol in range(256):
        length, turned = i64(lengths[symbol]), 0
        for bit in range(length):
            turned |= ((following[length] >> bit) & 1) << (length - 1 - bit)
        following[length] += 1
        codes[symbol] = turned << 4 | length
    return codes


@njit(cache=True)
def write_symbols(symbols: Bytes, lengths: Bytes, out: Bytes, at: int) -> int:
    """Write the codes from byte `at` on; returns the byte behind."""
    codes = _codes(lengths)
    held, num_held, by_fours = u64(0), 0, symbols.size & ~3
    for first in range(0, by_fours, 4):  # four codes have 48 bits at most
        word, length = u64(0), u64(0)
        for i in range(4):
            code = u64(codes[symbols[first + i]])
            word |= code >> u64(4) << length
            length += code & u64(15)
        at, held, num_held = put(out, at, held, num_held, word, i64(length))
    for i in range(by_fours, symbols.size):
        code = u64(codes[symbols[i]])
        at, held, num_held = put(out, at, held, num_held, code >> u64(4), i64(code & u64(15)))
    return at + (num_held > 0)


@njit(cache=True)
def _next_symbols(lengths: Bytes) -> NDArray[np.uint32]:
    """For all that the next bits may be, as many as the longest code has, the one or two symbols that are whole in
    them: a byte each, then a byte that tells how many they are, and one that tells their bits."""
    codes = _codes(lengths)
    longest = i64(lengths.max())
    firsts = np.empty(1 << longest, np.uint32)
    for symbol in range(256):
        length = i64(lengths[symbol])
        if length > 0:
            for window in range(i64(codes[symbol]) >> 4, 1 << longest, 1 << length):
                firsts[window] = length << 24 | 1 << 16 | symbol
    table = firsts.copy()
    for window in range(1 << longest):
        first = i64(firsts[window])
        second = i64(firsts[window >> (first >> 24)])
        used = (first >> 24) + (second >> 24)
        if used <= longest:
            table[window] = used << 24 | 2 << 16 | (second & 255) << 8 | (first & 255)
    return table


@njit(cache=True)
def read_symbols(buffer: Bytes, at: int, end: int, lengths: Bytes, symbols: Bytes) -> int:
    """Fill in the symbols, given a table that `read_table` found right; the byte behind, or ENDS if they do not end."""
    table = _next_symbols(lengths)
    bit, limit, mask, i = 8 * at, 8 * end, u64(table.size - 1), 0
    while i < symbols.size - 8 and bit <= limit:
        word, used = peek(buffer, bit), u64(0)
        for _ in range(4):  # of at most 12 bits each
            entry = u64(table[(word >> used) & mask])
            symbols[u64(i)] = entry & u64(255)
            symbols[u64(i + 1)] = (entry >> u64(8)) & u64(255)
            i += i64((entry >> u64(16)) & u64(255))
            used += entry >> u64(24)
        bit += i64(used)
    while i < symbols.size and bit <= limit:
        entry = i64(table[peek(buffer, bit) & mask])
        symbols[i] = entry & 255
        i += 1
        bit += i64(lengths[entry & 255])  # as plain Python, too, in which a byte would stay one
    return (bit + 7) >> 3 if bit <= limit else ENDS


@njit(cache=True)
def write_coded(symbols: Bytes, counts: Counts, lengths: Bytes, out: Bytes, at: int) -> int:
    """Table and codes of symbols from byte `at` on; returns the byte behind."""
    return write_symbols(symbols, lengths, out, write_table(counts, lengths, out, at))


@njit(cache=True)
def read_coded(buffer: Bytes, at: int, end: int, count: int) -> tuple[Bytes, int]:
    """`count` symbols from their table on, and the byte behind them, or in its place why they cannot be read."""
    lengths = np.empty(256, np.uint8)
    at, lone = read_table(buffer, at, end, lengths)
    if at < 0:
        return lengths, BAD_TABLE
    symbols = np.empty(count, np.uint8)
    if lone < 0:
        return symbols, read_symbols(buffer, at, end, lengths, symbols)
    symbols[:] = lone
    return symbols, at
