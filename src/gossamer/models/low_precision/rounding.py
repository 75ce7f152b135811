"""Tensors to eight bits and back, as kernels over their samples."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.models.low_precision import kernels


class Levels(NamedTuple):
    """Activations in eight bits: scale * (level - zero), with a scale and a zero for each sample."""

    levels: Tensor  # uint8, of the activations' shape
    scales: Tensor  # (samples,)
    zeros: Tensor  # uint8 (samples,)


def of_activations(x: Tensor) -> tuple[Tensor, Levels]:
    """level - zero, whole numbers from -255 to 255 kept as floats; and what of it is worth remembering."""
    x = _float(x)
    numbers, found = torch.empty_like(x), Levels(*_empty(x))
    rows = (len(x), x[:1].numel())
    kernels.affine(
        x.numpy().reshape(rows),
        found.levels.numpy().reshape(rows),
        found.scales.numpy(),
        found.zeros.numpy(),
        numbers.numpy().reshape(rows),
    )
    return numbers, found


def of_weights(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, kept as floats, and their one scale (1,)."""
    weight = _float(weight)
    numbers, scale = torch.empty_like(weight), torch.empty(1)
    kernels.symmetric(weight.numpy().reshape(1, -1), scale.numpy(), numbers.numpy().reshape(1, -1))
    return numbers, scale


def of_gradients(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, kept as floats, rounded at random, and each sample's scale (samples,)."""
    gradient = _float(gradient)
    numbers, scales = torch.empty_like(gradient), torch.empty(len(gradient))
    key = np.uint32(torch.randint(2**32, ()).item())
    rows = (len(gradient), gradient[:1].numel())
    kernels.stochastic(gradient.numpy().reshape(rows), key, scales.numpy(), numbers.numpy().reshape(rows))
    return numbers, scales


def values(found: Levels) -> Tensor:
    """What the levels stand for."""
    out = torch.empty(found.levels.shape)
    rows = (len(out), out[:1].numel())
    kernels.from_affine(
        found.levels.numpy().reshape(rows), found.scales.numpy(), found.zeros.numpy(), out.numpy().reshape(rows)
    )
    return out


def rounded_activations(x: Tensor) -> tuple[Tensor, Levels]:
    """The activations as eight bits tell them, and the bits."""
    numbers, found = of_activations(x)
    return times_scales(numbers, found.scales), found


def rounded_weights(weight: Tensor) -> Tensor:
    numbers, scale = of_weights(weight)
    return times_scales(numbers.view(1, -1), scale).view_as(weight)


def rounded_gradients(gradient: Tensor) -> Tensor:
    return times_scales(*of_gradients(gradient))


def times_scales(sums: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """sums (samples, channels, ...) times each sample's scale, plus each channel's bias; in place."""
    shape = (len(sums), 1 if bias is None else len(bias), -1 if len(sums) else 0)
    shift = np.zeros(1, np.float32) if bias is None else bias.detach().numpy()
    kernels.rescale(sums.numpy().reshape(shape), scales.numpy(), shift)
    return sums


def _float(x: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        raise ValueError(f"eight-bit layers take float32, {x.dtype} was given; call .float()")
    return x.detach().contiguous()


def _empty(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    levels = torch.empty(x.shape, dtype=torch.uint8)
    return levels, torch.empty(len(x)), torch.empty(len(x), dtype=torch.uint8)
