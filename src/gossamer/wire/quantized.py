"""Quantized numbers as bytes: integers of 1 to 8 bits and the scales that they are multiples of.

First the scales: one float32 if a row has one, else the floats of the buckets as `FloatCoder` writes them. Then a tag
and the integers, raw, Huffman-coded, or by adaptive binary arithmetic coding, which is tried where few entries are sent
and none of them is 0. A Huffman symbol is as many integers as a byte holds, the first one lowest, so that even numbers
of one or two bits are coded close to their entropy.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Part, Quantized
from gossamer.core.kernels import njit
from gossamer.wire.adaptive import FEW, Levels, code_levels, read_levels
from gossamer.wire.arithmetic import NOTHING
from gossamer.wire.bits import Bytes, Positions, i64
from gossamer.wire.frame import WireError
from gossamer.wire.huffman import plan_symbols, write_coded
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

ADAPTIVE = 2  # a tag


class LevelCoder:
    """Integers of `num_bits` bits: -1 and 1 for one bit, else -2^(b-1) .. 2^(b-1) - 1."""

    def __init__(self, num_bits: int, bucket: int, sparse: bool = False):
        self.num_bits = num_bits
        self.bucket = bucket
        self.scales = FloatCoder("float32")
        # Where entries are chosen that stand out, in units of one scale, levels are few, and indices are most of the
        # bytes. Messages of bare signs would be 3 % shorter, which is not worth the time.
        self.few_levels = sparse and num_bits > 1 and not bucket

    def rows(self, part: Part) -> Rows:
        if part.quantized is None:
            raise ValueError(f"a part that travels as int{self.num_bits} holds no quantized numbers")
        if part.quantized.bucket != self.bucket:
            raise ValueError(f"a part has buckets of {part.quantized.bucket}, and its PartSpec says {self.bucket}")
        if part.quantized.levels.shape != part.values.shape or len(part.quantized.scales) != len(part.values):
            raise ValueError("the levels of a part must have the shape of its values, and the scales as many rows")
        if part.quantized.levels.dtype != torch.int16:
            dtype = str(part.quantized.levels.dtype).removeprefix("torch.")
            raise ValueError(f"Quantized.levels must be int16, {dtype} was given")
        levels = array_of(part.quantized.levels, np.dtype(np.int16), f"int{self.num_bits}")
        return Rows(levels, array_of(part.quantized.scales, np.dtype(np.float32), "scales"))

    def plan(self, rows: Rows, row: int, positions: Positions | None) -> ValuePlan:
        assert rows.scales is not None
        levels = sent_of(rows.numbers[row], positions)
        digits, fit = _digits(levels, self.num_bits)
        if not fit:
            raise ValueError(f"the levels of a part do not fit in int{self.num_bits}")
        num_scales = self._num_scales(digits.size)
        scales = rows.scales[row, :num_scales]
        if scales.size < num_scales or not np.isfinite(scales).all():
            raise ValueError(f"{digits.size} integers need {num_scales} finite scales")
        scale_plan = self._plan_scales(scales)
        symbols = digits if self.num_bits > 4 else _grouped(digits, self.num_bits)
        coded_bytes, counts, lengths = plan_symbols(symbols, self.num_bits > 4)
        raw_bytes = (digits.size * self.num_bits + 7) // 8
        fewest = min(coded_bytes, raw_bytes)
        num_tags, num_bytes = 1 + scale_plan.num_tags, scale_plan.num_bytes + fewest
        if self.few_levels and FEW * levels.size <= rows.numbers.shape[1] and levels.all():
            adaptive_bytes = code_levels(levels, self.num_bits, NOTHING, 0)
            if adaptive_bytes < fewest:
                return ValuePlan(num_tags, num_bytes - fewest + adaptive_bytes, digits, None, scale_plan, levels)
        coded = Symbols(symbols, counts, lengths) if coded_bytes < raw_bytes else None
        return ValuePlan(num_tags, num_bytes, digits, coded, scale_plan)

    def write(self, plan: ValuePlan, out: Bytes, at: int) -> int:
        assert plan.scales is not None
        at = self.scales.write(plan.scales, out, at) if self.bucket else write_bytes(plan.scales.numbers, out, at)
        if plan.levels is not None:
            out[at] = ADAPTIVE
            return code_levels(plan.levels, self.num_bits, out, at + 1)
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
        levels, at = self._read_levels(buffer, at, end, count)
        numbers = levels.astype(np.float32)
        numbers *= scales.repeat(self.bucket)[:count] if self.bucket else scales
        values = spread(numbers, positions, width)
        del numbers  # early, because others decide how much memory this takes
        return values, Quantized(spread(levels, positions, width), torch.from_numpy(scales[None]), self.bucket), at

    def _read_levels(self, buffer: Bytes, at: int, end: int, count: int) -> tuple[Levels, int]:
        if at < end and buffer[at] == ADAPTIVE:
            levels = np.empty(count, np.int16)
            behind = read_levels(buffer, at + 1, end, self.num_bits, levels)
            if behind > end:
                raise WireError("The quantized values of a part are damaged.")
            return levels, behind
        coded, at = read_tag(buffer, at, end)
        if coded:
            symbols, at = read_symbols(buffer, at, end, -(-count // (8 // self.num_bits)))
            levels, fit = _levels(symbols, 8 // self.num_bits, self.num_bits, count)
            if not fit:
                raise WireError("The quantized values of a part are damaged.")
            return levels, at
        behind = at + (count * self.num_bits + 7) // 8
        if behind > end:
            raise values_end()
        if self.num_bits == 8:
            return _levels(buffer[at:behind], 1, 8, count)[0], behind
        bits = np.unpackbits(buffer[at:behind], count=count * self.num_bits, bitorder="little")
        digits = np.packbits(bits.reshape(count, self.num_bits), axis=1, bitorder="little").ravel()
        return _levels(digits, 1, self.num_bits, count)[0], behind

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


@njit(cache=True)
def _digits(levels: Levels, num_bits: int) -> tuple[Bytes, bool]:
    """Levels counted from 0 on, and whether none has more bits."""
    digits, top, num_bad = np.empty(levels.size, np.uint8), 1 << (num_bits - 1), 0
    for i in range(levels.size):
        level = i64(levels[i])
        digits[i] = (level + 1) >> 1 if num_bits == 1 else level + top
        num_bad += (level != 1) & (level != -1) if num_bits == 1 else (level < -top) | (level >= top)
    return digits, num_bad == 0


@njit(cache=True)
def _grouped(digits: Bytes, num_bits: int) -> Bytes:
    """Several digits per symbol, as many as it holds; zeros fill the last one."""
    group = 8 // num_bits
    symbols = np.empty((digits.size + group - 1) // group, np.uint8)
    for i in range(symbols.size):
        symbol, first = 0, i * group
        for j in range(min(group, digits.size - first)):
            symbol |= i64(digits[first + j]) << (j * num_bits)
        symbols[i] = symbol
    return symbols


@njit(cache=True)
def _levels(symbols: Bytes, group: int, num_bits: int, count: int) -> tuple[Levels, bool]:
    """The levels whose digits are in these symbols, so many in each, and whether there is nothing above them."""
    levels, top, fit = np.empty(count, np.int16), 1 << (num_bits - 1), True
    for i in range(symbols.size):
        symbol, first = i64(symbols[i]), i * group
        for j in range(min(group, count - first)):
            digit = symbol & (2 * top - 1)
            levels[first + j] = 2 * digit - 1 if num_bits == 1 else digit - top
            symbol >>= num_bits
        fit &= symbol == 0
    return levels, fit
