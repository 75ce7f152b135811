"""VGG-11 (Simonyan and Zisserman 2015) for small images."""

from dataclasses import dataclass

from torch import nn

from gossamer.models.architecture import Architecture, check_at_least, check_outputs, image_sides
from gossamer.models.norms import GROUPS, Norm, activation, check_norm, normalization

_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # channels; the sides are halved after each stage


@dataclass(frozen=True)
class Vgg11(Architecture):
    """VGG-11 with one hidden layer: eight 3x3 convolutions, 9.49 million parameters."""

    norm: Norm = "none"
    hidden: int = 512
    groups: int = GROUPS  # of channels, for norms that have them

    def __post_init__(self) -> None:
        check_norm(self.norm, self.groups, _STAGES[0][0])
        check_at_least(self, 1, "hidden")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        channels, height, width = image_sides(inputs, 32)
        check_outputs(outputs)
        layers: list[nn.Module] = []
        for stage in _STAGES:
            for out in stage:
                layers.append(nn.Conv2d(channels, out, 3, 1, 1, bias=self.norm == "none"))
                layers += [normalization(self.norm, out, self.groups), activation(self.norm)]
                channels = out
            layers.append(nn.MaxPool2d(2))
        if (height, width) != (32, 32):
            layers.append(nn.AdaptiveAvgPool2d(1))  # 9.49 million parameters for larger images, too
        hidden = [nn.Flatten(), nn.Linear(channels, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, *hidden, nn.Linear(self.hidden, outputs))
