"""Normalization layers, and the names under which a convolutional model takes them.

    none           nothing
    batch          BatchNorm: over the minibatch; fails where nodes see different classes
    group          GroupNorm: a sample's channels in groups
    evonorm-s0     EvoNorm-S0 (Liu et al. 2020): x sigmoid(v x) / std of the group; norm and non-linearity in one
    range-batch    Range-BatchNorm (Banner et al. 2018): the range in place of the standard deviation
    range-evonorm  Range-EvoNorm (Aketi, Kodge, Roy 2022): EvoNorm without squares, roots and exponentials

The range of m normal numbers grows with their standard deviation times sqrt(2 ln m), so C(m) = 1 / sqrt(2 ln m) brings
the two together. As in the papers, m is the number of samples for Range-BatchNorm and that of the channels of a group
for Range-EvoNorm, although the range is also over the pixels; the gain makes up for the difference, and that of
Range-EvoNorm starts where it does (docs/decisions/0005-range-evonorm-gain.md).
"""

from math import log, sqrt
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["none", "batch", "group", "evonorm-s0", "range-batch", "range-evonorm"]

GROUP_SIZE = 2  # channels, as in the papers
EPSILON = 1e-5
RANGE_GAIN = 6.0  # C(2) times the range of some thousand normal numbers, in standard deviations


def range_factor(count: int) -> float:
    """C(m) = 1 / sqrt(2 ln m), which makes a range comparable to a standard deviation. One number counts as two."""
    return 1 / sqrt(2 * log(max(count, 2)))


class EvoNorm(nn.Module):
    """What both EvoNorms share: a gate's slope, a gain and a shift for every channel, and groups of channels."""

    def __init__(self, channels: int, group_size: int = GROUP_SIZE, epsilon: float = EPSILON):
        super().__init__()
        if group_size < 1 or channels % group_size:
            raise ValueError(f"group_size must divide the {channels} channels, {group_size} was given")
        self.channels, self.group_size, self.epsilon = channels, group_size, epsilon
        self.weight = nn.Parameter(torch.ones(channels))  # gamma
        self.bias = nn.Parameter(torch.zeros(channels))  # beta
        self.v = nn.Parameter(torch.ones(channels))

    def extra_repr(self) -> str:
        return f"{self.channels}, group_size={self.group_size}, epsilon={self.epsilon}"

    def grouped(self, x: Tensor) -> Tensor:
        """(samples, groups, values): what is normalized together."""
        return x.reshape(len(x), self.channels // self.group_size, -1)

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(x.contiguous(), self.weight, self.bias, self.v)

    def formula(self, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        """The layer with these parameters."""
        raise NotImplementedError

    def scaled(self, gated: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """gated / scale * gamma + beta, with one scale per group (samples, groups, 1)."""
        normalized = (self.grouped(gated) / scale).view_as(gated)
        return normalized * per_channel(weight, gated) + per_channel(bias, gated)


class EvoNormS0(EvoNorm):
    """EvoNorm-S0: x * sigmoid(v x) / std of the group * gamma + beta, for each sample alone."""

    def formula(self, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        scale = (self.grouped(x).var(-1, correction=0, keepdim=True) + self.epsilon).sqrt()
        return self.scaled(x * torch.sigmoid(per_channel(v, x) * x), scale, weight, bias)


class RangeEvoNorm(EvoNorm):
    """Range-EvoNorm: x * hardsigmoid(v x) / (C(group size) * range of the group) * gamma + beta.

    Where several values of a group are its largest, or its least, the gradient of the range is shared among them. gamma
    starts at RANGE_GAIN: then what leaves the layer is about as large as what leaves EvoNorm-S0.
    """

    def __init__(self, channels: int, group_size: int = GROUP_SIZE, epsilon: float = EPSILON):
        super().__init__(channels, group_size, epsilon)
        nn.init.constant_(self.weight, RANGE_GAIN)

    def formula(self, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        groups = self.grouped(x)
        spread = groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)
        scale = range_factor(self.group_size) * spread + self.epsilon
        return self.scaled(x * functional.hardsigmoid(per_channel(v, x) * x), scale, weight, bias)


class RangeBatchNorm(nn.Module):
    """Range-BatchNorm: (x - mean) / (C(samples) * range of x - mean) * gamma + beta, over the minibatch by channel.

    In evaluation the running mean and scale take their place, as in nn.BatchNorm2d.
    """

    running_mean: Tensor
    running_scale: Tensor

    def __init__(self, channels: int, epsilon: float = EPSILON, momentum: float = 0.1):
        super().__init__()
        self.channels, self.epsilon, self.momentum = channels, epsilon, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_scale", torch.ones(channels))

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}, momentum={self.momentum}"

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.track(x)
        return self.formula(x, self.weight, self.bias)

    def formula(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The layer with these parameters."""
        mean, scale = self.statistics(x) if self.training else (self.running_mean, self.running_scale)
        normalized = (x - per_channel(mean, x)) / per_channel(scale + self.epsilon, x)
        return normalized * per_channel(weight, x) + per_channel(bias, x)

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, and C times range, of every channel."""
        over = [0, *range(2, x.ndim)]
        return x.mean(over), range_factor(len(x)) * (x.amax(over) - x.amin(over))

    @torch.no_grad()
    def track(self, x: Tensor) -> None:
        """Let the running statistics follow those of a minibatch."""
        mean, scale = self.statistics(x)
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_scale += self.momentum * (scale - self.running_scale)


def per_channel(values: Tensor, like: Tensor) -> Tensor:
    """A vector with one number per channel, in a shape that multiplies (samples, channels, ...)."""
    return values.view(-1, *[1] * (like.ndim - 2))


def check_norm(norm: str) -> None:
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, {norm!r} was given")


def normalization(norm: Norm, channels: int, group_size: int = GROUP_SIZE) -> nn.Module:
    """The layer of this name for images of so many channels."""
    check_norm(norm)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "range-batch":
        return RangeBatchNorm(channels)
    if norm == "group":
        if channels % group_size:
            raise ValueError(f"norm: {channels} channels do not make groups of {group_size}; take another width")
        return nn.GroupNorm(channels // group_size, channels)
    if norm == "evonorm-s0":
        return EvoNormS0(channels, group_size)
    return RangeEvoNorm(channels, group_size) if norm == "range-evonorm" else nn.Identity()


def activation(norm: Norm) -> nn.Module:
    """What follows the normalization: ReLU, or nothing after EvoNorm, which is an activation itself."""
    return nn.Identity() if "evonorm" in norm else nn.ReLU()
