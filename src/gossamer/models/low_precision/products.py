"""Sums of products of whole numbers that are kept as floats, exact in float32.

A product of an activation and a weight is a whole number up to 255 * 127, and float32 adds whole numbers exactly, in
any order, as long as they stay under 2^24. Whether they do is known from the weights alone: the largest sum of |weight|
over an output times 255. Where they might not, the sum is cut in two, each part exact, and put together in float64. So
the float convolution gives what integer arithmetic would, to the last bit, whatever the library's order of summation.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

ACTIVATION, WEIGHT, GRADIENT = 255, 127, 127  # the largest numbers
_EXACT = 2**24


class Timeouts(NamedTuple):
    """Of a convolution, as torch has them."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


def convolution(x: Tensor, weight: Tensor, settings: Timeouts) -> Tensor:
    """Of activations, whole numbers (samples, channels, ...), with whole weights (outputs, channels, ...)."""

    def product(x: Tensor, weight: Tensor) -> Tensor:
        return torch.convolution(x, weight, None, *settings[:3], False, [0] * len(settings.stride), settings.groups)

    return _in_parts(product, x, weight, 1, ACTIVATION, settings.groups == 1)


def convolution_back(gradient: Tensor, weight: Tensor, shape: torch.Size, settings: Timeouts) -> Tensor:
    """What whole gradients of the outputs (samples, outputs, ...) mean for inputs of this shape."""

    def product(gradient: Tensor, weight: Tensor) -> Tensor:
        inputs = gradient.new_empty(shape)  # only its shape counts
        found: Tensor = torch.ops.aten.convolution_backward(
            gradient, inputs, weight, None, *settings[:3], False, [0] * len(settings.stride), settings.groups,
            [True, False, False],
        )[0]  # fmt: skip
        return found

    return _in_parts(product, gradient, weight, 0, GRADIENT, settings.groups == 1)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Of activations (rows, inputs) with weights (outputs, inputs)."""
    return _in_parts(lambda x, weight: x @ weight.T, x, weight, 1, ACTIVATION)


def linear_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """What gradients (rows, outputs) mean for the inputs."""
    return _in_parts(torch.mm, gradient, weight, 0, GRADIENT)


def _in_parts(
    product: Callable[[Tensor, Tensor], Tensor],
    numbers: Tensor,
    weight: Tensor,
    axis: int,
    largest: int,
    divisible: bool = True,
) -> Tensor:
    """The product, summed along this axis of the weights and axis 1 of the numbers; in halves if it must be."""
    if is_exact(weight, axis, largest):
        return product(numbers, weight)
    sums: list[Tensor] = []
    pairs = [(numbers, weight)]
    while pairs:
        part, each = pairs.pop()
        half = each.shape[axis] // 2
        if is_exact(each, axis, largest):
            sums.append(product(part.contiguous(), each.contiguous()).double())
        elif half and divisible:
            pairs += zip(torch.split(part, half, 1), torch.split(each, half, axis), strict=True)
        else:
            sums.append(product(part.double(), each.double()))
    return sum(sums[1:], sums[0]).float()


def is_exact(weight: Tensor, axis: int, largest: int) -> bool:
    """Do sums over this axis and all from the second on stay under 2^24 with numbers up to the largest?"""
    if weight.numel() // weight.shape[1 - axis] * WEIGHT * largest < _EXACT:
        return True
    over = [d for d in range(weight.ndim) if d != 1 - axis]
    return not weight.abs().sum(over).max().item() * largest >= _EXACT  # NaN: what is left is none either way
