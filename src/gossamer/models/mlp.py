"""Models that take any sample as a plain vector."""

from dataclasses import dataclass
from math import prod

from torch import nn

from gossamer.models.architecture import Architecture, check_outputs


@dataclass(frozen=True)
class LogisticRegression(Architecture):
    """One linear layer."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return Mlp(()).build(inputs, outputs)


@dataclass(frozen=True)
class Mlp(Architecture):
    """A multilayer perceptron: linear layers with ReLU between them."""

    hidden: tuple[int, ...] = (64,)  # units of each hidden layer

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple | list):
            raise ValueError(f"hidden must be numbers of units, such as (64,), {self.hidden!r} was given")
        if any(units < 1 for units in self.hidden):
            raise ValueError(f"hidden must be numbers of units, each at least 1, {list(self.hidden)} was given")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        if not inputs or min(inputs) < 1:
            raise ValueError(f"inputs must be the shape of a sample, {inputs} was given")
        check_outputs(outputs)
        layers: list[nn.Module] = [nn.Flatten()]
        width = prod(inputs)
        for units in self.hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, outputs))
