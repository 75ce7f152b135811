"""The layers in eight bits. Each is torch's own, or ours, with another `forward`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from gossamer.models.low_precision import products
from gossamer.models.low_precision.rounding import (
    Quantized,
    dequantize,
    quantize_activations,
    quantize_gradients,
    quantize_weights,
    rounded_activations,
    rounded_gradients,
    rounded_weights,
    times_scales,
)
from gossamer.models.norms import EvoNormS0, RangeBatchNorm, RangeEvoNorm
from gossamer.models.resnet import Sum

Formula = Callable[..., Tensor]  # of the input and the parameters


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: products.ConvSettings) -> Tensor:
        numbers, levels = quantize_activations(x)
        whole, scale = quantize_weights(weight)
        ctx.save_for_backward(*levels, whole, scale)
        ctx.settings = settings
        if products.int_convolution_pays(whole, settings):
            sums = products.int_convolution(levels, whole, settings)
        else:
            sums = products.convolution(numbers, whole, settings).contiguous()
        return times_scales(sums, levels.scales * scale, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *levels, whole, scale = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        grad_x, grad_weight, grad_bias = None, None, None
        if ctx.needs_input_grad[1]:
            grad_weight = _weight_gradient(grad_output, dequantize(Quantized(*levels)), whole, ctx.settings)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.flatten(2).sum((0, 2))
        if ctx.needs_input_grad[0]:
            numbers, scales = quantize_gradients(grad_output)
            grad_x = products.convolution_backward(numbers, whole, levels[0].shape, ctx.settings)
            grad_x = times_scales(grad_x.contiguous(), scales * scale)
        return grad_x, grad_weight, grad_bias, None


def _weight_gradient(grad_output: Tensor, x: Tensor, weight: Tensor, settings: products.ConvSettings) -> Tensor:
    none = [0] * len(settings.stride)
    mask = [False, True, False]
    result: Tensor = torch.ops.aten.convolution_backward(
        grad_output, x, weight, None, *settings[:3], False, none, settings.groups, mask
    )[1]
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        numbers, levels = quantize_activations(x)
        whole, scale = quantize_weights(weight)
        ctx.save_for_backward(*levels, whole, scale)
        rows = numbers.flatten(0, -2)
        in_integers = products.int_linear_pays(len(rows), whole)
        sums = products.int_linear(levels, whole) if in_integers else products.linear(rows, whole)
        out = times_scales(sums.view(*x.shape[:-1], -1), levels.scales * scale)
        return out if bias is None else out.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *levels, whole, scale = ctx.saved_tensors
        rows = grad_output.reshape(-1, grad_output.shape[-1])
        grad_x, grad_weight, grad_bias = None, None, None
        if ctx.needs_input_grad[1]:
            grad_weight = rows.T @ dequantize(Quantized(*levels)).flatten(0, -2)
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        if ctx.needs_input_grad[0]:
            numbers, scales = quantize_gradients(grad_output)
            grad_x = products.linear_backward(numbers.flatten(0, -2), whole).view(levels[0].shape)
            grad_x = times_scales(grad_x, scales * scale)
        return grad_x, grad_weight, grad_bias


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, indices: Tensor, weight: Tensor, padding: int, by_frequency: bool) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.settings = (len(weight), padding, by_frequency)  # type: ignore[attr-defined]
        return rounded_weights(weight)[indices]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (indices,) = ctx.saved_tensors
        grad_weight = torch.ops.aten.embedding_dense_backward(grad_output, indices, *ctx.settings)
        return None, grad_weight, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        return rounded_activations(a)[0].add_(rounded_activations(b)[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        rounded = rounded_gradients(grad_output)
        return rounded, rounded


class Int8Conv(nn.modules.conv._ConvNd):
    """A convolution of one, two or three dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        whole = x if x.ndim == self.weight.ndim else x[None]  # torch takes a single sample as well
        settings, padded = self.settings(whole)
        out: Tensor = _Convolution.apply(padded, self.weight, self.bias, settings)  # type: ignore[no-untyped-call]
        return out if whole is x else out[0]

    def settings(self, x: Tensor) -> tuple[products.ConvSettings, Tensor]:
        """The convolution as a plain one, and its input, padded if a plain one could not do it."""
        both = self._reversed_padding_repeated_twice  # of the last axis first, on either side
        lefts, rights = both[-2::-2], both[::-2]
        if self.padding_mode != "zeros" or lefts != rights:
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x, lefts = functional.pad(x, both, mode), [0] * len(lefts)
        return products.ConvSettings(list(self.stride), list(lefts), list(self.dilation), self.groups), x


class Int8Conv1d(Int8Conv, nn.Conv1d):
    pass


class Int8Conv2d(Int8Conv, nn.Conv2d):
    pass


class Int8Conv3d(Int8Conv, nn.Conv3d):
    pass


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


# Normalization: input, parameters and grad_output are rounded; each layer's formula is the one it has in float. The
# gradient by the parameters is taken with grad_output before rounding, that by the input after it. The backward pass
# computes the formula once more from the levels, rather than keep floats.


class _Rounded(torch.autograd.Function):
    """formula(x, *parameters), with everything that goes in and comes back rounded."""

    @staticmethod
    def forward(ctx: Any, formula: Formula, x: Tensor, *parameters: Tensor) -> Tensor:
        x, levels = rounded_activations(x)
        coarse = [rounded_weights(parameter) for parameter in parameters]
        ctx.save_for_backward(*levels, *coarse)
        ctx.formula = formula
        return formula(x, *coarse)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x = dequantize(Quantized(*ctx.saved_tensors[:3])).requires_grad_()
        parameters = [parameter.detach().requires_grad_() for parameter in ctx.saved_tensors[3:]]
        with torch.enable_grad():
            out = ctx.formula(x, *parameters)
        grad_parameters = torch.autograd.grad(out, parameters, grad_output, retain_graph=True) if parameters else ()
        grad_x = torch.autograd.grad(out, x, rounded_gradients(grad_output))[0] if ctx.needs_input_grad[1] else None
        return None, grad_x, *grad_parameters


class Int8EvoNormS0(EvoNormS0):
    def forward(self, x: Tensor) -> Tensor:
        return _rounded(self.formula, x, self.weight, self.bias, self.v)


class Int8RangeEvoNorm(RangeEvoNorm):
    def forward(self, x: Tensor) -> Tensor:
        return _rounded(self.formula, x, self.weight, self.bias, self.v)


class Int8RangeBatchNorm(RangeBatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.track(rounded_activations(x)[0])
        return _rounded(self.formula, x, self.weight, self.bias)


class Int8GroupNorm(nn.GroupNorm):
    def forward(self, x: Tensor) -> Tensor:
        return _rounded(self._formula, x, *_given(self.weight, self.bias))

    def _formula(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return functional.group_norm(x, self.num_groups, weight, bias, self.eps)


class Int8LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return _rounded(self._formula, x, *_given(self.weight, self.bias))

    def _formula(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


def _given(*parameters: Tensor | None) -> list[Tensor]:
    return [parameter for parameter in parameters if parameter is not None]


def _rounded(formula: Formula, x: Tensor, *parameters: Tensor) -> Tensor:
    out: Tensor = _Rounded.apply(formula, x, *parameters)  # type: ignore[no-untyped-call]
    return out
