"""Quantized numbers as bytes: integers of 1 to 8 bits and the scales that they are multiples of.

First the scales: one float32 if a row has one, else the floats of the buckets as `FloatCoder` writes them. Then a tag
and the integers, raw or Huffman-coded. A symbol is as many of them as a byte holds, the first one lowest, so that even
numbers of one or two bits are coded close to their entropy.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Part, Quantized
from gossamer.wire.frame import WireError
from gossamer.wire.kernels.bits import Bytes, Positions
from gossamer.wire.kernels.huffman import plan_symbols, write_coded
from gossamer.wire.values import (
    CODED,
    RAW,
    FloatCoder,
    Numbers,
    Rows,
    Symbols,
    ValuePlan,
    array_of,
    read_symbols,
    read_tag,
    sent_of,
    spread,
    values_end,
    write_bytes,
)

Levels = NDArray[np.int16]


class LevelCoder:
    """Integers of `num_bits` bits: -1 and 1 for one bit, else -2^(b-1) .. 2^(b-1) - 1."""

    def __init__(self, num_bits: int, bucket: int):
        self.num_bits = num_bits
        self.bucket = bucket
        self.shifts = np.arange(8 // num_bits, dtype=np.uint8) * np.uint8(num_bits)  # of the digits of a symbol
        self.scales = FloatCoder("float32")

    def rows(self, part: Part) -> Rows:
        if part.quantized is None:
            raise ValueError(f"a part that travels as int{self.num_bits} holds no quantized numbers")
        if part.quantized.bucket != self.bucket:
            raise ValueError(f"a part has buckets of {part.quantized.bucket}, and its PartSpec says {self.bucket}")
        if part.quantized.levels.shape != part.values.shape or len(part.quantized.scales) != len(part.values):
            raise ValueError("the levels of a part must have the shape of its values, and the scales as many rows")
        levels = array_of(part.quantized.levels, np.dtype(np.int16), f"int{self.num_bits}")
        return Rows(levels, array_of(part.quantized.scales, np.dtype(np.float32), "scales"))

    def plan(self, rows: Rows, row: int, positions: Positions | None) -> ValuePlan:
        assert rows.scales is not None
        digits = self._digits(sent_of(rows.numbers[row], positions))
        num_scales = self._num_scales(digits.size)
        scales = rows.scales[row, :num_scales]
        if scales.size < num_scales or not np.isfinite(scales).all():
            raise ValueError(f"{digits.size} integers need {num_scales} finite scales")
        scale_plan = self._plan_scales(scales)
        symbols = self._grouped(digits)
        coded_bytes, counts, lengths = plan_symbols(symbols, self.num_bits > 4)
        raw_bytes = (digits.size * self.num_bits + 7) // 8
        coded = Symbols(symbols, counts, lengths) if coded_bytes < raw_bytes else None
        num_bytes = scale_plan.num_bytes + min(coded_bytes, raw_bytes)
        return ValuePlan(1 + scale_plan.num_tags, num_bytes, digits, coded, scale_plan)

    def write(self, plan: ValuePlan, out: Bytes, at: int) -> int:
        assert plan.scales is not None
        at = self.scales.write(plan.scales, out, at) if self.bucket else write_bytes(plan.scales.numbers, out, at)
        if plan.coded is not None:
            out[at] = CODED
            return write_coded(*plan.coded, out, at + 1)
        out[at] = RAW
        bits = np.unpackbits(plan.numbers[:, None], axis=1, count=self.num_bits, bitorder="little")
        return write_bytes(np.packbits(bits, bitorder="little"), out, at + 1)

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, Quantized, int]:
        count = width if positions is None else positions.size
        scales, at = self._read_scales(buffer, at, end, count)
        digits, at = self._read_digits(buffer, at, end, count)
        levels = digits.astype(np.int16)
        levels = 2 * levels - 1 if self.num_bits == 1 else levels - (1 << (self.num_bits - 1))
        numbers = levels.astype(np.float32) * (scales.repeat(self.bucket)[:count] if self.bucket else scales)
        quantized = Quantized(spread(levels, positions, width), torch.from_numpy(scales[None]), self.bucket)
        return spread(numbers, positions, width), quantized, at

    def _digits(self, levels: Levels) -> Bytes:
        """Levels counted from 0 on; refused if one has too many bits."""
        top = 1 << (self.num_bits - 1)
        digits = (levels + 1) >> 1 if self.num_bits == 1 else levels + top
        if self.num_bits == 1:
            fit = (np.abs(levels) == 1).all()
        else:
            fit = levels.size == 0 or (levels.min() >= -top and levels.max() < top)
        if not fit:
            raise ValueError(f"the levels of a part do not fit in int{self.num_bits}")
        return digits.astype(np.uint8)

    def _grouped(self, digits: Bytes) -> Bytes:
        """Several digits per symbol, as many as it holds; zeros fill the last one."""
        group = self.shifts.size
        if group == 1:
            return digits
        padded = np.zeros(-(-digits.size // group) * group, np.uint8)
        padded[: digits.size] = digits
        symbols: Bytes = np.bitwise_or.reduce(padded.reshape(-1, group) << self.shifts, axis=1)
        return symbols

    def _read_digits(self, buffer: Bytes, at: int, end: int, count: int) -> tuple[Bytes, int]:
        coded, at = read_tag(buffer, at, end)
        if coded:
            symbols, at = read_symbols(buffer, at, end, -(-count // self.shifts.size))
            digits = (symbols[:, None] >> self.shifts) & np.uint8((1 << self.num_bits) - 1)
            digits = digits.ravel()[:count]
            if not np.array_equal(self._grouped(digits), symbols):
                raise WireError("The quantized values of a part are damaged.")
            return digits, at
        behind = at + (count * self.num_bits + 7) // 8
        if behind > end:
            raise values_end()
        bits = np.unpackbits(buffer[at:behind], count=count * self.num_bits, bitorder="little")
        return np.packbits(bits.reshape(count, self.num_bits), axis=1, bitorder="little").ravel(), behind

    def _plan_scales(self, scales: Numbers) -> ValuePlan:
        words = scales.view(np.uint32)
        if not self.bucket:  # a single one has no tag
            return ValuePlan(0, 4, words)
        return self.scales.plan(Rows(words[None]), 0, None)

    def _read_scales(self, buffer: Bytes, at: int, end: int, count: int) -> tuple[NDArray[np.float32], int]:
        if self.bucket:
            scales, at = self.scales.read_numbers(buffer, at, end, self._num_scales(count))
        else:
            if at + 4 > end:
                raise values_end()
            scales, at = buffer[at : at + 4].copy().view(np.float32), at + 4
        if not np.isfinite(scales).all():
            raise WireError("A scale of a part is not a finite number.")
        return scales, at

    def _num_scales(self, count: int) -> int:
        return -(-count // self.bucket) if self.bucket else 1
