"""Tensors to eight bits and back.

A kernel takes one row after the other: a row is a sample of a minibatch, or a whole tensor of weights. It reads a row
from memory once and then from the cache. Extremes are the same in whatever order they are taken, and everything else is
done entry by entry, so that a row's bits depend on the row alone, on any machine.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core.kernels import njit

Rows = NDArray[np.float32]
Levels = NDArray[np.uint8]

TINY = np.float32(1e-30)  # a range under this is taken for 0, lest 1 / scale overflow
_TOP = np.float32(255)
_SIDE = np.float32(127)
_ONE = np.float32(1)
_ZERO = np.float32(0)


@njit(cache=True)
def extremes(row: Rows) -> tuple[np.float32, np.float32]:
    """The least and the largest entry, 0 included; NaN if there is one.

    Bits of floats, as integers and turned round below 0, are in the order of the floats: and for the largest of
    integers there are instructions that take sixteen at once.
    """
    low, high = np.int32(0), np.int32(0)
    words = row.view(np.int32)
    for c in range(words.size):
        ordered = np.int32(words[c] ^ ((words[c] >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        low, high = min(low, ordered), max(high, ordered)
    both = np.empty(2, np.int32)
    both[0], both[1] = low ^ ((low >> np.int32(31)) & np.int32(0x7FFFFFFF)), high
    values = both.view(np.float32)
    return values[0], values[1]


@njit(cache=True)
def quantize_affine(rows: Rows, levels: Levels, scales: Rows, zeros: Levels, numbers: Rows) -> None:
    """x to scale * (level - zero), levels from 0 to 255: each row's own scale, and a level that is exactly 0.

    `numbers` gets level - zero, as floats.
    """
    for r in range(rows.shape[0]):
        low, high = extremes(rows[r])
        spread = high - low
        scale = spread / _TOP
        inverse = _ONE / scale if spread > TINY else (_ZERO if spread == spread else spread)
        zero = np.rint(-low * inverse)
        least, most = -zero, _TOP - zero
        scales[r] = scale
        zeros[r] = np.uint8(zero)
        row, out, level = rows[r], numbers[r], levels[r]
        for c in range(row.size):
            number = np.rint(row[c] * inverse)
            number = least if number < least else number  # NaN stays NaN
            number = most if number > most else number
            out[c] = number
            level[c] = np.uint8(np.int32(number + zero))


@njit(cache=True)
def dequantize_affine(levels: Levels, scales: Rows, zeros: Levels, values: Rows) -> None:
    """scale * (level - zero)."""
    for r in range(levels.shape[0]):
        scale, zero, row, out = scales[r], np.float32(zeros[r]), levels[r], values[r]
        for c in range(row.size):
            out[c] = scale * (np.float32(row[c]) - zero)


@njit(cache=True)
def quantize_symmetric(rows: Rows, scales: Rows, numbers: Rows) -> None:
    """x to scale * number, whole numbers from -127 to 127, the nearest; kept as floats."""
    for r in range(rows.shape[0]):
        low, high = extremes(rows[r])
        size = max(-low, high)
        scales[r] = size / _SIDE
        inverse = _SIDE / size if size > TINY else (_ZERO if size == size else size)
        row, out = rows[r], numbers[r]
        for c in range(row.size):
            number = np.rint(row[c] * inverse)
            number = -_SIDE if number < -_SIDE else number
            out[c] = _SIDE if number > _SIDE else number


@njit(cache=True)
def quantize_stochastic(rows: Rows, key: np.uint32, scales: Rows, numbers: Rows) -> None:
    """As `quantize_symmetric`, but rounded up or down at random, so that the mean is right.

    Entry c of row r is rounded by a hash of the key, r and c, which is far cheaper than a generator's next number.
    """
    for r in range(rows.shape[0]):
        low, high = extremes(rows[r])
        size = max(-low, high)
        scales[r] = size / _SIDE
        inverse = _SIDE / size if size > TINY else (_ZERO if size == size else size)
        start = hash32(key ^ np.uint32((r + 1) * 0x9E3779B9 & 0xFFFFFFFF))
        row, out = rows[r], numbers[r]
        for c in range(row.size):
            word = hash32(start + np.uint32(c))
            chance = np.float32(word >> np.uint32(8)) * np.float32(2.0**-24)
            number = np.floor(row[c] * inverse + chance)
            number = -_SIDE if number < -_SIDE else number
            out[c] = _SIDE if number > _SIDE else number


@njit(cache=True)
def hash32(word: np.uint32) -> np.uint32:
    """32 bits that look random, each from all bits of the word: multiplications by odd numbers, and shifts."""
    word = np.uint32((word ^ (word >> np.uint32(16))) * np.uint32(0x7FEB352D))
    word = np.uint32((word ^ (word >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(word ^ (word >> np.uint32(16)))


@njit(cache=True)
def rescale(sums: Rows, scales: Rows, bias: Rows) -> None:
    """sums (rows, channels, pixels) times the row's scale, plus the channel's bias, in place."""
    for r in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            scale, shift, line = scales[r], bias[k], sums[r, k]
            for c in range(line.size):
                line[c] = line[c] * scale + shift


class Quantized(NamedTuple):
    """Activations in eight bits: scale * (level - zero), with a scale and a zero for each sample."""

    levels: Tensor  # uint8, of the activations' shape
    scales: Tensor  # (samples,)
    zeros: Tensor  # uint8 (samples,)


def quantize_activations(x: Tensor) -> tuple[Tensor, Quantized]:
    """level - zero, whole numbers from -255 to 255 kept as floats; and what the backward pass needs of it."""
    x = _float(x)
    numbers, quantized = torch.empty_like(x), Quantized(*_empty(x))
    rows = (len(x), x[:1].numel())
    quantize_affine(
        x.numpy().reshape(rows),
        quantized.levels.numpy().reshape(rows),
        quantized.scales.numpy(),
        quantized.zeros.numpy(),
        numbers.numpy().reshape(rows),
    )
    return numbers, quantized


def quantize_weights(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, kept as floats, and their one scale (1,)."""
    weight = _float(weight)
    numbers, scale = torch.empty_like(weight), torch.empty(1)
    quantize_symmetric(weight.numpy().reshape(1, -1), scale.numpy(), numbers.numpy().reshape(1, -1))
    return numbers, scale


def quantize_gradients(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, kept as floats, rounded at random, and each sample's scale (samples,)."""
    gradient = _float(gradient)
    numbers, scales = torch.empty_like(gradient), torch.empty(len(gradient))
    key = np.uint32(torch.randint(2**32, ()).item())
    rows = (len(gradient), gradient[:1].numel())
    quantize_stochastic(gradient.numpy().reshape(rows), key, scales.numpy(), numbers.numpy().reshape(rows))
    return numbers, scales


def dequantize(quantized: Quantized) -> Tensor:
    """What the levels stand for."""
    out = torch.empty(quantized.levels.shape)
    rows = (len(out), out[:1].numel())
    dequantize_affine(
        quantized.levels.numpy().reshape(rows),
        quantized.scales.numpy(),
        quantized.zeros.numpy(),
        out.numpy().reshape(rows),
    )
    return out


def rounded_activations(x: Tensor) -> tuple[Tensor, Quantized]:
    """The activations as they are in eight bits, and those bits."""
    numbers, quantized = quantize_activations(x)
    return times_scales(numbers, quantized.scales), quantized


def rounded_weights(weight: Tensor) -> Tensor:
    numbers, scale = quantize_weights(weight)
    return times_scales(numbers.view(1, -1), scale).view_as(weight)


def rounded_gradients(gradient: Tensor) -> Tensor:
    return times_scales(*quantize_gradients(gradient))


def times_scales(sums: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """sums (samples, channels, ...) times each sample's scale, plus each channel's bias; in place."""
    shape = (len(sums), 1 if bias is None else len(bias), -1 if len(sums) else 0)
    shift = np.zeros(1, np.float32) if bias is None else bias.detach().numpy()
    rescale(sums.numpy().reshape(shape), scales.numpy(), shift)
    return sums


def _float(x: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        raise ValueError(f"eight-bit layers take float32, {x.dtype} was given; call .float()")
    return x.detach().contiguous()


def _empty(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    levels = torch.empty(x.shape, dtype=torch.uint8)
    return levels, torch.empty(len(x)), torch.empty(len(x), dtype=torch.uint8)
