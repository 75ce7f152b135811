"""The same model in quicker layers, whose sums run in another order: `fast = true` in an experiment.

    a convolution, GroupNorm, 2x2 max-pooling, ReLU, in a row      one layer; and ReLU may stand before the pooling
    EvoNorm-S0                                                     the same in one pass forward and one backward

Parameters keep their order in the flat vector. Results differ from those of the plain layers in the last bits, and are
the same for any number of worker processes. On other devices than the CPU the plain layers do the work.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gossamer.kernels.evonorm import evonorm, evonorm_back
from gossamer.kernels.pooling import norm_pool, norm_pool_back
from gossamer.models.lenet import ChannelsLast
from gossamer.models.norms import EvoNormS0, per_channel

_LAST = torch.channels_last


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

    def run(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What it gives, and what `back` takes."""
        weight, bias, kernel = (p.detach() for p in (self.norm.weight, self.norm.bias, self.conv.weight))
        x, kernel = x.contiguous(memory_format=_LAST), kernel.contiguous(memory_format=_LAST)
        offset = None if self.conv.bias is None else self.conv.bias.detach()
        found = torch.convolution(x, kernel, offset, *self._settings)
        samples, channels, height, width = found.shape
        rows = _rows(found)
        out = x.new_empty(samples, height // 2, width // 2 * channels)
        best, places = torch.empty_like(out), torch.empty_like(out, dtype=torch.int32)
        sums, moments = x.new_empty(samples, channels), x.new_empty(samples, self.norm.num_groups, 2)
        to_keep = best, places, sums, moments
        arrays = [tensor.numpy() for tensor in (out, *to_keep)]
        norm_pool(rows.numpy(), weight.numpy(), bias.numpy(), self.norm.eps, *arrays)
        return _images(out, channels), (x, kernel, rows, weight, *to_keep)

    def back(self, slopes: Tensor, kept: Sequence[Tensor], to_x: bool) -> tuple[Tensor | None, list[Tensor]]:
        """The gradients by x, if it is wanted, and by the parameters."""
        x, kernel, rows, weight, *others = kept
        of_rows, of_channels = torch.empty_like(rows), weight.new_zeros(3, len(weight))
        slopes = _rows(slopes.contiguous(memory_format=_LAST))
        arrays = [tensor.numpy() for tensor in (slopes, rows, weight, *others, of_rows, of_channels)]
        norm_pool_back(*arrays)
        of_x, of_kernel, _ = torch.ops.aten.convolution_backward(  # that of its bias is known by now
            _images(of_rows, len(weight)), x, kernel, None, *self._settings, (to_x, True, False)
        )
        of_weight, of_bias, of_offset = of_channels
        return of_x, [of_kernel, *([] if self.conv.bias is None else [of_offset]), of_weight, of_bias]


def _rows(images: Tensor) -> Tensor:
    """(samples, channels, height, width), channels last, as (samples, height, width * channels)."""
    return images.permute(0, 2, 3, 1).flatten(2)


def _images(rows: Tensor, channels: int) -> Tensor:
    return rows.view(*rows.shape[:2], -1, channels).permute(0, 3, 1, 2)


class _ConvNormPool(torch.autograd.Function):
    """The layer for autograd, which must be given the parameters; they are the layer's own."""

    @staticmethod
    def forward(ctx: Any, layer: ConvNormPool, x: Tensor, *parameters: Tensor | None) -> Tensor:
        out, kept = layer.run(x)
        ctx.save_for_backward(*kept)
        ctx.layer, ctx.present = layer, [parameter is not None for parameter in parameters]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        of_x, found = ctx.layer.back(slopes, ctx.saved_tensors, ctx.needs_input_grad[1])
        rest = iter(found)
        return None, of_x, *(next(rest) if present else None for present in ctx.present)


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


def _layers(module: nn.Module) -> list[nn.Module]:
    """What a chain does, one after the other; a layer that is in it twice, twice."""
    if type(module) is nn.Sequential:
        return [layer for part in module for layer in _layers(part)]
    return [] if type(module) is nn.Identity else [module]


def chain_of(module: nn.Module) -> list[nn.Module]:
    """The layers of a chain that `chain_gradient` can do, with a `ConvNormPool` in it; none for other models."""
    layers = _layers(module)
    once = sum(len(list(layer.parameters())) for layer in layers) == len(list(module.parameters()))
    known = (ChannelsLast, ConvNormPool, nn.Linear, nn.ReLU, nn.Flatten)
    simple = all(type(layer) in known for layer in layers) and all(p.requires_grad for p in module.parameters())
    flat = all((layer.start_dim, layer.end_dim) == (1, -1) for layer in layers if isinstance(layer, nn.Flatten))
    whole = once and type(module) is nn.Sequential and any(isinstance(layer, ConvNormPool) for layer in layers)
    return layers if simple and flat and whole else []


@torch.no_grad()
def chain_gradient(
    layers: Sequence[nn.Module], loss: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor
) -> tuple[Tensor, list[Tensor]] | None:
    """The loss and the gradients of a chain's parameters, in their order; None if the images do not fit it.

    `loss` gives a loss and its derivative by the chain's outputs. By hand, because autograd's own work, beside that of
    the layers, is an eighth of a step of GN-LeNet.
    """
    kept: list[Sequence[Tensor]] = []
    for layer in layers:
        if isinstance(layer, ConvNormPool):
            if not layer.fits(x):
                return None
            x, to_keep = layer.run(x)
            kept.append(to_keep)
        else:
            kept.append((x,))
            x = layer(x)
    found, slopes = loss(x)
    first = next(at for at, layer in enumerate(layers) if isinstance(layer, ConvNormPool | nn.Linear))
    gradients: list[Tensor] = []
    for at in range(len(layers) - 1, first - 1, -1):
        layer, (given, *_) = layers[at], kept[at]
        if isinstance(layer, ConvNormPool):
            of_x, own = layer.back(slopes, kept[at], at > first)
            slopes = slopes if of_x is None else of_x
            gradients[:0] = own
        elif isinstance(layer, nn.Linear):
            gradients[:0] = [slopes.t() @ given, *([] if layer.bias is None else [slopes.sum(0)])]
            slopes = slopes @ layer.weight
        elif isinstance(layer, nn.ReLU):
            slopes = slopes * (given > 0)
        else:
            slopes = slopes.view(given.shape)
    return found, gradients
