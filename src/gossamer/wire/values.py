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
from gossamer.kernels import huffman, symbols
from gossamer.kernels.bits import Bytes, Positions, Words, place, take
from gossamer.wire.frame import WireError

RAW, CODED = 0, 1

Numbers = NDArray[Any]


class Rows(NamedTuple):
    """The numbers of a part in the form in which they travel, (B, width), and the scales of integers."""

    numbers: Numbers
    scales: Numbers | None = None


class ValuePlan(NamedTuple):
    """How a row's numbers will be written."""

    num_tags: int
    num_bytes: int  # without the tags
    coded: bool
    counts: huffman.Counts  # histogram of the symbols
    lengths: Bytes  # of their codes
    numbers: Numbers  # the row as it travels, what is not sent included
    scales: "ValuePlan | None" = None  # of integers


class ValueCoder(Protocol):
    """One way in which a part's numbers travel."""

    def rows(self, part: Part) -> Rows:
        """The numbers of a part as they travel."""

    def plan(self, rows: Rows, row: int, mask: Words, count: int) -> ValuePlan:
        """How the numbers of a row under a packed mask with `count` ones will be written."""

    def write(self, plan: ValuePlan, positions: Positions | None, out: Bytes, at: int) -> int:
        """Write the numbers at the positions (None: all) from byte `at` on; returns the byte behind them."""

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, Quantized | None, int]:
        """A row of values, zero but at the positions, the integers behind them, and the byte behind what was read."""


class FloatCoder:
    """float32, bfloat16 and float16: the 8 bits below the sign are coded, the others are raw."""

    def __init__(self, kind: str):
        self.kind = kind
        self.num_bits = 32 if kind == "float32" else 16

    def rows(self, part: Part) -> Rows:
        return Rows(self._words(array_of(part.values, np.dtype(np.float32), self.kind)))

    def plan(self, rows: Rows, row: int, mask: Words, count: int) -> ValuePlan:
        words = rows.numbers[row]
        num_bytes, counts, lengths = symbols.plan_floats(words, mask, self.num_bits, count)
        raw_bytes = count * self.num_bits // 8
        return ValuePlan(1, min(num_bytes, raw_bytes), num_bytes < raw_bytes, counts, lengths, words)

    def write(self, plan: ValuePlan, positions: Positions | None, out: Bytes, at: int) -> int:
        words = plan.numbers if positions is None else take(plan.numbers, positions)
        out[at] = CODED if plan.coded else RAW
        if not plan.coded:
            return write_bytes(words if self.num_bits == 32 else words.astype(np.uint16), out, at + 1)
        found = np.empty(words.size, np.uint8)
        symbols.split_floats(words, self.num_bits, found, out, at + 1)
        return write_symbols(found, plan, out, at + 1 + words.size * (self.num_bits - 8) // 8)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, None, int]:
        count = width if positions is None else positions.size
        numbers, at = self.read_numbers(buffer, at, end, count)
        return spread(numbers, positions, width), None, at

    def read_numbers(self, buffer: Bytes, at: int, end: int, count: int) -> tuple[NDArray[np.float32], int]:
        coded, at = read_tag(buffer, at, end)
        behind = skip(at, count * (self.num_bits - 8 if coded else self.num_bits) // 8, end)
        if coded:
            found, behind_all = read_symbols(buffer, behind, end, count)
            words = np.empty(count, np.uint32)
            symbols.join_floats(found, buffer, at, self.num_bits, words)
        else:
            words = buffer[at:behind].view(np.uint32 if self.num_bits == 32 else np.uint16).astype(np.uint32)
            behind_all = behind
        if self.kind == "float16":
            with np.errstate(invalid="ignore"):  # a signalling NaN is a value like others
                return words.astype(np.uint16).view(np.float16).astype(np.float32), behind_all
        if self.kind == "bfloat16":
            words <<= np.uint32(16)
        return words.view(np.float32), behind_all

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

    def plan(self, rows: Rows, row: int, mask: Words, count: int) -> ValuePlan:
        return ValuePlan(1, 8 * count, False, NONE_COUNTED, NO_LENGTHS, rows.numbers[row])

    def write(self, plan: ValuePlan, positions: Positions | None, out: Bytes, at: int) -> int:
        out[at] = RAW
        return write_bytes(plan.numbers if positions is None else plan.numbers[positions], out, at + 1)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, None, int]:
        count = width if positions is None else positions.size
        coded, at = read_tag(buffer, at, end)
        if coded:
            raise WireError("Value coding 1 is not known for float64.")
        behind = skip(at, 8 * count, end)
        return spread(buffer[at:behind].copy().view(np.float64), positions, width), None, behind


NONE_COUNTED = np.zeros(256, np.int64)
NO_LENGTHS = np.zeros(256, np.uint8)


def array_of(values: Tensor, dtype: "np.dtype[Any]", kind: str) -> Numbers:
    numbers: Numbers = values.detach().numpy()
    if numbers.dtype != dtype:
        raise ValueError(f"a part that travels as {kind} must hold {dtype}, and holds {numbers.dtype}")
    return np.ascontiguousarray(numbers)


def spread(numbers: Numbers, positions: Positions | None, width: int) -> Tensor:
    """One row with the numbers at their positions and zero elsewhere."""
    if positions is None:
        return torch.from_numpy(numbers)[None]
    row = np.zeros((1, width), numbers.dtype)
    place(numbers, positions, row[0])
    return torch.from_numpy(row)


def skip(at: int, num_bytes: int, end: int) -> int:
    if at + num_bytes > end:
        raise WireError("The frame ends before the values of a part.")
    return at + num_bytes


def read_tag(buffer: Bytes, at: int, end: int) -> tuple[bool, int]:
    """Whether what follows is coded, and where it starts."""
    behind = skip(at, 1, end)
    if buffer[at] not in (RAW, CODED):
        raise WireError(f"Value coding {buffer[at]} is not known here.")
    return bool(buffer[at] == CODED), behind


def write_bytes(numbers: Numbers, out: Bytes, at: int) -> int:
    out[at : at + numbers.nbytes] = numbers.view(np.uint8)
    return at + numbers.nbytes


def write_symbols(found: Bytes, plan: ValuePlan, out: Bytes, at: int) -> int:
    at = huffman.write_table(plan.counts, plan.lengths, out, at)
    return huffman.write_symbols(found, plan.lengths, out, at)


def read_symbols(buffer: Bytes, at: int, end: int, count: int) -> tuple[Bytes, int]:
    """Coded symbols, and the byte behind them."""
    lengths = np.empty(256, np.uint8)
    at, lone = huffman.read_table(buffer, at, end, lengths)
    if at < 0:
        raise WireError("The code table of a part is damaged.")
    if lone >= 0:
        return np.full(count, lone, np.uint8), at
    found = np.empty(count, np.uint8)
    behind = huffman.read_symbols(buffer, at, end, lengths, found)
    if behind < 0:
        raise WireError("The frame ends before the values of a part.")
    return found, behind
