"""Normalization in eight bits: input, parameters and the gradient that comes back are rounded, each layer's formula is
the one it has in float.

The gradient of the parameters is taken with what came back, that of the input with what is left of it in eight bits.
Backwards the formula is computed once more from the levels, rather than remembered in floats.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gossamer.models.low_precision.rounding import (
    Levels,
    rounded_activations,
    rounded_gradients,
    rounded_weights,
    values,
)
from gossamer.models.norms import EvoNormS0, RangeBatchNorm, RangeEvoNorm

Formula = Callable[..., Tensor]  # of the input and the parameters


class Rounded(torch.autograd.Function):
    """formula(x, *parameters), with everything that goes in and back rounded."""

    @staticmethod
    def forward(ctx: Any, formula: Formula, x: Tensor, *parameters: Tensor) -> Tensor:
        x, levels = rounded_activations(x)
        coarse = [rounded_weights(parameter) for parameter in parameters]
        ctx.save_for_backward(*levels, *coarse)
        ctx.formula = formula
        return formula(x, *coarse)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x = values(Levels(*ctx.saved_tensors[:3])).requires_grad_()
        parameters = [parameter.detach().requires_grad_() for parameter in ctx.saved_tensors[3:]]
        with torch.enable_grad():
            out = ctx.formula(x, *parameters)
        of_parameters = torch.autograd.grad(out, parameters, gradient, retain_graph=True) if parameters else ()
        of_x = torch.autograd.grad(out, x, rounded_gradients(gradient))[0] if ctx.needs_input_grad[1] else None
        return None, of_x, *of_parameters


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
    out: Tensor = Rounded.apply(formula, x, *parameters)  # type: ignore[no-untyped-call]
    return out
