"""The numbers of a part as bytes.

A tag says whether they are raw or coded. Coded floats are the bytes that are as good as random, then the rest of each
number as a symbol, Huffman-coded; the size follows from the symbols' histogram. Raw is the floor. The codec never
rounds: that is a compressor's work, and what a compressor returned is what receivers see.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Part, Quantized
from gossamer.core.kernels import njit
from gossamer.wire.bits import Bytes, Positions, load64, store64, u64
from gossamer.wire.frame import WireError
from gossamer.wire.huffman import BAD_TABLE, Counts, code_histogram, plan_symbols, read_coded, write_coded

Numbers = NDArray[Any]
RAW, CODED = 0, 1  # tags


class Rows(NamedTuple):
    """The numbers of a part in the form in which they travel, (B, width), and the scales of integers."""

    numbers: Numbers
    scales: Numbers | None = None


class Symbols(NamedTuple):
    """Bytes that are worth entropy coding."""

    symbols: Bytes
    counts: Counts  # their histogram
    lengths: Bytes  # of their codes


class ValuePlan(NamedTuple):
    """How a row's numbers will be written."""

    num_tags: int
    num_bytes: int  # without the tags
    numbers: Numbers  # those that are sent, as they travel
    coded: Symbols | None = None  # None: raw
    scales: "ValuePlan | None" = None  # of integers
    levels: Numbers | None = None  # integers that are coded adaptively


class ValueCoder(Protocol):
    """One way in which a part's numbers travel."""

    def rows(self, part: Part) -> Rows:
        """The numbers of a part as they travel."""

    def plan(self, rows: Rows, row: int, positions: Positions | None) -> ValuePlan:
        """How the numbers of a row at these positions (None: all) will be written."""

    def write(self, plan: ValuePlan, out: Bytes, at: int) -> int:
        """Write the numbers from byte `at` on; returns the byte behind them."""

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, Quantized | None, int]:
        """A row of values, zero but at the positions, the integers behind them, and the byte behind what was read."""


class FloatCoder:
    """float32, bfloat16 and float16.

    A float of n bits gives one symbol, the 8 bits below its sign (for float32 and bfloat16 the exponent, for float16
    the exponent and the first 3 bits of the fraction), and a rest of n - 8 bits, the sign above what is left of the
    fraction, which is as good as random.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.num_bits = 32 if kind == "float32" else 16

    def rows(self, part: Part) -> Rows:
        return Rows(self._words(array_of(part.values, np.dtype(np.float32), self.kind)))

    def plan(self, rows: Rows, row: int, positions: Positions | None) -> ValuePlan:
        words = sent_of(rows.numbers[row], positions)
        symbol_bytes, symbols, counts, lengths = _plan_floats(words, self.num_bits)
        coded_bytes, raw_bytes = symbol_bytes + words.size * (self.num_bits - 8) // 8, words.size * self.num_bits // 8
        if coded_bytes < raw_bytes:
            return ValuePlan(1, coded_bytes, words, Symbols(symbols, counts, lengths))
        return ValuePlan(1, raw_bytes, words)

    def write(self, plan: ValuePlan, out: Bytes, at: int) -> int:
        if plan.coded is None:
            out[at] = RAW
            return write_bytes(plan.numbers if self.num_bits == 32 else plan.numbers.astype(np.uint16), out, at + 1)
        out[at] = CODED
        at = _write_rests(plan.numbers, self.num_bits, out, at + 1)
        return write_coded(*plan.coded, out, at)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, None, int]:
        numbers, at = self.read_numbers(buffer, at, end, width if positions is None else positions.size)
        return spread(numbers, positions, width), None, at

    def read_numbers(self, buffer: Bytes, at: int, end: int, count: int) -> tuple[NDArray[np.float32], int]:
        """So many floats from their tag on, and the byte behind them."""
        coded, at = read_tag(buffer, at, end)
        behind = at + count * (self.num_bits - 8 if coded else self.num_bits) // 8
        if behind > end:
            raise values_end()
        if coded:
            symbols, behind = read_symbols(buffer, behind, end, count)
            words = np.empty(count, np.uint32)
            _join_floats(symbols, buffer, at, self.num_bits, words)
            del symbols  # memory that others decide about is given back early
        else:
            whole = buffer[at:behind].copy().view(np.uint32 if self.num_bits == 32 else np.uint16)
            words = whole.astype(np.uint32, copy=False)
        if self.kind == "float16":
            words = words.astype(np.uint16)
            with np.errstate(invalid="ignore"):  # a signalling NaN is a value like others
                return words.view(np.float16).astype(np.float32), behind
        if self.kind == "bfloat16":
            words <<= np.uint32(16)
        return words.view(np.float32), behind

    def _words(self, numbers: Numbers) -> Numbers:
        words: Numbers = numbers.view(np.uint32)
        if self.kind == "float32":
            return words
        if self.kind == "bfloat16":
            exact, shorter = words & 0xFFFF == 0, words >> 16
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                halves = numbers.astype(np.float16)
                exact, shorter = halves.astype(np.float32).view(np.uint32) == words, halves.view(np.uint16)
        if not exact.all():
            raise ValueError(f"a part that travels as {self.kind} holds numbers that are not rounded to it")
        return shorter.astype(np.uint32)


class DoubleCoder:
    """float64, for the few numbers of which every bit counts: raw."""

    def rows(self, part: Part) -> Rows:
        return Rows(array_of(part.values, np.dtype(np.float64), "float64"))

    def plan(self, rows: Rows, row: int, positions: Positions | None) -> ValuePlan:
        numbers = sent_of(rows.numbers[row], positions)
        return ValuePlan(1, numbers.nbytes, numbers)

    def write(self, plan: ValuePlan, out: Bytes, at: int) -> int:
        out[at] = RAW
        return write_bytes(plan.numbers, out, at + 1)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, None, int]:
        _, at = read_tag(buffer, at, end, known=RAW)
        behind = at + 8 * (width if positions is None else positions.size)
        if behind > end:
            raise values_end()
        return spread(buffer[at:behind].copy().view(np.float64), positions, width), None, behind


@njit(cache=True)
def _plan_floats(words: NDArray[np.uint32], num_bits: int) -> tuple[int, Bytes, Counts, Bytes]:
    """Bytes of the symbols of floats with their table, the symbols, their histogram, and the lengths of their codes."""
    symbols, shift = np.empty(words.size, np.uint8), np.uint32(num_bits - 9)
    for i in range(words.size):
        symbols[i] = (words[i] >> shift) & u64(255)
    num_bytes, counts, lengths = plan_symbols(symbols, False)
    return num_bytes, symbols, counts, lengths


@njit(cache=True)
def num_float_bytes(row: NDArray[np.uint32], positions: Positions, everything: bool, num_bits: int) -> int:
    """Bytes of the floats of a row at these positions, or of all of them, as FloatCoder plans them."""
    count, shift = row.size if everything else positions.size, u64(num_bits - 9)
    each = np.zeros((4, 256), np.int64)  # as in plan_symbols
    for i in range(count):
        word = row[i] if everything else row[positions[i]]
        each[i & 3, (u64(word) >> shift) & u64(255)] += 1
    _, symbol_bytes = code_histogram(each.sum(0), False)
    num_bytes: int = min(symbol_bytes + count * (num_bits - 8) // 8, count * num_bits // 8)
    return num_bytes


@njit(cache=True)
def _write_rests(words: NDArray[np.uint32], num_bits: int, out: Bytes, at: int) -> int:
    """The rests of floats from byte `at` on; returns the byte behind."""
    shift = u64(num_bits - 9)
    fraction = (u64(1) << shift) - u64(1)
    for i in range(words.size):
        word = u64(words[i])
        store64(out, at, (word >> u64(num_bits - 1) << shift) | (word & fraction))
        at += (num_bits - 8) >> 3
    return at


@njit(cache=True)
def _join_floats(symbols: Bytes, buffer: Bytes, at: int, num_bits: int, words: NDArray[np.uint32]) -> None:
    """Symbols, and the rests from byte `at` on, to floats."""
    shift = u64(num_bits - 9)
    fraction = (u64(1) << shift) - u64(1)
    for i in range(words.size):
        rest = load64(buffer, at)
        sign = (rest >> shift) & u64(1)
        words[i] = (sign << u64(num_bits - 1)) | (u64(symbols[i]) << shift) | (rest & fraction)
        at += (num_bits - 8) >> 3


def array_of(values: Tensor, dtype: "np.dtype[Any]", kind: str) -> Numbers:
    numbers: Numbers = (values.detach() if values.requires_grad else values).numpy()
    if numbers.dtype != dtype:
        raise ValueError(f"a part that travels as {kind} must hold {dtype}, and holds {numbers.dtype}")
    return np.ascontiguousarray(numbers)


def sent_of(row: Numbers, positions: Positions | None) -> Numbers:
    return row if positions is None else gather(row, positions)


def spread(numbers: Numbers, positions: Positions | None, width: int) -> Tensor:
    """One row with the numbers at their positions and zero elsewhere."""
    if positions is None:
        return torch.from_numpy(numbers[None])
    row = np.zeros((1, width), numbers.dtype)
    scatter(numbers, positions, row[0])
    return torch.from_numpy(row)


@njit(cache=True)
def gather(row: Numbers, positions: Positions) -> Numbers:
    numbers = np.empty(positions.size, row.dtype)
    for i in range(positions.size):
        numbers[i] = row[positions[i]]
    return numbers


@njit(cache=True)
def scatter(numbers: Numbers, positions: Positions, row: Numbers) -> None:
    for i in range(positions.size):
        row[positions[i]] = numbers[i]


def write_bytes(numbers: Numbers, out: Bytes, at: int) -> int:
    out[at : at + numbers.nbytes] = numbers.view(np.uint8)
    return at + numbers.nbytes


def read_tag(buffer: Bytes, at: int, end: int, known: int = CODED) -> tuple[bool, int]:
    """Whether values are coded, and the byte behind the tag that says it."""
    if at >= end:
        raise values_end()
    if buffer[at] > known:
        raise WireError(f"Value coding {buffer[at]} is not known here.")
    return bool(buffer[at] == CODED), at + 1


def read_symbols(buffer: Bytes, at: int, end: int, count: int) -> tuple[Bytes, int]:
    """So many Huffman-coded symbols from their table on, and the byte behind them."""
    symbols, behind = read_coded(buffer, at, end, count)
    if behind == BAD_TABLE:
        raise WireError("The code table of a part is damaged.")
    if behind < 0:
        raise values_end()
    return symbols, behind


def values_end() -> WireError:
    return WireError("The frame ends before the values of a part.")
