"""Convolution, linear, embedding and sum in eight bits. Each is torch's own layer with another `forward`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from gossamer.models.low_precision import integer, products
from gossamer.models.low_precision.rounding import (
    Levels,
    of_activations,
    of_gradients,
    of_weights,
    rounded_activations,
    rounded_gradients,
    rounded_weights,
    times_scales,
    values,
)
from gossamer.models.resnet import Sum


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: products.Timeouts) -> Tensor:
        numbers, levels = of_activations(x)
        whole, scale = of_weights(weight)
        ctx.save_for_backward(*levels, whole, scale)
        ctx.settings = settings
        if integer.convolution_pays(whole, settings):
            sums = integer.convolution(levels, whole, settings)
        else:
            sums = products.convolution(numbers, whole, settings).contiguous()
        return times_scales(sums, levels.scales * scale, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *levels, whole, scale = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_x, of_weight, of_bias = None, None, None
        if ctx.needs_input_grad[1]:
            of_weight = _weight_gradient(gradient, values(Levels(*levels)), whole, ctx.settings)
        if ctx.needs_input_grad[2]:
            of_bias = gradient.flatten(2).sum((0, 2))
        if ctx.needs_input_grad[0]:
            numbers, scales = of_gradients(gradient)
            back = products.convolution_back(numbers, whole, levels[0].shape, ctx.settings)
            of_x = times_scales(back.contiguous(), scales * scale)
        return of_x, of_weight, of_bias, None


def _weight_gradient(gradient: Tensor, x: Tensor, weight: Tensor, settings: products.Timeouts) -> Tensor:
    none = [0] * len(settings.stride)
    mask = [False, True, False]
    found: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, *settings[:3], False, none, settings.groups, mask
    )[1]
    return found


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        numbers, levels = of_activations(x)
        whole, scale = of_weights(weight)
        ctx.save_for_backward(*levels, whole, scale)
        rows = numbers.flatten(0, -2)
        sums = integer.linear(levels, whole) if integer.linear_pays(len(rows), whole) else products.linear(rows, whole)
        out = times_scales(sums.view(*x.shape[:-1], -1), levels.scales * scale)
        return out if bias is None else out.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *levels, whole, scale = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_x, of_weight, of_bias = None, None, None
        if ctx.needs_input_grad[1]:
            of_weight = rows.T @ values(Levels(*levels)).flatten(0, -2)
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        if ctx.needs_input_grad[0]:
            numbers, scales = of_gradients(gradient)
            back = products.linear_back(numbers.flatten(0, -2), whole).view(levels[0].shape)
            of_x = times_scales(back, scales * scale)
        return of_x, of_weight, of_bias


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, indices: Tensor, weight: Tensor, padding: int, by_frequency: bool) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.settings = (len(weight), padding, by_frequency)  # type: ignore[attr-defined]
        return rounded_weights(weight)[indices]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (indices,) = ctx.saved_tensors
        of_weight = torch.ops.aten.embedding_dense_backward(gradient, indices, *ctx.settings)
        return None, of_weight, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        return rounded_activations(a)[0].add_(rounded_activations(b)[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rounded = rounded_gradients(gradient)
        return rounded, rounded


class Int8Conv(nn.modules.conv._ConvNd):
    """A convolution of one, two or three dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        whole = x if x.ndim == self.weight.ndim else x[None]  # torch takes a single sample as well
        settings, padded = self.settings(whole)
        out: Tensor = _Convolution.apply(padded, self.weight, self.bias, settings)  # type: ignore[no-untyped-call]
        return out if whole is x else out[0]

    def settings(self, x: Tensor) -> tuple[products.Timeouts, Tensor]:
        """The convolution as a plain one, and its input, padded if a plain one could not do it."""
        both = self._reversed_padding_repeated_twice  # of the last axis first, on either side
        lefts, rights = both[-2::-2], both[::-2]
        if self.padding_mode != "zeros" or lefts != rights:
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x, lefts = functional.pad(x, both, mode), [0] * len(lefts)
        return products.Timeouts(list(self.stride), list(lefts), list(self.dilation), self.groups), x


class Int8Linear(nn.Linear):
    """A linear layer; axis 0 of its input counts samples, the last is summed over."""

    def forward(self, x: Tensor) -> Tensor:
        whole = x if x.ndim > 1 else x[None]
        out: Tensor = _Linear.apply(whole, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out if whole is x else out[0]


class Int8Embedding(nn.Embedding):
    """A table of vectors, one scale for all of it."""

    def forward(self, indices: Tensor) -> Tensor:
        padding = -1 if self.padding_idx is None else self.padding_idx
        out: Tensor = _Embedding.apply(indices, self.weight, padding, self.scale_grad_by_freq)  # type: ignore[no-untyped-call]
        return out


class Int8Sum(Sum):
    """What a residual network adds, each of the two in eight bits."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        out: Tensor = _Sum.apply(a, b)  # type: ignore[no-untyped-call]
        return out
