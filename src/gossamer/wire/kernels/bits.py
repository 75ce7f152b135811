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


def _places(byte: int) -> int:
    """The positions of the ones of a byte, a byte each, the first one lowest."""
    return sum(place << 8 * i for i, place in enumerate(place for place in range(8) if byte >> place & 1))


PLACES = np.array([_places(byte) for byte in range(256)], np.uint64)


def pointer_to(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, target: Any) -> Any:
    """In an intrinsic, where a number or vector of LLVM type `target` lies that starts at an entry of an array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), target.as_pointer())


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return pointer_to(context, builder, signature.args[0], args[0], args[1], ir.IntType(64))


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
    """Which of 64 bytes from `offset` on are not zero, as the bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bytes_type = ir.VectorType(ir.IntType(8), 64)
        pointer = builder.bitcast(_pointer(context, builder, signature, args), bytes_type.as_pointer())
        vector = builder.load(pointer, align=1)
        bits = builder.icmp_unsigned("!=", vector, ir.Constant(bytes_type, [0] * 64))
        return builder.bitcast(bits, ir.IntType(64))

    return types.uint64(mask, types.intp), generate


def _nonzero16(typing_context: Any, words: Any, offset: Any) -> Any:
    """Which of the 32 quarters of 8 words from `offset` on are not zero, a bit each, the first one lowest."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        quarters_type = ir.VectorType(ir.IntType(16), 32)
        pointer = builder.bitcast(_pointer(context, builder, signature, args), quarters_type.as_pointer())
        vector = builder.load(pointer, align=1)
        bits = builder.icmp_unsigned("!=", vector, ir.Constant(quarters_type, [0] * 32))
        return builder.zext(builder.bitcast(bits, ir.IntType(32)), ir.IntType(64))

    return types.uint64(words, types.intp), generate


def _store_places(typing_context: Any, places: Any, offset: Any, few: Any, first: Any) -> Any:
    """Add a number to each of the 8 bytes of a word, and write them to an array of whole numbers from `offset` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lane, index = ir.IntType(signature.args[0].dtype.bitwidth), ir.IntType(32)
        places_type = ir.VectorType(lane, 8)
        few = builder.zext(builder.bitcast(args[2], ir.VectorType(ir.IntType(8), 8)), places_type)
        number = builder.trunc(args[3], lane) if lane.width < 64 else args[3]
        first = builder.insert_element(ir.Constant(places_type, None), number, index(0))
        first = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(index, 8), [0] * 8))
        pointer = builder.bitcast(_pointer(context, builder, signature, args), places_type.as_pointer())
        builder.store(builder.add(few, first), pointer, align=lane.width // 8)
        return context.get_dummy_value()

    return types.void(places, types.intp, types.uint64, types.uint64), generate


load64: Any = intrinsic(_load64)
store64: Any = intrinsic(_store64)
trailing_zeros: Any = intrinsic(_trailing_zeros)
leading_zeros: Any = intrinsic(_leading_zeros)
ones_in: Any = intrinsic(_ones_in)
pack64: Any = intrinsic(_pack64)
nonzero16: Any = intrinsic(_nonzero16)
store_places: Any = intrinsic(_store_places)


@njit(cache=True)
def ones_in_all(words: Words) -> int:
    """How many ones a packed mask has."""
    total = 0
    for word in words:
        total += ones_in(word)
    return total


@njit(cache=True)
def all_sent(words: Words, width: int) -> bool:
    """Whether all of the first `width` bits of a packed mask are ones; most masks are told by their first word."""
    whole = width >> 6
    for i in range(whole):
        if words[i] != ~u64(0):
            return False
    return width & 63 == 0 or words[whole] == (u64(1) << u64(width & 63)) - u64(1)


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
    """A mask of bytes 0 and 1 as bits: bit i of the words is mask[i]. Zeros fill the words up to a multiple of 8."""
    words = np.empty((mask.size + 511) >> 9 << 3, np.uint64)
    whole = mask.size >> 6
    for i in range(whole):
        words[i] = pack64(mask, 64 * i)
    words[whole:] = u64(0)
    for i in range(64 * whole, mask.size):
        words[whole] |= u64(mask[i]) << u64(i & 63)
    return words


@njit(cache=True)
def all_ones(width: int) -> Words:
    """The packed mask of a row of which everything is sent."""
    words = np.zeros((width + 511) >> 9 << 3, np.uint64)
    words[: width >> 6] = ~u64(0)
    if width & 63:
        words[width >> 6] = (u64(1) << u64(width & 63)) - u64(1)
    return words


@njit(cache=True)
def positions_of(words: Words, count: int) -> Positions:
    """The positions of the ones of a packed mask, of which there are `count`."""
    positions = np.empty(count + 8, np.int64)
    places_of(words, positions)
    return positions[:count]


@njit(cache=True)
def places_of(words: Words, places: Any) -> int:
    """Fill in the positions of the ones of a packed mask, and return how many they are; there must be room for 8 more.

    A table gives those of a byte at once: nothing but how many bytes of a block are not zero has to be guessed by the
    processor. In a mask that it has not seen before, to take one after the other takes twice as long.
    """
    found = 0
    all_bytes = words.view(np.uint8)
    for first in range(0, words.size, 8):
        left = pack64(words, first)
        while left != 0:
            i = 8 * first + trailing_zeros(left)
            left &= left - u64(1)
            byte = u64(all_bytes[u64(i)])
            store_places(places, found, PLACES[byte], u64(8 * i))
            found += ones_in(byte)
    return found


@njit(cache=True)
def place(numbers: Any, positions: Positions, out: Any) -> None:
    """Set out[positions[i]] = numbers[i]."""
    for i in range(positions.size):
        out[positions[i]] = numbers[i]


@njit(cache=True)
def mark(positions: Positions, out: Any) -> None:
    """Set out[positions[i]] to True."""
    for i in range(positions.size):
        out[positions[i]] = True
