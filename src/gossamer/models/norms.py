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

GroupNorm and both EvoNorms take a number of groups, 2 by default: g = 2 in the formula of Aketi, Kodge and Roy, whose
c / g is the number of channels per group. Their code has 2 for GroupNorm and 8 for EvoNorm.
"""

from math import log, sqrt
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["none", "batch", "group", "evonorm-s0", "range-batch", "range-evonorm"]

GROUPED = ("group", "evonorm-s0", "range-evonorm")
GROUPS = 2
EPSILON = 1e-5
NORMAL_RANGE = 7.0  # between the largest and the least of some thousand normal numbers, in standard deviations


def range_factor(count: int) -> float:
    """C(m) = 1 / sqrt(2 ln m), which makes a range comparable to a standard deviation. One number counts as two."""
    return 1 / sqrt(2 * log(max(count, 2)))


class EvoNorm(nn.Module):
    """What both EvoNorms share: a gate's slope, a gain and a shift for every channel, and groups of channels."""

    def __init__(self, channels: int, groups: int = GROUPS, epsilon: float = EPSILON):
        super().__init__()
        _check_divides(groups, channels)
        self.channels, self.groups, self.epsilon = channels, groups, epsilon
        self.weight = nn.Parameter(torch.ones(channels))  # gamma
        self.bias = nn.Parameter(torch.zeros(channels))  # beta
        self.v = nn.Parameter(torch.ones(channels))

    def extra_repr(self) -> str:
        return f"{self.channels}, groups={self.groups}, epsilon={self.epsilon}"

    def grouped(self, x: Tensor) -> Tensor:
        """(samples, groups, values): what is normalized together."""
        return x.reshape(len(x), self.groups, -1)

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
    """Range-EvoNorm: x * hardsigmoid(v x) / (C(channels per group) * range of the group) * gamma + beta.

    Where several values of a group are its largest, or its least, the gradient of the range is shared among them. gamma
    starts at C times NORMAL_RANGE: then what leaves the layer is about as large as what leaves EvoNorm-S0.
    """

    def __init__(self, channels: int, groups: int = GROUPS, epsilon: float = EPSILON):
        super().__init__(channels, groups, epsilon)
        nn.init.constant_(self.weight, range_factor(channels // groups) * NORMAL_RANGE)

    def formula(self, x: Tensor, weight: Tensor, bias: Tensor, v: Tensor) -> Tensor:
        groups = self.grouped(x)
        spread = groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)
        scale = range_factor(self.channels // self.groups) * spread + self.epsilon
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


def check_norm(norm: str, groups: int, channels: int) -> None:
    """ValueError unless there is such a norm, and as many groups of channels can be made, where it has groups.

    0 groups stand for those of runs that earlier versions began; no network is built with them.
    """
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, {norm!r} was given")
    if norm in GROUPED and groups != 0:
        _check_divides(groups, channels)


def _check_divides(groups: int, channels: int) -> None:
    if groups < 1 or channels % groups:
        raise ValueError(f"groups must be at least 1 and divide the {channels} channels, {groups} was given")


def normalization(norm: Norm, channels: int, groups: int = GROUPS) -> nn.Module:
    """The layer of this name for images of so many channels."""
    check_norm(norm, groups, channels)
    if norm in GROUPED and groups == 0:
        raise ValueError("groups: the run began with groups of two channels, which are no longer built; start it again")
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "range-batch":
        return RangeBatchNorm(channels)
    if norm == "group":
        return nn.GroupNorm(groups, channels)
    if norm == "evonorm-s0":
        return EvoNormS0(channels, groups)
    return RangeEvoNorm(channels, groups) if norm == "range-evonorm" else nn.Identity()


def activation(norm: Norm) -> nn.Module:
    """What follows normalization, or a sum of normalized: ReLU; nothing for EvoNorm, which is an activation itself."""
    return nn.Identity() if "evonorm" in norm else nn.ReLU()
