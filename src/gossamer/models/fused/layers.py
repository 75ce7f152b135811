"""Fused layers, whose sums run in another order: `fast = true` in an experiment.

    convolution, GroupNorm, 2x2 max-pooling, ReLU      one layer; ReLU may stand before the pooling
    EvoNorm-S0                                         one pass forward and one backward

Parameters keep their order in the flat vector. Results differ from those of the plain layers in the last bits, and are
the same for any number of worker processes. On other devices than the CPU the plain layers do the work.
"""

import copy
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gossamer.models.fused.kernels import evonorm, evonorm_backward, norm_pool, norm_pool_backward
from gossamer.models.norms import EvoNormS0, per_channel

_LAST = torch.channels_last


class Workspace:
    """The memory for what a layer computes, forward and backward, for one shape of the convolution's output."""

    def __init__(self, images: Tensor, groups: int):
        samples, channels, height, width = images.shape
        self.shape, self._like = (samples, height, width * channels), images[:0]
        out = images.new_empty(samples, height // 2, width // 2 * channels)
        self.out = _images(out, channels)
        best, offsets = torch.empty_like(out), torch.empty_like(out, dtype=torch.int32)
        sums, moments = images.new_empty(samples, channels), images.new_empty(samples, groups, 2)
        self.results = [tensor.numpy() for tensor in (out, best, offsets, sums, moments)]

    @cached_property
    def grads(self) -> tuple[Any, Tensor, Any]:
        """For the gradient by the convolution's output, as rows and, the same memory, as images; and (3, channels) for
        those by the norm's weight, the norm's bias and the convolution's bias."""
        rows, channels = self._like.new_empty(self.shape), self._like.shape[1]
        return rows.numpy(), _images(rows, channels), self._like.new_empty(3, channels).numpy()


class SavedTensors(NamedTuple):
    """What the forward pass keeps for the backward pass."""

    x: Tensor
    kernel: Tensor
    output: Tensor  # of the convolution
    weight: Any  # of the norm
    workspace: Workspace


class ConvNormPool(nn.Module):
    """A convolution, GroupNorm, 2x2 max-pooling and ReLU."""

    def __init__(self, conv: nn.Conv2d, norm: nn.GroupNorm):
        super().__init__()
        self.conv, self.norm = conv, norm
        assert not isinstance(conv.padding, str)
        self._settings = (conv.stride, conv.padding, conv.dilation, False, (0, 0), conv.groups)

    def forward(self, x: Tensor) -> Tensor:
        conv, norm = self.conv, self.norm
        if not self.fits(x):
            return functional.relu(functional.max_pool2d(norm(conv(x)), 2))
        parameters = conv.weight, conv.bias, norm.weight, norm.bias
        return cast(Tensor, _ConvNormPool.apply(self, x, *parameters))  # type: ignore[no-untyped-call]

    def fits(self, x: Tensor) -> bool:
        """Are the sides after the convolution even, so that no pixel is left over?"""
        axes = zip(x.shape[2:], self.conv.kernel_size, *self._settings[:3], strict=True)
        sides = [
            (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for side, kernel, stride, padding, dilation in axes
        ]
        return x.device.type == "cpu" and not any(side % 2 for side in sides)

    def run(
        self,
        x: Tensor,
        kernel: Tensor,
        conv_bias: Tensor | None,
        weight: Any,
        bias: Any,
        workspace: Workspace | None = None,
    ) -> SavedTensors:
        """The forward pass with any parameters, not only the layer's own; its result is `workspace.out`.

        x and the kernel have channels last; weight and bias, the norm's, are arrays.
        """
        output = torch.convolution(x, kernel, conv_bias, *self._settings)
        workspace = workspace or Workspace(output, self.norm.num_groups)
        norm_pool(_rows(output, workspace), weight, bias, self.norm.eps, *workspace.results)
        return SavedTensors(x, kernel, output, weight, workspace)

    def backward(self, grad_output: Tensor, saved: SavedTensors, needs_grad_x: bool) -> tuple[Tensor | None, Tensor]:
        """The gradients by x, if it is needed, and by the kernel; the others are left in `workspace.grads`."""
        x, kernel, output, weight, workspace = saved
        grad_output = grad_output.permute(0, 2, 3, 1).contiguous().flatten(2)
        grad_rows, images, grad_channels = workspace.grads
        arrays = grad_output.numpy(), _rows(output, workspace), weight, *workspace.results[1:], grad_rows, grad_channels
        grad_channels[:] = 0
        norm_pool_backward(*arrays)
        grad_x, grad_kernel, _ = torch.ops.aten.convolution_backward(  # the kernel has found that by its bias
            images, x, kernel, None, *self._settings, (needs_grad_x, True, False)
        )
        return grad_x, grad_kernel


def _rows(output: Tensor, workspace: Workspace) -> Any:
    """(samples, channels, height, width), channels last, as an array (samples, height, width * channels)."""
    return output.permute(0, 2, 3, 1).numpy().reshape(workspace.shape)


def _images(rows: Tensor, channels: int) -> Tensor:
    return rows.view(*rows.shape[:2], -1, channels).permute(0, 3, 1, 2)


class _ConvNormPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layer: ConvNormPool, x: Tensor, kernel: Tensor, conv_bias: Tensor | None, weight: Tensor, bias: Tensor
    ) -> Tensor:
        x, kernel = x.contiguous(memory_format=_LAST), kernel.contiguous(memory_format=_LAST)
        saved = layer.run(x, kernel, conv_bias, weight.numpy(), bias.numpy())
        ctx.save_for_backward(*saved[:3])
        ctx.layer, ctx.rest, ctx.has_bias = layer, saved[3:], conv_bias is not None
        return saved.workspace.out.detach()  # a new object, since ctx keeps `out` itself

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, output = ctx.saved_tensors
        saved = SavedTensors(x, kernel, output, *ctx.rest)
        grad_x, grad_kernel = ctx.layer.backward(grad_output, saved, ctx.needs_input_grad[1])
        grad_weight, grad_bias, grad_conv_bias = torch.from_numpy(saved.workspace.grads[2])
        return None, grad_x, grad_kernel, grad_conv_bias if ctx.has_bias else None, grad_weight, grad_bias


class _EvoNormS0(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor, groups: int, epsilon: float) -> Tensor:
        gates = (per_channel(v, x) * x).sigmoid_().flatten(2)
        flat, out, moments = x.flatten(2), torch.empty_like(gates), x.new_empty(len(x), groups, 2)
        evonorm(flat.numpy(), gates.numpy(), weight.numpy(), bias.numpy(), epsilon, out.numpy(), moments.numpy())
        ctx.save_for_backward(flat, gates, weight, v, moments)
        return out.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        flat = grad_output.contiguous().flatten(2)
        grad_x, grad_channels = torch.empty_like(flat), flat.new_zeros(3, flat.shape[1])
        arrays = [tensor.numpy() for tensor in (flat, *ctx.saved_tensors, grad_x, grad_channels)]
        evonorm_backward(*arrays)
        grad_weight, grad_bias, grad_v = grad_channels
        return grad_x.view_as(grad_output), grad_weight, grad_bias, grad_v, None, None


class FastEvoNormS0(EvoNormS0):
    def formula(self, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        if x.device.type != "cpu":
            return super().formula(x, weight, bias, v)
        out = _EvoNormS0.apply(x, weight, bias, v, self.groups, self.epsilon)  # type: ignore[no-untyped-call]
        return cast(Tensor, out)


def to_fast(module: nn.Module) -> nn.Module:
    """A copy of the module with fused layers, where there are any."""
    converted = copy.deepcopy(module)
    for layer in list(converted.modules()):
        if type(layer) is EvoNormS0:
            layer.__class__ = FastEvoNormS0
        elif type(layer) is nn.Sequential:
            parts = list(layer)
            for at in range(len(parts) - 3):
                conv, norm = parts[at : at + 2]
                if _can_fuse(conv, norm, parts[at + 2 : at + 4]):
                    layer[at] = ConvNormPool(cast(nn.Conv2d, conv), cast(nn.GroupNorm, norm))
                    layer[at + 1] = layer[at + 2] = layer[at + 3] = nn.Identity()
    return converted


def _can_fuse(conv: nn.Module, norm: nn.Module, others: list[nn.Module]) -> bool:
    """Is this what `ConvNormPool` does, in one order or the other?"""
    others = sorted(others, key=lambda layer: type(layer) is nn.ReLU)
    return (
        type(conv) is nn.Conv2d
        and (conv.padding_mode, isinstance(conv.padding, str)) == ("zeros", False)
        and type(norm) is nn.GroupNorm
        and norm.affine
        and type(others[0]) is nn.MaxPool2d
        and _pair(others[0].kernel_size) == _pair(others[0].stride) == (2, 2)
        and (_pair(others[0].padding), _pair(others[0].dilation)) == ((0, 0), (1, 1))
        and not (others[0].ceil_mode or others[0].return_indices)
        and type(others[1]) is nn.ReLU
    )


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else size
