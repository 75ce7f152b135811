"""How long the code of each symbol is, from how often it occurs: Huffman's procedure, with codes of at most 12 bits."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.bits import Bytes

MAX_LENGTH = 12
DEEPEST = 64  # more than any tree is deep: its weights grow at least as Fibonacci's numbers do, and end below 2^40
MANY = 32  # symbols, for which sorting by digits is faster
ENOUGH = 32  # times that the symbols occur over which an average is taken
NEVER = 1 << 62  # heavier than anything that is still to be joined
ALONE = np.array([0] + [(1 << 20) // n for n in range(1, 257)])  # 2^20 shared by so many

Counts = NDArray[np.int64]


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
def _sorted_symbols(counts: Counts) -> Bytes:
    """The symbols that occur, rare ones first, of equals the lowest first."""
    symbols = np.empty(257, np.uint8)
    n, largest = 0, 0
    low, high = ends(counts)
    for symbol in range(low, high + 1):
        symbols[n] = symbol
        n += counts[symbol] > 0
        largest = max(largest, counts[symbol])
    symbols, others = symbols[:n], np.empty(n, np.uint8)
    if n <= MANY:  # each goes behind those that come before it
        for i in range(n):
            place = 0
            for j in range(n):
                place += counts[symbols[j]] < counts[symbols[i]] + (j < i)
            others[place] = symbols[i]
        return others
    shift = 0
    while largest >> shift > 0:  # by the lowest eight bits of the counts, then by the next: each keeps the order
        starts = np.zeros(257, np.int64)
        for i in range(n):
            starts[((counts[symbols[i]] >> shift) & 255) + 1] += 1
        for digit in range(255):
            starts[digit + 1] += starts[digit]
        for i in range(n):
            digit = (counts[symbols[i]] >> shift) & 255
            others[starts[digit]] = symbols[i]
            starts[digit] += 1
        symbols, others = others, symbols
        shift += 8
    return symbols


@njit(cache=True)
def _join(counts: Counts, symbols: Bytes, num_codes: Counts) -> None:
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
        means[symbol] = total * ALONE[symbol - start + 1] >> 16
    stop, total = high, 0
    for symbol in range(high, low - 1, -1):
        total += counts[symbol]
        while total - counts[stop] >= ENOUGH:
            total -= counts[stop]
            stop -= 1
        means[symbol] = max(1, (means[symbol] + (total * ALONE[stop - symbol + 1] >> 16)) >> 1)
    return means
