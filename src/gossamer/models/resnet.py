"""Residual networks (He et al. 2016): three stages for CIFAR's images, four for larger ones.

Where a stage changes size, the shortcut is a 1x1 convolution with its normalization; with EvoNorm, ResNet-20 has
273,258 parameters so. Convolutions have a bias only where nothing normalizes. With `zero_init_residual`, as torchvision
calls it, the gain of each block's second normalization starts at 0, so that blocks begin as their shortcuts: the start
of the eight-bit networks of Aketi, Kodge and Roy (2022).
"""

from dataclasses import dataclass
from typing import Literal, cast

from torch import Tensor, nn

from gossamer.models.architecture import Architecture, check_outputs, image_sides
from gossamer.models.norms import GROUPS, Norm, activation, check_norm, normalization


class Sum(nn.Module):
    """Two tensors added. A layer, so that it can be exchanged for one of low precision."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, and what came in added to what they give."""

    def __init__(self, channels: int, out: int, stride: int, norm: Norm, groups: int):
        super().__init__()
        bias = norm == "none"
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=bias)
        self.norm1 = normalization(norm, out, groups)
        self.activation = activation(norm)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=bias)
        self.norm2 = normalization(norm, out, groups)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=bias), normalization(norm, out, groups)
            )
        self.sum = Sum()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.norm1(self.conv1(x)))
        out: Tensor = self.activation(self.sum(self.norm2(self.conv2(inner)), self.shortcut(x)))
        return out


def _stages(channels: int, width: int, blocks: tuple[int, ...], norm: Norm, groups: int) -> list[nn.Module]:
    """Stages of so many blocks each; every one after the first halves the sides and doubles the channels."""
    layers: list[nn.Module] = []
    for stage, count in enumerate(blocks):
        for block in range(count):
            out = width * 2**stage
            layers.append(BasicBlock(channels, out, 2 if stage and not block else 1, norm, groups))
            channels = out
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def _cifar_resnet(blocks: int, width: int, norm: Norm, groups: int, inputs: tuple[int, ...], outputs: int) -> nn.Module:
    channels, _, _ = image_sides(inputs, 4)
    check_outputs(outputs)
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, 1, 1, bias=norm == "none"),
        normalization(norm, width, groups),
        activation(norm),
        *_stages(width, width, (blocks,) * 3, norm, groups),
        nn.Linear(4 * width, outputs),
    )


@dataclass(frozen=True)
class ResNet20(Architecture):
    """ResNet-20 for CIFAR: three stages of three blocks, 0.27 million parameters."""

    norm: Norm = "evonorm-s0"
    width: int = 16  # channels of the first stage
    groups: int = GROUPS  # of channels, for norms that have them
    zero_init_residual: bool = False

    def __post_init__(self) -> None:
        _check(self.norm, self.groups, self.width, self.zero_init_residual)

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return _with_start(
            _cifar_resnet(3, self.width, self.norm, self.groups, inputs, outputs), self.zero_init_residual
        )


@dataclass(frozen=True)
class ResNet54(Architecture):
    """ResNet-54 for CIFAR, as Aketi et al. count: three stages of eight blocks, 0.76 million parameters."""

    norm: Norm = "evonorm-s0"
    width: int = 16
    groups: int = GROUPS
    zero_init_residual: bool = False

    def __post_init__(self) -> None:
        _check(self.norm, self.groups, self.width, self.zero_init_residual)

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return _with_start(
            _cifar_resnet(8, self.width, self.norm, self.groups, inputs, outputs), self.zero_init_residual
        )


@dataclass(frozen=True)
class ResNet110(Architecture):
    """ResNet-110 for CIFAR: three stages of eighteen blocks, 1.7 million parameters."""

    norm: Norm = "evonorm-s0"
    width: int = 16
    groups: int = GROUPS
    zero_init_residual: bool = False

    def __post_init__(self) -> None:
        _check(self.norm, self.groups, self.width, self.zero_init_residual)

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return _with_start(
            _cifar_resnet(18, self.width, self.norm, self.groups, inputs, outputs), self.zero_init_residual
        )


@dataclass(frozen=True)
class ResNet18(Architecture):
    """ResNet-18: four stages of two blocks, 11.2 million parameters."""

    norm: Norm = "evonorm-s0"
    width: int = 64
    stem: Literal["3x3", "7x7"] = "3x3"  # 7x7 with stride 2 and pooling: for images of 64 pixels and more
    groups: int = GROUPS
    zero_init_residual: bool = False

    def __post_init__(self) -> None:
        _check(self.norm, self.groups, self.width, self.zero_init_residual)
        if self.stem not in ("3x3", "7x7"):
            raise ValueError(f'stem must be "3x3" or "7x7", {self.stem!r} was given')

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        small = self.stem == "3x3"
        channels, _, _ = image_sides(inputs, 8 if small else 32)
        check_outputs(outputs)
        kernel, stride = (3, 1) if small else (7, 2)
        network = nn.Sequential(
            nn.Conv2d(channels, self.width, kernel, stride, kernel // 2, bias=self.norm == "none"),
            normalization(self.norm, self.width, self.groups),
            activation(self.norm),
            nn.Identity() if small else nn.MaxPool2d(3, 2, 1),
            *_stages(self.width, self.width, (2, 2, 2, 2), self.norm, self.groups),
            nn.Linear(8 * self.width, outputs),
        )
        return _with_start(network, self.zero_init_residual)


def _check(norm: str, groups: int, width: int, zero_init_residual: bool) -> None:
    if width < 1:
        raise ValueError(f"width must be at least 1, {width} was given")
    check_norm(norm, groups, width)
    if zero_init_residual and norm == "none":
        raise ValueError("zero_init_residual is about the gains of a norm, and norm is none; take another norm")


def _with_start(network: nn.Module, zero_init_residual: bool) -> nn.Module:
    for block in network.modules():
        if zero_init_residual and isinstance(block, BasicBlock):
            nn.init.zeros_(cast(Tensor, block.norm2.weight))
    return network
