"""Floats as bytes worth entropy coding and bytes that are not.

A float of n bits gives one symbol, the 8 bits below its sign (for float32 and bfloat16 the exponent, for float16 the
exponent and the first 3 bits of the fraction), and a rest of n - 8 bits, the sign above what is left of the fraction,
which is as good as random.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.wire.kernels.bits import Bytes, Positions, Words, load64, store64, u64
from gossamer.wire.kernels.code_lengths import Counts
from gossamer.wire.kernels.huffman import code_histogram, read_coded, write_coded
from gossamer.wire.kernels.symbols import count_symbols, symbols_of

RAW, CODED = 0, 1  # tags
ENDS, UNKNOWN = -1, -2  # why values cannot be read: they are not all there; their tag is another

Floats = NDArray[np.uint32]  # the bits of floats, of 16 or 32 bits each


@njit(cache=True)
def plan_floats(numbers: Floats, mask: Words, num_bits: int, count: int) -> tuple[int, Bytes, Counts, Bytes]:
    """Bytes of the floats under a mask, their symbols coded, the symbols, their histogram and their codes' lengths."""
    symbols = symbols_of(numbers, mask, num_bits - 9, count)
    counts = np.empty(256, np.int64)
    count_symbols(symbols, counts)
    lengths, num_bytes = code_histogram(counts, False)
    return num_bytes + count * ((num_bits - 8) >> 3), symbols, counts, lengths


@njit(cache=True)
def write_rests(numbers: Floats, positions: Positions | None, num_bits: int, out: Bytes, at: int) -> int:
    """The rests of the floats at some positions (None: all) from byte `at` on; returns the byte behind."""
    shift = u64(num_bits - 9)
    fraction = (u64(1) << shift) - u64(1)
    step = (num_bits - 8) >> 3
    for i in range(numbers.size if positions is None else positions.size):
        word = u64(numbers[u64(i) if positions is None else u64(positions[i])])
        store64(out, at, (word >> u64(num_bits - 1) << shift) | (word & fraction))
        at += step
    return at


@njit(cache=True)
def write_floats(
    numbers: Floats,
    positions: Positions | None,
    num_bits: int,
    symbols: Bytes,
    counts: Counts,
    lengths: Bytes,
    out: Bytes,
    at: int,
) -> int:
    """Coded floats, as planned, with their tag from byte `at` on; returns the byte behind."""
    out[at] = CODED
    at = write_rests(numbers, positions, num_bits, out, at + 1)
    return write_coded(symbols, counts, lengths, out, at)


@njit(cache=True)
def join_floats(
    symbols: Bytes, buffer: Bytes, at: int, num_bits: int, positions: Positions | None, numbers: Floats
) -> None:
    """Symbols, and the rests from byte `at` on, to floats at their positions (None: one after the other)."""
    shift = u64(num_bits - 9)
    fraction = (u64(1) << shift) - u64(1)
    step = (num_bits - 8) >> 3
    for i in range(symbols.size):
        rest = load64(buffer, at)
        sign = (rest >> shift) & u64(1)
        number = (sign << u64(num_bits - 1)) | (u64(symbols[i]) << shift) | (rest & fraction)
        numbers[u64(i) if positions is None else u64(positions[i])] = number
        at += step


@njit(cache=True)
def read_floats(
    buffer: Bytes, at: int, end: int, num_bits: int, positions: Positions | None, row: NDArray[np.uint32]
) -> Any:
    """Read floats from their tag on into the positions (None: all) of a row, (1, width).

    Returns the byte behind them, or in its place why they cannot be read; then nothing is written.
    """
    count = row.shape[1] if positions is None else positions.size
    if at >= end:
        return ENDS
    tag = buffer[at]
    if tag > CODED:
        return UNKNOWN
    at += 1
    behind = at + count * ((num_bits - 8 if tag == CODED else num_bits) >> 3)
    if behind > end:
        return ENDS
    if tag == CODED:
        symbols, behind = read_coded(buffer, behind, end, count)
        if behind >= 0:
            join_floats(symbols, buffer, at, num_bits, positions, row[0])
        return behind
    for i in range(count):
        number = load64(buffer, at + i * (num_bits >> 3)) & ((u64(1) << u64(num_bits)) - u64(1))
        row[0, u64(i) if positions is None else u64(positions[i])] = number
    return behind
