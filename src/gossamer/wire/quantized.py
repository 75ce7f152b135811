"""Quantized numbers as bytes: integers of 1 to 8 bits and the scales that they are multiples of.

First the scales: one float32 if a row has one, else the floats of the buckets as `FloatCoder` writes them. Then a tag
and the integers, raw or Huffman-coded.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Part, Quantized
from gossamer.wire.frame import WireError
from gossamer.wire.kernels import levels as kernels
from gossamer.wire.kernels.bits import Bytes, Positions, Words, all_ones
from gossamer.wire.kernels.floats import ENDS
from gossamer.wire.values import (
    NOTHING_CODED,
    WHY,
    FloatCoder,
    Numbers,
    Rows,
    ValuePlan,
    array_of,
    check,
    spread,
    write_bytes,
)


class LevelCoder:
    """Integers of `num_bits` bits: -1 and 1 for one bit, else -2^(b-1) .. 2^(b-1) - 1."""

    def __init__(self, num_bits: int, bucket: int):
        self.num_bits = num_bits
        self.bucket = bucket
        self.group = 8 // num_bits  # integers a symbol
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

    def plan(self, rows: Rows, row: int, mask: Words, count: int) -> ValuePlan:
        assert rows.scales is not None
        num_scales = self._num_scales(count)
        scales = rows.scales[row, :num_scales]
        if scales.size < num_scales or not np.isfinite(scales).all():
            raise ValueError(f"{count} integers need {num_scales} finite scales")
        levels = rows.numbers[row]
        coded_bytes, found, counts, lengths, fits = kernels.plan_levels(levels, mask, self.num_bits, count)
        if not fits:
            raise ValueError(f"the levels of a part do not fit in int{self.num_bits}")
        scale_plan = self._plan_scales(scales)
        raw_bytes = (count * self.num_bits + 7) // 8
        num_bytes = scale_plan.num_bytes + min(coded_bytes, raw_bytes)
        num_tags, coded = 1 + scale_plan.num_tags, coded_bytes < raw_bytes
        return ValuePlan(num_tags, num_bytes, coded, levels, found, counts, lengths, scale_plan)

    def _plan_scales(self, scales: Numbers) -> ValuePlan:
        words = scales.view(np.uint32)
        if not self.bucket:  # a single one has no tag
            return ValuePlan(0, 4, False, words, *NOTHING_CODED)
        return self.scales.plan(Rows(words[None]), 0, all_ones(words.size), words.size)

    def write(self, plan: ValuePlan, positions: Positions | None, out: Bytes, at: int) -> int:
        scales = plan.scales
        assert scales is not None
        at = self.scales.write(scales, None, out, at) if self.bucket else write_bytes(scales.numbers, out, at)
        coding = plan.counts, plan.lengths
        behind = kernels.write_levels(plan.symbols, plan.coded, self.num_bits, *coding, out, at)
        return behind if plan.coded else behind + plan.num_bytes - scales.num_bytes

    def read(
        self, buffer: Bytes, at: int, end: int, positions: Positions | None, width: int
    ) -> tuple[Tensor, Quantized, int]:
        count = width if positions is None else positions.size
        scales, at = self._read_scales(buffer, at, end, count)
        levels, behind = kernels.read_levels(buffer, at, end, self.num_bits, count)
        check(behind, buffer, at)
        numbers = np.empty(count, np.float32)
        kernels.scale_levels(levels, scales, self.bucket or max(count, 1), numbers)
        quantized = Quantized(spread(levels, positions, width), torch.from_numpy(scales[None]), self.bucket)
        return spread(numbers, positions, width), quantized, behind

    def _read_scales(self, buffer: Bytes, at: int, end: int, count: int) -> tuple[NDArray[np.float32], int]:
        if self.bucket:
            row, at = self.scales.read_row(buffer, at, end, None, self._num_scales(count))
            scales = row[0]
        else:
            if at + 4 > end:
                raise WireError(WHY[ENDS])
            scales, at = buffer[at : at + 4].copy().view(np.float32), at + 4
        if not np.isfinite(scales).all():
            raise WireError("A scale of a part is not a finite number.")
        return scales, at

    def _num_scales(self, count: int) -> int:
        return -(-count // self.bucket) if self.bucket else 1
