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


load64: Any = intrinsic(_load64)
store64: Any = intrinsic(_store64)
trailing_zeros: Any = intrinsic(_trailing_zeros)
leading_zeros: Any = intrinsic(_leading_zeros)


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
def list_positions(marks: Bytes, start: int, end: int, value: int, positions: Positions) -> int:
    """Fill in where a row of zeros and ones has a value, from `start` up to `end`, and return how many they are.

    There must be room for one more: all are written, without a branch, and those that have another written over.
    """
    found = 0
    for i in range(start, end):
        positions[found] = i
        found += i64(marks[i] == value)
    return found


@njit(cache=True)
def positions_of(marks: Bytes) -> Positions:
    """Where a row of zeros and ones has ones, ascending."""
    positions = np.empty(i64(marks.sum()) + 1, np.int64)
    return positions[: list_positions(marks, 0, marks.size, 1, positions)]
