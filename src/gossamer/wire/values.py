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
from gossamer.wire.frame import WireError
from gossamer.wire.kernels import floats
from gossamer.wire.kernels.bits import Bytes, Positions, Words, place
from gossamer.wire.kernels.code_lengths import Counts
from gossamer.wire.kernels.floats import RAW
from gossamer.wire.kernels.huffman import BAD_TABLE
from gossamer.wire.kernels.levels import DAMAGED

Numbers = NDArray[Any]

WHY = {
    floats.ENDS: "The frame ends before the values of a part.",
    floats.UNKNOWN: "Value coding {tag} is not known here.",
    BAD_TABLE: "The code table of a part is damaged.",
    DAMAGED: "The quantized values of a part are damaged.",
}


class Rows(NamedTuple):
    """The numbers of a part in the form in which they travel, (B, width), and the scales of integers."""

    numbers: Numbers
    scales: Numbers | None = None


class ValuePlan(NamedTuple):
    """How a row's numbers will be written."""

    num_tags: int
    num_bytes: int  # without the tags
    coded: bool
    numbers: Numbers  # the row as it travels, what is not sent included
    symbols: Bytes  # of what is sent
    counts: Counts  # histogram of the symbols
    lengths: Bytes  # of their codes
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
        num_bytes, found, counts, lengths = floats.plan_floats(words, mask, self.num_bits, count)
        raw_bytes = count * self.num_bits // 8
        return ValuePlan(1, min(num_bytes, raw_bytes), num_bytes < raw_bytes, words, found, counts, lengths)

    def write(self, plan: ValuePlan, positions: Positions | None, out: Bytes, at: int) -> int:
        if plan.coded:
            coding = plan.symbols, plan.counts, plan.lengths
            return floats.write_floats(plan.numbers, positions, self.num_bits, *coding, out, at)
        words = plan.numbers if positions is None else plan.numbers[positions]
        out[at] = RAW
        return write_bytes(words if self.num_bits == 32 else words.astype(np.uint16), out, at + 1)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, None, int]:
        row, behind = self.read_row(buffer, at, end, positions, width)
        return torch.from_numpy(row), None, behind

    def read_row(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[NDArray[np.float32], int]:
        words = (np.empty if positions is None else np.zeros)((1, width), np.uint32)
        behind = floats.read_floats(buffer, at, end, self.num_bits, positions, words)
        check(behind, buffer, at)
        if self.kind == "float16":
            with np.errstate(invalid="ignore"):  # a signalling NaN is a value like others
                return words.astype(np.uint16).view(np.float16).astype(np.float32), behind
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

    def plan(self, rows: Rows, row: int, mask: Words, count: int) -> ValuePlan:
        return ValuePlan(1, 8 * count, False, rows.numbers[row], *NOTHING_CODED)

    def write(self, plan: ValuePlan, positions: Positions | None, out: Bytes, at: int) -> int:
        out[at] = RAW
        return write_bytes(plan.numbers if positions is None else plan.numbers[positions], out, at + 1)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, None, int]:
        count = width if positions is None else positions.size
        behind = at + 1 + 8 * count
        if behind > end:
            raise WireError(WHY[floats.ENDS])
        if buffer[at] != RAW:
            raise WireError(WHY[floats.UNKNOWN].format(tag=buffer[at]))
        return spread(buffer[at + 1 : behind].copy().view(np.float64), positions, width), None, behind


NOTHING_CODED = np.empty(0, np.uint8), np.zeros(256, np.int64), np.zeros(256, np.uint8)  # symbols, counts, lengths


def array_of(values: Tensor, dtype: "np.dtype[Any]", kind: str) -> Numbers:
    numbers: Numbers = (values.detach() if values.requires_grad else values).numpy()
    if numbers.dtype != dtype:
        raise ValueError(f"a part that travels as {kind} must hold {dtype}, and holds {numbers.dtype}")
    return np.ascontiguousarray(numbers)


def spread(numbers: Numbers, positions: Positions | None, width: int) -> Tensor:
    """One row with the numbers at their positions and zero elsewhere."""
    if positions is None:
        return torch.from_numpy(numbers[None])
    row = np.zeros((1, width), numbers.dtype)
    place(numbers, positions, row[0])
    return torch.from_numpy(row)


def check(behind: int, buffer: Bytes, at: int) -> None:
    """Raise if values with their tag at byte `at` could not be read."""
    if behind < 0:
        raise WireError(WHY[behind].format(tag=buffer[at] if behind == floats.UNKNOWN else ""))


def write_bytes(numbers: Numbers, out: Bytes, at: int) -> int:
    out[at : at + numbers.nbytes] = numbers.view(np.uint8)
    return at + numbers.nbytes
