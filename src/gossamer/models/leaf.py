"""The models of the LEAF benchmark (Caldas et al. 2018): handwritten characters, faces, and plays."""

from dataclasses import dataclass

from torch import Tensor, nn

from gossamer.models.architecture import Architecture, check_at_least, check_outputs, image_sides, token_sizes
from gossamer.models.lenet import convolution
from gossamer.models.norms import GROUPS, Norm, activation, check_norm, normalization


@dataclass(frozen=True)
class FemnistCnn(Architecture):
    """LEAF's CNN for FEMNIST: two 5x5 convolutions of 32 and 64 channels, and a hidden layer."""

    hidden: int = 2048  # JWINS's experiments took 512
    norm: Norm = "none"
    groups: int = GROUPS  # of channels, for norms that have them

    def __post_init__(self) -> None:
        check_at_least(self, 1, "hidden")
        check_norm(self.norm, self.groups, 32)

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        channels, height, width = image_sides(inputs, 4)
        check_outputs(outputs)
        return nn.Sequential(
            *convolution(channels, 32, 5, normalization(self.norm, 32, self.groups), activation(self.norm)),
            *convolution(32, 64, 5, normalization(self.norm, 64, self.groups), activation(self.norm)),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, outputs),
        )


@dataclass(frozen=True)
class CelebaCnn(Architecture):
    """LEAF's CNN for CelebA: four 3x3 convolutions of 32 channels, and a linear layer."""

    norm: Norm = "none"  # as in JWINS's experiments; LEAF's own is "batch"
    groups: int = GROUPS

    def __post_init__(self) -> None:
        check_norm(self.norm, self.groups, 32)

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        channels, height, width = image_sides(inputs, 16)
        check_outputs(outputs)
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += convolution(channels, 32, 3, normalization(self.norm, 32, self.groups), activation(self.norm))
            channels = 32
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * (height // 16) * (width // 16), outputs))


@dataclass(frozen=True)
class StackedLstm(Architecture):
    """LEAF's network for Shakespeare: an embedding, two LSTM layers, and a linear layer on the last step.

    With `every_step`, as in the JWINS authors' code, the linear layer sees ReLU of every step's state: 2,683,708
    parameters for texts of 80 of their 92 symbols.
    """

    embedding: int = 8
    hidden: int = 256
    layers: int = 2
    every_step: bool = False

    def __post_init__(self) -> None:
        check_at_least(self, 1, "embedding", "hidden", "layers")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        symbols, length = token_sizes(inputs)
        check_outputs(outputs)
        steps = length if self.every_step else None
        return _StackedLstm(symbols, self.embedding, self.hidden, self.layers, outputs, steps)


class _StackedLstm(nn.Module):
    def __init__(self, symbols: int, embedding: int, hidden: int, layers: int, outputs: int, steps: int | None):
        super().__init__()
        self.embedding = nn.Embedding(symbols, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.steps = steps  # whose states are read; None: the last one's alone
        self.linear = nn.Linear(hidden * (steps or 1), outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.lstm(self.embedding(tokens))[0]
        out: Tensor = self.linear(states[:, -1] if self.steps is None else states.flatten(1).relu())
        return out
