"""Bits in and out of byte buffers: what every coder of the wire format is made of.

The first bit of a stream is the lowest bit of its first byte. A reader looks at 57 bits or more at any bit position
with one unaligned 8-byte load, so every buffer that is read has `PADDING` bytes behind its end; a writer keeps at most
7 bits back and stores 8 bytes at a time, so every buffer that is written has the same. Nothing here checks bounds:
the coders do.

A gap, a number from 0 on, has two codes. Elias-gamma writes gap + 1: as many zeros as that number has bits behind its
highest, a one, then those bits. Rice with parameter r writes gap >> r as so many zeros and a one, then the low r bits
of the gap. Functions for both take GAMMA in place of a parameter.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from gossamer.core.kernels import njit

PADDING = 16
GAMMA = -1  # in place of the parameter of Rice's code
LOWEST_BITS = np.uint64(0x0102040810204080)
i64: Any = np.int64  # both spelt out in kernels, since numba makes a float of a sum of the two
u64: Any = np.uint64

Bytes = NDArray[np.uint8]
Positions = NDArray[np.uint32]  # ascending
Words = NDArray[np.uint64]  # a row of zeros and ones, 64 per word, the first one lowest


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())


def _load64(typing_context: Any, buffer: Any, offset: Any) -> Any:
    """The 8 bytes of a uint8 array from `offset` on, little-endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, args), align=1)

    return types.uint64(buffer, types.intp), generate


def _store64(typing_context: Any, buffer: Any, offset: Any, word: Any) -> Any:
    """Write 8 bytes of a uint8 array from `offset` on, little-endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args), align=1)
        return context.get_dummy_value()

    return types.void(buffer, types.intp, types.uint64), generate


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    """How many zeros stand below the lowest one of a 64-bit word; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _leading_zeros(typing_context: Any, word: Any) -> Any:
    """How many zeros stand above the highest one of a 64-bit word; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _ones_in(typing_context: Any, word: Any) -> Any:
    """How many ones a 64-bit word has."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


load64: Any = intrinsic(_load64)
store64: Any = intrinsic(_store64)
trailing_zeros: Any = intrinsic(_trailing_zeros)
leading_zeros: Any = intrinsic(_leading_zeros)
ones_in: Any = intrinsic(_ones_in)


@njit(cache=True)
def peek(buffer: Bytes, bit: int) -> Any:
    """The bits of a stream from position `bit` on, 57 of them or more, the first one lowest."""
    return load64(buffer, bit >> 3) >> u64(bit & 7)


@njit(cache=True)
def put(out: Bytes, at: int, held: Any, num_held: int, word: Any, length: int) -> tuple[int, Any, int]:
    """Append a word of up to 56 bits to a stream.

    The writer's state is the byte it stands at, the bits of that byte so far, and how many they are; the new state is
    returned. The bits held are stored as well, so that a stream needs no end.
    """
    held |= word << u64(num_held)
    store64(out, at, held)
    num_held += length
    return at + (num_held >> 3), held >> u64(num_held & 56), num_held & 7


@njit(cache=True)
def put_zeros(out: Bytes, at: int, held: Any, num_held: int, length: int) -> tuple[int, Any, int]:
    """Append any number of zeros."""
    while length > 56:
        at, held, num_held = put(out, at, held, num_held, u64(0), 56)
        length -= 56
    return put(out, at, held, num_held, u64(0), length)


@njit(cache=True, inline="always")
def put_gap(out: Bytes, at: int, held: Any, num_held: int, gap: int, r: int) -> tuple[int, Any, int]:
    """Append the code of a gap, by Elias-gamma or by Rice; the writer's state is that of `put`."""
    if r == GAMMA:
        zeros = num_low = 63 - leading_zeros(u64(gap + 1))
        low = gap + 1 - (1 << zeros)
    else:
        zeros, num_low, low = gap >> r, r, gap & ((1 << r) - 1)
    code = u64(low << 1 | 1)
    if zeros + num_low > 55:  # longer than what can be put at once
        at, held, num_held = put_zeros(out, at, held, num_held, zeros)
        return put(out, at, held, num_held, code, num_low + 1)
    return put(out, at, held, num_held, code << u64(zeros), zeros + num_low + 1)


@njit(cache=True)
def get_gap(buffer: Bytes, bit: int, limit: int, r: int) -> tuple[int, int]:
    """A gap and the bit position behind it, which is above `limit` if the stream ends before. Reads at most 8 bytes
    behind the limit, and by Elias-gamma never a gap of 2^32 or more."""
    zeros = 0
    while True:
        more = trailing_zeros(peek(buffer, bit))
        bit += min(more + 1, 57)
        zeros += min(more, 57)
        if bit > limit or (r == GAMMA and zeros > 31):
            return 0, limit + 1
        if more < 57:
            break
    num_low = zeros if r == GAMMA else r
    low = i64(peek(buffer, bit) & ((u64(1) << u64(num_low)) - u64(1)))
    return low + ((1 << zeros) - 1 if r == GAMMA else zeros << r), bit + num_low


@njit(cache=True)
def pack(marks: Bytes) -> Words:
    """A row of bytes 0 and 1 as bits."""
    words = np.zeros((marks.size + 63) >> 6, np.uint64)
    whole = marks.size >> 6
    for i in range(whole):
        word = u64(0)
        for j in range(0, 64, 8):  # the product has in its highest byte the lowest bits of eight bytes
            word |= (load64(marks, 64 * i + j) * LOWEST_BITS) >> u64(56) << u64(j)
        words[i] = word
    for i in range(64 * whole, marks.size):
        words[whole] |= u64(marks[i]) << u64(i & 63)
    return words


@njit(cache=True)
def list_ones(words: Words, start: int, end: int, inverted: bool, positions: Positions) -> int:
    """Fill in where the bits of words `start` up to `end` are ones, or zeros if inverted; returns how many they are."""
    found = 0
    for i in range(start, end):
        word = ~words[i] if inverted else words[i]
        while word != 0:
            positions[u64(found)] = 64 * i + trailing_zeros(
                word
            )  # unsigned: numba lets negative ones count from the end
            word &= word - u64(1)
            found += 1
    return found


@njit(cache=True)
def unpack(words: Words) -> Positions:
    """Where packed bits are ones."""
    count = 0
    for word in words:
        count += ones_in(word)
    positions = np.empty(count, np.uint32)
    list_ones(words, 0, words.size, False, positions)
    return positions


@njit(cache=True)
def positions_of(marks: Bytes) -> Positions:
    """Where a row of bytes 0 and 1 has ones."""
    return unpack(pack(marks))
