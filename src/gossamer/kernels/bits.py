"""Bits in and out of byte buffers: what every coder of the wire format is made of.

The first bit of a stream is the lowest bit of its first byte. A reader looks at 57 bits or more at any bit position
with one unaligned 8-byte load, so every buffer that is read has `PADDING` bytes behind its end; a writer keeps at most
7 bits back and stores 8 bytes at a time, so every buffer that is written has the same. Nothing here checks bounds:
the coders do.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

PADDING = 16
i64: Any = np.int64  # both spelt out in kernels, since numba makes a float of a sum of the two
u64: Any = np.uint64

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Words = NDArray[np.uint64]  # a mask, one bit an entry, the first one lowest


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


def _pack64(typing_context: Any, mask: Any, offset: Any) -> Any:
    """64 bytes of zeros and ones from `offset` on, as the bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bytes_type = ir.VectorType(ir.IntType(8), 64)
        pointer = builder.bitcast(_pointer(context, builder, signature, args), bytes_type.as_pointer())
        vector = builder.load(pointer, align=1)
        bits = builder.icmp_unsigned("!=", vector, ir.Constant(bytes_type, [0] * 64))
        return builder.bitcast(bits, ir.IntType(64))

    return types.uint64(mask, types.intp), generate


load64: Any = intrinsic(_load64)
store64: Any = intrinsic(_store64)
trailing_zeros: Any = intrinsic(_trailing_zeros)
leading_zeros: Any = intrinsic(_leading_zeros)
ones_in: Any = intrinsic(_ones_in)
pack64: Any = intrinsic(_pack64)


@njit(cache=True)
def ones_in_all(words: Words) -> int:
    """How many ones a packed mask has."""
    total = 0
    for word in words:
        total += ones_in(word)
    return total


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


@njit(cache=True)
def pack(mask: Bytes) -> Words:
    """A mask of bytes 0 and 1 as bits: bit i of the words is mask[i]."""
    words = np.zeros((mask.size + 63) >> 6, np.uint64)
    whole = mask.size >> 6
    for i in range(whole):
        words[i] = pack64(mask, 64 * i)
    for i in range(64 * whole, mask.size):
        words[whole] |= u64(mask[i]) << u64(i & 63)
    return words


@njit(cache=True)
def positions_of(words: Words, count: int) -> Positions:
    """The positions of the ones of a packed mask, of which there are `count`."""
    positions = np.empty(count, np.int64)
    found = 0
    for i in range(words.size):
        word = words[i]
        while word != 0:
            positions[found] = 64 * i + trailing_zeros(word)
            word &= word - u64(1)
            found += 1
    return positions


@njit(cache=True)
def take(numbers: Any, positions: Positions) -> Any:
    """The numbers at some positions."""
    taken = np.empty(positions.size, numbers.dtype)
    for i in range(positions.size):
        taken[i] = numbers[positions[i]]
    return taken


@njit(cache=True)
def place(numbers: Any, positions: Positions, out: Any) -> None:
    """Set out[positions[i]] = numbers[i]."""
    for i in range(positions.size):
        out[positions[i]] = numbers[i]
