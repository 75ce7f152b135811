"""Coarser entries: fewer bits each.

Whole numbers travel with the scale of their bucket, a run of consecutive sent entries: value = level * scale, one
product in float32, which the decoder does again. A bucket of zeros has scale 0.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.compressors.base import Compressor, Kind
from gossamer.compressors.sparsifiers import count
from gossamer.core import Part, PartSpec, Quantized, Round, sparse_part
from gossamer.core.kernels import njit
from gossamer.core.rng import Streams
from gossamer.core.settings import check_types

LARGEST, LENGTH, MEAN = 0, 1, 2  # of a bucket: the largest |x|, the l2 norm, the mean |x|
SETTLING = 10  # so many times more entries does a dead zone keep in rounds that settle

Rows = NDArray[np.float32]
Marks = NDArray[np.bool_]
Levels = NDArray[np.int16]
Words = NDArray[np.uint64]


@njit(cache=True)
def _size(held: float, num_held: int, norm: int) -> float:
    if norm == LENGTH:
        return float(np.sqrt(held))
    return held / num_held if norm == MEAN else held


@njit(cache=True)
def measure(rows: Rows, sent: Marks, bucket: int, norm: int, top: int, scales: Rows) -> None:
    """The scale of each bucket: its size by the norm, over the `top` level. A NaN makes the scale NaN."""
    for r in range(rows.shape[0]):
        held, num_held, which = 0.0, 0, 0
        for c in range(rows.shape[1]):
            if not sent[r, c]:
                continue
            size = abs(np.float64(rows[r, c]))
            if norm == LARGEST:
                if size > held or np.isnan(size):
                    held = size
            else:
                held += size * size if norm == LENGTH else size
            num_held += 1
            if num_held == bucket:
                scales[r, which] = _size(held, num_held, norm) / top
                held, num_held, which = 0.0, 0, which + 1
        if num_held:
            scales[r, which] = _size(held, num_held, norm) / top


@njit(cache=True)
def to_levels(rows: Rows, sent: Marks, bucket: int, scales: Rows, top: int, words: Words, levels: Levels) -> None:
    """The sent entries in units of their scales, as whole numbers from -top to top.

    Rounded to the nearest (of two, the even one) if there are no words; else up or down at random, so that the mean is
    right. A row's k-th sent entry takes the k-th 32 bits of its words.
    """
    nearest = words.shape[1] == 0
    for r in range(rows.shape[0]):
        num_held, which, rank = 0, 0, 0
        for c in range(rows.shape[1]):
            if not sent[r, c]:
                continue
            scale = np.float64(scales[r, which])
            level = 0.0
            if scale > 0:
                if nearest:
                    level = np.rint(rows[r, c] / scale)
                else:
                    half = (words[r, rank >> 1] >> np.uint64(32 * (rank & 1))) & np.uint64(0xFFFFFFFF)
                    level = np.floor(rows[r, c] / scale + half * 2.0**-32)
            levels[r, c] = min(max(level, -top), top)  # the scale is rounded, so the largest may be a bit over the top
            rank += 1
            num_held += 1
            if num_held == bucket:
                num_held, which = 0, which + 1


@njit(cache=True)
def to_values(levels: Levels, sent: Marks, bucket: int, scales: Rows, values: Rows) -> None:
    """level * scale in float32 of the sent entries: what the decoder computes."""
    for r in range(levels.shape[0]):
        num_held, which = 0, 0
        for c in range(levels.shape[1]):
            if not sent[r, c]:
                continue
            values[r, c] = np.float32(levels[r, c]) * scales[r, which]
            num_held += 1
            if num_held == bucket:
                num_held, which = 0, which + 1


@njit(cache=True)
def to_dead_zone(rows: Rows, units: Rows, offset: float, top: int, levels: Levels, scales: Rows) -> None:
    """Levels in units of each row, and one scale per row: that unit, times the gain that makes the error of the levels
    that are not 0 least."""
    for r in range(rows.shape[0]):
        unit = np.float64(units[r, 0])
        if not unit > 0:
            continue
        product, length = 0.0, 0.0
        for c in range(rows.shape[1]):
            x = np.float64(rows[r, c])
            level = min(np.floor(abs(x) / unit + offset), np.float64(top))
            levels[r, c] = np.int16(level if x > 0 else -level)
            product += level * abs(x)
            length += level * level
        if length > 0:
            scales[r, 0] = product / length


@dataclass(frozen=True)
class BFloat16(Compressor):
    """Half the bytes: float32 cut to 8 significant bits, rounded to the nearest, of two to the even one."""

    kind = "contraction"
    spec = PartSpec(values="bfloat16")

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        short = x.to(torch.bfloat16).float()
        return Part(short) if sent is None else sparse_part(short, sent)

    def delta(self, width: int) -> float:
        """1 + 1/256 lies halfway between two of them. (Under 1e-38 they are sparser.)"""
        return 1 - 257**-2


@dataclass(frozen=True)
class Quantize(Compressor):
    """Whole numbers of a few bits, times the bucket's largest |x| over the largest of them.

    The uniform quantization of GEMMLOWP without its zero point: what is sent (changes, centred coefficients) lies
    around zero, and value = level * scale is then one float32 product, the same at every receiver, with an exact zero.
    """

    bits: int = 8
    bucket: int = 512  # sent entries that share a scale; 0: one scale per row
    stochastic: bool = False  # round up or down at random, right on average, instead of to the nearest

    def __post_init__(self) -> None:
        check_types(self)
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
class Qsgd(Compressor):
    """Random quantization of Alistarh et al., "QSGD", 2017: |x| in units of the bucket's norm / s, rounded at random.

    s = 2^(bits - 1) - 1, since a bit is the sign; one bit means s = 1 too, the signs and zero, which entropy coding
    brings near one bit. CHOCO's authors, and Sparse-Push's after them, do not count the sign: s = 2^bits - 1.
    """

    bits: int = 4
    bucket: int = 512  # sent entries that share a norm; 0: one norm per row
    norm: Literal["l2", "max"] = "l2"  # the paper's experiments take the largest |x|: less variance, fewer zeros
    count_sign: bool = True  # is the sign one of the bits?

    kind = "unbiased"

    def __post_init__(self) -> None:
        check_types(self)
        _check_bits(self.bits, 1, 8 if self.count_sign else 7)
        _check_bucket(self.bucket)
        if self.norm not in ("l2", "max"):
            raise ValueError(f'norm must be "l2" or "max", {self.norm!r} was given')

    @property
    def spec(self) -> PartSpec:
        return PartSpec(values=f"int{max(2, self._bits)}", bucket=self.bucket)

    @property
    def _bits(self) -> int:
        """With the sign."""
        return self.bits + (not self.count_sign)

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        return quantize(x, sent, self.bucket, LENGTH if self.norm == "l2" else LARGEST, _top(self._bits), round.rng)

    def omega(self, width: int) -> float:
        """For l2 within the paper's bound, min(n / s^2, sqrt(n) / s)."""
        n, s = _longest(self.bucket, width), _top(self._bits)
        if self.norm == "max":
            return _omega_of_largest(n, s)
        return n / (4 * s * s) if n <= 4 * s * s else math.sqrt(n) / s - 1


@dataclass(frozen=True)
class Scaled(Compressor):
    """An unbiased compressor, divided by 1 + omega: as near to the vector as nothing, or nearer.

    Koloskova et al., "Decentralized stochastic optimization and gossip algorithms with compressed communication", 2019:
    error feedback and replicas need a contraction, which QSGD of few bits is only so.
    """

    inner: Compressor  # qsgd, or quantize with stochastic

    kind = "contraction"

    def __post_init__(self) -> None:
        check_types(self)
        if self.inner.kind != "unbiased":
            raise ValueError(
                f"inner must be unbiased, such as qsgd, or quantize with stochastic; {self.inner} was given"
            )

    @property
    def spec(self) -> PartSpec:
        return self.inner.spec

    def choose(self, x: Tensor, round: Round) -> Tensor | None:
        return self.inner.choose(x, round)

    def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
        part, factor = self.inner.coarsen(x, sent, round), 1 + self.inner.omega(x.shape[-1])
        if part.quantized is None:
            return part._replace(values=part.values / factor)
        scales: Rows = (part.quantized.scales / factor).numpy()
        return _part(part.quantized.levels.numpy(), sent, _arrays(x, sent)[1], scales, part.quantized.bucket)

    def delta(self, width: int) -> float:
        return 1 / (1 + self.inner.omega(width))


@dataclass(frozen=True)
class Sign(Compressor):
    """One bit per entry: its sign, times the mean |x| of the bucket. Zeros count as positive."""

    bucket: int = 0  # sent entries that share a mean; 0: one mean per row

    kind = "contraction"

    def __post_init__(self) -> None:
        check_types(self)
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


@dataclass(frozen=True)
class DeadZone(Compressor):
    """The largest entries, in few levels: |x| in units in which all others round to 0.

    level = floor(|x| / unit + offset), so that with 0.35 what is under 0.65 units is not sent. The unit is such that
    this is so for all but the fraction `kept`; or such that the largest entry is level 127, if that is larger. What
    travels are the entries whose level is not 0. Rounds that settle keep more.
    """

    kept: float = 0.02  # fraction of the entries that is sent
    offset: float = 0.35  # 0.5: to the nearest level

    kind = "contraction"
    spec = PartSpec(sparse=True, values="int8")

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.kept <= 1:
            raise ValueError(f"kept must be above 0 and at most 1, {self.kept} was given")
        if not 0 <= self.offset <= 0.5:
            raise ValueError(f"offset must be from 0 to 0.5, {self.offset} was given")

    def __call__(self, x: Tensor, round: Round) -> Part:
        rows: Rows = x.contiguous().numpy()
        levels, scales = np.zeros(rows.shape, np.int16), np.zeros((len(rows), 1), np.float32)
        kept = min(1.0, SETTLING * self.kept) if round.settling else self.kept
        to_dead_zone(rows, self._units(rows, kept), self.offset, _top(8), levels, scales)
        sent = levels != 0
        return _part(levels, torch.from_numpy(sent), sent, scales, bucket=0)

    def _units(self, rows: Rows, kept: float) -> Rows:
        """(B, 1)."""
        sizes, smallest = np.abs(rows), rows.shape[1] - count(kept, rows.shape[1])
        sizes.partition(smallest, axis=1)
        least, largest = sizes[:, smallest : smallest + 1], sizes[:, smallest:].max(1, keepdims=True)
        least = least * (1 - 2**-20)  # or else rounding would leave out the last one
        units: Rows = np.maximum(least / (1 - self.offset), largest / (_top(8) + 0.5))
        return units

    def delta(self, width: int) -> float:
        """Of the largest entries at least kept |x|^2 is there. What is sent of it is a level times a unit by a factor
        from m = 1 - offset to M = 2 - offset, and with the best gain 4 m M / (m + M)^2 of its square arrives. What is
        left out for the largest one's sake is under m / 127 of that one, each."""
        num_kept, least, most = count(self.kept, width), 1 - self.offset, 2 - self.offset
        return 4 * least * most / (least + most) ** 2 * num_kept / width / (1 + num_kept * (least / _top(8)) ** 2)


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


def _check_bits(bits: int, least: int, most: int = 8) -> None:
    if not least <= bits <= most:
        raise ValueError(f"bits must be from {least} to {most}, {bits} was given")


def _check_bucket(bucket: int) -> None:
    if bucket < 0:
        raise ValueError(f"bucket must be at least 0, {bucket} was given")
