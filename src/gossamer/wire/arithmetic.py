"""An adaptive binary arithmetic coder: decisions, yes or no, in as many bits as they are surprising.

The encoder holds a range of numbers, `span` of them from `low` on. A decision divides it in proportion to the
probability p of yes, in units of 2^-16, and keeps the lower part for yes, the upper one for no. Bytes on which the
whole range agrees are written, highest first; a sum that overflows carries into those before. The decoder holds `code`,
how far into the range the written number lies.

Each context has its own probability, which moves towards what was decided in it: of the n-th decision by 1/n of the
way, as a mean does, until n is as large as the memory. Everything is in whole numbers, so that both ends compute the
same on every machine.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.core.kernels import njit
from gossamer.wire.bits import Bytes, i64

PRECISION = 22  # bits of a probability as it is kept
ONE = 1 << PRECISION
USED = 16  # bits of a probability as it is used
HALF = 1 << (USED - 1)
MAX_MEMORY = 1024
RATES = np.array([0, *(2**16 // n for n in range(1, MAX_MEMORY + 1))], np.int64)
TOP, FULL = 1 << 24, 1 << 32  # the range is kept between them
NOTHING = np.empty(0, np.uint8)  # to write into, if bytes are only counted

Cells = NDArray[np.int64]  # (2, contexts): the probability of yes, and how many decisions it is worth


@njit(cache=True)
def encode(yes: Any, p: int, low: int, span: int, out: Bytes, at: int) -> tuple[int, int, int]:
    """Narrow the range to the part of this decision; bytes that are settled are stored, unless out is NOTHING."""
    bound = (span >> USED) * p
    if yes:
        span = bound
    else:
        low += bound
        span -= bound
    while span < TOP:
        low, at = _shift(low, out, at)
        span <<= 8
    return low, span, at


@njit(cache=True)
def _shift(low: int, out: Bytes, at: int) -> tuple[int, int]:
    """Store the highest byte of `low`, with a carry if there is one."""
    if out.size:
        if low >= FULL:
            before = at - 1
            while out[before] == 255:
                out[before] = 0
                before -= 1
            out[before] += 1
        out[at] = (low >> 24) & 255
    return (low & (TOP - 1)) << 8, at + 1


@njit(cache=True)
def finish(low: int, out: Bytes, at: int) -> int:
    """Two bytes that lie in the range whatever follows them."""
    low = (low + 0xFFFF) >> 16 << 16
    low, at = _shift(low, out, at)
    low, at = _shift(low, out, at)
    return at


@njit(cache=True)
def begin(buffer: Bytes, at: int) -> Any:
    """The first four bytes, highest first."""
    code = 0
    for i in range(at, at + 4):
        code = (code << 8) | i64(buffer[i])
    return code


@njit(cache=True)
def decode(p: int, code: int, span: int, buffer: Bytes, at: int, end: int) -> tuple[bool, int, int, int]:
    """A decision and the state behind it; `at` is the next byte to take. Where there is none, span stays below TOP."""
    bound = (span >> USED) * p
    yes = code < bound
    if yes:
        span = bound
    else:
        code -= bound
        span -= bound
    while span < TOP and at < end + 2:  # of what was taken, two bytes are behind the stream
        code = (code << 8) | i64(buffer[at])
        span <<= 8
        at += 1
    return yes, code, span, at


@njit(cache=True)
def learn(cells: Cells, context: Any, target: int, memory: int) -> None:
    """Move a context's probability towards what was decided, 0 or ONE."""
    worth = cells[1, context]
    cells[0, context] += ((target - cells[0, context]) * RATES[worth]) >> 16
    cells[1, context] = min(worth + 1, memory)


@njit(cache=True)
def usable(p: int, num_bits: int) -> int:
    """A probability of so many bits, neither 0 nor 1, as the range coder takes it."""
    return min(max(p >> (num_bits - USED), 1), (1 << USED) - 1)
