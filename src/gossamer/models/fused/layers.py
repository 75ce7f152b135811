"""The same model in quicker layers, whose sums run in another order: `fast = true` in an experiment.

    a convolution, GroupNorm, 2x2 max-pooling, ReLU, in a row      one layer; and ReLU may stand before the pooling
    EvoNorm-S0                                                     the same in one pass forward and one backward

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

from gossamer.models.fused.evonorm import evonorm, evonorm_back
from gossamer.models.fused.pooling import norm_pool, norm_pool_back
from gossamer.models.norms import EvoNormS0, per_channel

_LAST = torch.channels_last


class Space:
    """Where a layer puts what it gives and what its way back takes, for images of one shape after the convolution."""

    def __init__(self, images: Tensor, groups: int):
        samples, channels, height, width = images.shape
        self.shape, self._like = (samples, height, width * channels), images[:0]
        out = images.new_empty(samples, height // 2, width // 2 * channels)
        self.out = _images(out, channels)
        best, places = torch.empty_like(out), torch.empty_like(out, dtype=torch.int32)
        sums, moments = images.new_empty(samples, channels), images.new_empty(samples, groups, 2)
        self.results = [tensor.numpy() for tensor in (out, best, places, sums, moments)]

    @cached_property
    def slopes(self) -> tuple[Any, Tensor, Any]:
        """For the gradient by what the convolution found, as rows and as images; and for those by the norm's weight,
        its bias, and the convolution's bias."""
        rows, channels = self._like.new_empty(self.shape), self._like.shape[1]
        return rows.numpy(), _images(rows, channels), self._like.new_empty(3, channels).numpy()


class Trace(NamedTuple):
    """What a layer remembers on its way forward."""

    x: Tensor
    kernel: Tensor
    found: Tensor  # by the convolution
    weight: Any  # of the norm
    space: Space


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
        of = zip(x.shape[2:], self.conv.kernel_size, *self._settings[:3], strict=True)
        sides = [(side + 2 * around - far * (kernel - 1) - 1) // step + 1 for side, kernel, step, around, far in of]
        return x.device.type == "cpu" and not any(side % 2 for side in sides)

    def run(
        self, x: Tensor, kernel: Tensor, offset: Tensor | None, weight: Any, bias: Any, space: Space | None = None
    ) -> Trace:
        """x and the kernel have channels last, the norm's weight and bias are arrays, and no parameter need be the
        layer's own. What it gives is the trace's `space.out`."""
        found = torch.convolution(x, kernel, offset, *self._settings)
        space = space or Space(found, self.norm.num_groups)
        norm_pool(_rows(found, space), weight, bias, self.norm.eps, *space.results)
        return Trace(x, kernel, found, weight, space)

    def back(self, slopes: Tensor, trace: Trace, to_x: bool) -> tuple[Tensor | None, Tensor]:
        """The gradients by x, if it is wanted, and by the kernel; the others' are in the trace's space."""
        x, kernel, found, weight, space = trace
        slopes = slopes.permute(0, 2, 3, 1).contiguous().flatten(2)
        of_found, images, of_channels = space.slopes
        arrays = slopes.numpy(), _rows(found, space), weight, *space.results[1:], of_found, of_channels
        of_channels[:] = 0
        norm_pool_back(*arrays)
        of_x, of_kernel, _ = torch.ops.aten.convolution_backward(  # that of its bias is known by now
            images, x, kernel, None, *self._settings, (to_x, True, False)
        )
        return of_x, of_kernel


def _rows(found: Tensor, space: Space) -> Any:
    """(samples, channels, height, width), channels last, as an array (samples, height, width * channels)."""
    return found.permute(0, 2, 3, 1).numpy().reshape(space.shape)


def _images(rows: Tensor, channels: int) -> Tensor:
    return rows.view(*rows.shape[:2], -1, channels).permute(0, 3, 1, 2)


class _ConvNormPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layer: ConvNormPool, x: Tensor, kernel: Tensor, offset: Tensor | None, weight: Tensor, bias: Tensor
    ) -> Tensor:
        x, kernel = x.contiguous(memory_format=_LAST), kernel.contiguous(memory_format=_LAST)
        trace = layer.run(x, kernel, offset, weight.numpy(), bias.numpy())
        ctx.save_for_backward(*trace[:3])
        ctx.layer, ctx.rest, ctx.has_offset = layer, trace[3:], offset is not None
        return trace.space.out.detach()  # an object of its own, which nothing here refers to

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, found = ctx.saved_tensors
        trace = Trace(x, kernel, found, *ctx.rest)
        of_x, of_kernel = ctx.layer.back(slopes, trace, ctx.needs_input_grad[1])
        of_weight, of_bias, of_offset = torch.from_numpy(trace.space.slopes[2])
        return None, of_x, of_kernel, of_offset if ctx.has_offset else None, of_weight, of_bias


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
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        flat = slopes.contiguous().flatten(2)
        of_x, found = torch.empty_like(flat), flat.new_zeros(3, flat.shape[1])
        arrays = [tensor.numpy() for tensor in (flat, *ctx.saved_tensors, of_x, found)]
        evonorm_back(*arrays)
        return of_x.view_as(slopes), found[0], found[1], found[2], None, None


class FastEvoNormS0(EvoNormS0):
    def formula(self, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        if x.device.type != "cpu":
            return super().formula(x, weight, bias, v)
        groups = self.channels // self.group_size
        out = _EvoNormS0.apply(x, weight, bias, v, groups, self.epsilon)  # type: ignore[no-untyped-call]
        return cast(Tensor, out)


def to_fast(module: nn.Module) -> nn.Module:
    """A copy of the module in quicker layers, where there are any."""
    converted = copy.deepcopy(module)
    for layer in list(converted.modules()):
        if type(layer) is EvoNormS0:
            layer.__class__ = FastEvoNormS0
        elif type(layer) is nn.Sequential:
            parts = list(layer)
            for at in range(len(parts) - 3):
                conv, norm = parts[at : at + 2]
                if _is_group(conv, norm, parts[at + 2 : at + 4]):
                    layer[at] = ConvNormPool(cast(nn.Conv2d, conv), cast(nn.GroupNorm, norm))
                    layer[at + 1] = layer[at + 2] = layer[at + 3] = nn.Identity()
    return converted


def _is_group(conv: nn.Module, norm: nn.Module, others: list[nn.Module]) -> bool:
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
