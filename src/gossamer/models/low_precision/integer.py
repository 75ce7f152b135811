"""Sums of products in integers: int8 times int8, added in int32. The same numbers as in `products`, to the last bit.

sum (level - zero) * weight = sum (level - 128) * weight - (zero - 128) * sum weight, all of it in int32, which holds
over 60,000 such products.

Torch has an integer matrix product but no integer convolution, so that what lies under the kernel is gathered into rows
first. That pays only if there are many outputs to use it for: see `benchmarks/low_precision.py`.
"""

from functools import cache

import torch
from torch import Tensor

from gossamer.models.low_precision.products import ACTIVATION, WEIGHT, Timeouts
from gossamer.models.low_precision.rounding import Levels

_MOST = 2**31 // (ACTIVATION * WEIGHT)  # products that an int32 holds, whatever they are


def linear_pays(num_rows: int, weight: Tensor) -> bool:
    """Are integers faster than floats, for so many rows and weights (outputs, inputs)?"""
    return fits(weight) and num_rows >= 16 and num_rows * weight.numel() >= 2**26 and _has_instructions()


def convolution_pays(weight: Tensor, settings: Timeouts) -> bool:
    """Are integers faster than floats, for weights (outputs, channels, ...) of a convolution?"""
    flat = len(settings.stride) == 2
    return flat and fits(weight) and len(weight) // settings.groups >= 512 and _has_instructions()


def fits(weight: Tensor) -> bool:
    """Do the sums fit in an int32?"""
    return weight[0].numel() < _MOST


def linear(found: Levels, weight: Tensor) -> Tensor:
    """Of levels (samples, ..., inputs) with whole weights (outputs, inputs): rows of sums, as floats."""
    rows = signed(found.levels).flatten(0, -2)
    zeros = signed(found.zeros).repeat_interleave(len(rows) // max(1, len(found.zeros)))
    return _products(rows, zeros, weight).float()


def convolution(found: Levels, weight: Tensor, settings: Timeouts) -> Tensor:
    """Of images (samples, channels, height, width) with whole weights (outputs, channels, height, width)."""
    windows = _windows(found, weight.shape[2:], settings)  # samples, rows, columns, channels, kernel
    samples, height, width, channels = windows.shape[:4]
    zeros = signed(found.zeros).repeat_interleave(height * width)
    groups = torch.split(windows, channels // settings.groups, 3)
    parts = [
        _products(group.reshape(samples * height * width, -1), zeros, each.flatten(1))
        for group, each in zip(groups, weight.chunk(settings.groups), strict=True)
    ]
    sums = torch.cat(parts, 1).view(samples, height, width, len(weight))
    return sums.permute(0, 3, 1, 2).contiguous().float()


def signed(levels: Tensor) -> Tensor:
    """0 .. 255 as -128 .. 127."""
    return (levels ^ 128).view(torch.int8)


def _windows(found: Levels, kernel: torch.Size, settings: Timeouts) -> Tensor:
    """What lies under the kernel at each of its places; around the image lies zero, which has a level too."""
    _, channels, height, width = found.levels.shape
    (top, left), (down, right), (dilate_down, dilate_right) = settings.padding, settings.stride, settings.dilation
    padded = signed(found.zeros).view(-1, 1, 1, 1).repeat(1, channels, height + 2 * top, width + 2 * left)
    padded[:, :, top : top + height, left : left + width] = signed(found.levels)
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
