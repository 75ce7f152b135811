"""Convolutions and linear layers of whole numbers, exact: in float32, or in int8 with sums in int32.

In floats. A product of an activation and a weight is a whole number up to 255 * 127, and float32 adds whole numbers
exactly, in any order, as long as they stay under 2^24. Whether they do is known from the weights alone: the largest sum
of |weight| over an output times 255. Where they might not, the sum is cut in two, each part exact, and put together in
float64. So floats give what integers would, to the last bit, whatever the library's order of summation.

In integers. sum (level - zero) * weight = sum (level - 128) * weight - (zero - 128) * sum weight, all of it in int32,
which holds over 60,000 such products. Torch has an integer matrix product but no integer convolution, so that what lies
under the kernel is gathered into rows first. That pays only for many outputs: see `benchmarks/low_precision.py`.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.models.low_precision.rounding import Quantized

ACTIVATION, WEIGHT, GRADIENT = 255, 127, 127  # the largest numbers
_EXACT = 2**24
_MOST = 2**31 // (ACTIVATION * WEIGHT)  # products that an int32 holds, whatever they are


class ConvSettings(NamedTuple):
    """The settings of a convolution, as torch has them."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


def convolution(x: Tensor, weight: Tensor, settings: ConvSettings) -> Tensor:
    """Of activations, whole numbers (samples, channels, ...), with whole weights (outputs, channels, ...)."""

    def product(x: Tensor, weight: Tensor) -> Tensor:
        return torch.convolution(x, weight, None, *settings[:3], False, [0] * len(settings.stride), settings.groups)

    return _in_parts(product, x, weight, 1, ACTIVATION, settings.groups == 1)


def convolution_backward(grad_output: Tensor, weight: Tensor, shape: torch.Size, settings: ConvSettings) -> Tensor:
    """The gradient by inputs of this shape, of a whole grad_output (samples, outputs, ...)."""

    def product(grad_output: Tensor, weight: Tensor) -> Tensor:
        inputs = grad_output.new_empty(shape)  # only its shape counts
        result: Tensor = torch.ops.aten.convolution_backward(
            grad_output, inputs, weight, None, *settings[:3], False, [0] * len(settings.stride), settings.groups,
            [True, False, False],
        )[0]  # fmt: skip
        return result

    return _in_parts(product, grad_output, weight, 0, GRADIENT, settings.groups == 1)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Of activations (rows, inputs) with weights (outputs, inputs)."""
    return _in_parts(lambda x, weight: x @ weight.T, x, weight, 1, ACTIVATION)


def linear_backward(grad_output: Tensor, weight: Tensor) -> Tensor:
    """The gradient by the inputs, of a whole grad_output (rows, outputs)."""
    return _in_parts(torch.mm, grad_output, weight, 0, GRADIENT)


def _in_parts(
    product: Callable[[Tensor, Tensor], Tensor],
    numbers: Tensor,
    weight: Tensor,
    axis: int,
    largest: int,
    divisible: bool = True,
) -> Tensor:
    """The product, summed along this axis of the weights and axis 1 of the numbers; in halves if it must be."""
    if _is_exact(weight, axis, largest):
        return product(numbers, weight)
    sums: list[Tensor] = []
    pairs = [(numbers, weight)]
    while pairs:
        part, each = pairs.pop()
        half = each.shape[axis] // 2
        if _is_exact(each, axis, largest):
            sums.append(product(part.contiguous(), each.contiguous()).double())
        elif half and divisible:
            pairs += zip(torch.split(part, half, 1), torch.split(each, half, axis), strict=True)
        else:
            sums.append(product(part.double(), each.double()))
    return sum(sums[1:], sums[0]).float()


def _is_exact(weight: Tensor, axis: int, largest: int) -> bool:
    """Do sums over this axis and all from the second on stay under 2^24 with numbers up to the largest?"""
    if weight.numel() // weight.shape[1 - axis] * WEIGHT * largest < _EXACT:
        return True
    over = [d for d in range(weight.ndim) if d != 1 - axis]
    return not weight.abs().sum(over).max().item() * largest >= _EXACT  # NaN: what is left is none either way


def int_linear_pays(num_rows: int, weight: Tensor) -> bool:
    """Are integers faster than floats, for so many rows and weights (outputs, inputs)?"""
    return _fits(weight) and num_rows >= 16 and num_rows * weight.numel() >= 2**26 and _has_instructions()


def int_convolution_pays(weight: Tensor, settings: ConvSettings) -> bool:
    """Are integers faster than floats, for weights (outputs, channels, ...) of a convolution?"""
    flat = len(settings.stride) == 2
    return flat and _fits(weight) and len(weight) // settings.groups >= 512 and _has_instructions()


def _fits(weight: Tensor) -> bool:
    """Do the sums fit in an int32?"""
    return weight[0].numel() < _MOST


def int_linear(x: Quantized, weight: Tensor) -> Tensor:
    """Of levels (samples, ..., inputs) with whole weights (outputs, inputs): rows of sums, as floats."""
    rows = _signed(x.levels).flatten(0, -2)
    zeros = _signed(x.zeros).repeat_interleave(len(rows) // max(1, len(x.zeros)))
    return _products(rows, zeros, weight).float()


def int_convolution(x: Quantized, weight: Tensor, settings: ConvSettings) -> Tensor:
    """Of images (samples, channels, height, width) with whole weights (outputs, channels, height, width)."""
    windows = _windows(x, weight.shape[2:], settings)  # samples, rows, columns, channels, kernel
    samples, height, width, channels = windows.shape[:4]
    zeros = _signed(x.zeros).repeat_interleave(height * width)
    groups = torch.split(windows, channels // settings.groups, 3)
    parts = [
        _products(group.reshape(samples * height * width, -1), zeros, each.flatten(1))
        for group, each in zip(groups, weight.chunk(settings.groups), strict=True)
    ]
    sums = torch.cat(parts, 1).view(samples, height, width, len(weight))
    return sums.permute(0, 3, 1, 2).contiguous().float()


def _signed(levels: Tensor) -> Tensor:
    """0 .. 255 as -128 .. 127."""
    return (levels ^ 128).view(torch.int8)


def _windows(x: Quantized, kernel: torch.Size, settings: ConvSettings) -> Tensor:
    """What lies under the kernel at each of its positions; images are padded with the level of zero."""
    _, channels, height, width = x.levels.shape
    (top, left), (down, right), (dilate_down, dilate_right) = settings.padding, settings.stride, settings.dilation
    padded = _signed(x.zeros).view(-1, 1, 1, 1).repeat(1, channels, height + 2 * top, width + 2 * left)
    padded[:, :, top : top + height, left : left + width] = _signed(x.levels)
    windows = padded.unfold(2, dilate_down * (kernel[0] - 1) + 1, down)
    windows = windows.unfold(3, dilate_right * (kernel[1] - 1) + 1, right)
    return windows[..., ::dilate_down, ::dilate_right].permute(0, 2, 3, 1, 4, 5)


def _products(rows: Tensor, zeros: Tensor, weight: Tensor) -> Tensor:
    """int32 (rows, outputs), of int8 (rows, inputs) with their zeros, and whole weights (outputs, inputs)."""
    small = weight.to(torch.int8)
    if _has_instructions() and rows.shape[1] > 1:  # torch 2.13 gets a single column wrong
        sums = torch._int_mm(rows, small.T.contiguous())
    else:
        sums = rows.int() @ small.T.int()
    return sums - zeros.int()[:, None] * small.sum(1, dtype=torch.int32)


@cache
def _has_instructions() -> bool:
    """Has the processor instructions for this? Without them torch's product saturates at 16 bits (pytorch#136746)."""
    return bool(torch.cpu._is_vnni_supported())
