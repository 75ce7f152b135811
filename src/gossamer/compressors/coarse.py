"""Coarser entries: fewer bits each.

Whole numbers travel with the scale of their bucket, a run of consecutive sent entries: value = level * scale, one
product in float32, which the decoder does again. A bucket of zeros has scale 0.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gossamer.compressors.compression import Compression, Kind
from gossamer.core import Part, PartSpec, Quantized, Round, chosen
from gossamer.kernels.quantize import LARGEST, LENGTH, MEAN, Levels, Marks, Rows, measure, to_levels, to_values
from gossamer.rng import Streams


@dataclass(frozen=True)
class BFloat16(Compression):
    """Half the bytes: float32 cut to 8 significant bits, rounded to the nearest, of two to the even one."""

    kind = "contraction"
    spec = PartSpec(values="bfloat16")

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        short = x.to(torch.bfloat16).float()
        return Part(short) if sent is None else chosen(short, sent)

    def delta(self, width: int) -> float:
        """1 + 1/256 lies halfway between two of them. (Under 1e-38 they are sparser.)"""
        return 1 - 257**-2


@dataclass(frozen=True)
class Quantize(Compression):
    """Whole numbers of a few bits, times the bucket's largest |x| over the largest of them.

    The uniform quantization of GEMMLOWP without its zero point: what is sent (changes, centred coefficients) lies
    around zero, and value = level * scale is then one float32 product, the same at every receiver, with an exact zero.
    """

    bits: int = 8
    bucket: int = 512  # sent entries that share a scale; 0: one scale a row
    stochastic: bool = False  # round up or down at random, right on average, instead of to the nearest

    def __post_init__(self) -> None:
        _check_bits(self.bits, 2)
        _check_bucket(self.bucket)

    @property
    def kind(self) -> Kind:
        return "unbiased" if self.stochastic else "contraction"

    @property
    def spec(self) -> PartSpec:
        return PartSpec(values=f"int{self.bits}", bucket=self.bucket)

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        return quantize(x, sent, self.bucket, LARGEST, _top(self.bits), round.rng if self.stochastic else None)

    def delta(self, width: int) -> float:
        """Worst when all but the largest lie halfway between 0 and 1."""
        if self.stochastic:
            return 1 - self.omega(width)
        squares = 4 * _top(self.bits) ** 2
        return squares / (squares + _longest(self.bucket, width) - 1)

    def omega(self, width: int) -> float:
        return _omega_of_largest(_longest(self.bucket, width), _top(self.bits))


@dataclass(frozen=True)
class Qsgd(Compression):
    """Random quantization of Alistarh et al., "QSGD", 2017: |x| in units of the bucket's norm / s, rounded at random.

    s = 2^(bits - 1) - 1; one bit means s = 1 too, the signs and zero, which entropy coding brings near one bit.
    """

    bits: int = 4
    bucket: int = 512  # sent entries that share a norm; 0: one norm a row
    norm: Literal["l2", "max"] = "l2"  # the paper's experiments take the largest |x|: less variance, fewer zeros

    kind = "unbiased"

    def __post_init__(self) -> None:
        _check_bits(self.bits, 1)
        _check_bucket(self.bucket)
        if self.norm not in ("l2", "max"):
            raise ValueError(f'norm must be "l2" or "max", {self.norm!r} was given')

    @property
    def spec(self) -> PartSpec:
        return PartSpec(values=f"int{max(2, self.bits)}", bucket=self.bucket)

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        return quantize(x, sent, self.bucket, LENGTH if self.norm == "l2" else LARGEST, _top(self.bits), round.rng)

    def omega(self, width: int) -> float:
        """For l2 within the paper's bound, min(n / s^2, sqrt(n) / s)."""
        n, s = _longest(self.bucket, width), _top(self.bits)
        if self.norm == "max":
            return _omega_of_largest(n, s)
        return n / (4 * s * s) if n <= 4 * s * s else math.sqrt(n) / s - 1


@dataclass(frozen=True)
class Sign(Compression):
    """One bit an entry: its sign, times the mean |x| of the bucket. Zeros count as positive."""

    bucket: int = 0  # sent entries that share a mean; 0: one mean a row

    kind = "contraction"

    def __post_init__(self) -> None:
        _check_bucket(self.bucket)

    @property
    def spec(self) -> PartSpec:
        return PartSpec(values="int1", bucket=self.bucket)

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        rows, marks = _arrays(x, sent)
        scales = _scales(rows, marks, self.bucket, MEAN, top=1)
        levels = np.where(rows < 0, np.int16(-1), np.int16(1)) * marks
        return _part(levels, sent, marks, scales, self.bucket)

    def delta(self, width: int) -> float:
        """|x|_1^2 / (n |x|_2^2), which is least for a single entry among zeros."""
        return 1 / _longest(self.bucket, width)


def quantize(x: Tensor, sent: Tensor | None, bucket: int, norm: int, top: int, rng: Streams | None) -> Part:
    """Levels from -top to top, rounded at random if there are streams to draw from, else to the nearest."""
    rows, marks = _arrays(x, sent)
    scales = _scales(rows, marks, bucket, norm, top)
    levels = np.zeros(rows.shape, np.int16)
    num_sent = int(marks.sum(axis=-1).max(initial=0))  # a row that sends fewer leaves the last words alone
    words = np.empty((len(rows), 0), np.uint64) if rng is None else rng.raw("rounding", (num_sent + 1) // 2)
    to_levels(rows, marks, bucket or rows.shape[1], scales, top, words, levels)
    return _part(levels, sent, marks, scales, bucket)


def _arrays(x: Tensor, sent: Tensor | None) -> tuple[Rows, Marks]:
    rows: Rows = x.contiguous().numpy()
    return rows, np.ones(rows.shape, np.bool_) if sent is None else sent.contiguous().numpy()


def _scales(rows: Rows, marks: Marks, bucket: int, norm: int, top: int) -> Rows:
    """As many as a row needs that is sent whole, whatever the other rows send; those without entries are 0."""
    width = rows.shape[1]
    scales = np.zeros((len(rows), -(-width // bucket) if bucket else 1), np.float32)
    measure(rows, marks, bucket or width, norm, top, scales)
    return scales


def _part(levels: Levels, sent: Tensor | None, marks: Marks, scales: Rows, bucket: int) -> Part:
    values = np.zeros(levels.shape, np.float32)
    to_values(levels, marks, bucket or levels.shape[1], scales, values)
    return Part(torch.from_numpy(values), sent, Quantized(torch.from_numpy(levels), torch.from_numpy(scales), bucket))


def _top(bits: int) -> int:
    return max(1, (1 << (bits - 1)) - 1)


def _longest(bucket: int, width: int) -> int:
    """Entries of the longest bucket there can be."""
    return min(bucket, width) if bucket else width


def _omega_of_largest(n: int, s: int) -> float:
    """Worst when all but the largest are s / (s + sqrt(s^2 + n - 1)) of a level."""
    return (math.sqrt(1 + (n - 1) / s**2) - 1) / 2


def _check_bits(bits: int, least: int) -> None:
    if not least <= bits <= 8:
        raise ValueError(f"bits must be from {least} to 8, {bits} was given")


def _check_bucket(bucket: int) -> None:
    if bucket < 0:
        raise ValueError(f"bucket must be at least 0, {bucket} was given")
