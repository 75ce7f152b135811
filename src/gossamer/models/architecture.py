"""What all models of the zoo have in common: settings in, a torch module out."""

from torch import nn


class Architecture:
    """A model by its settings: a frozen dataclass whose fields are its hyper-parameters.

    One of your own needs no registration; but a task of your own data takes any torch module as well.
    """

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        """A new module; its initial weights come from torch's default generator.

        ValueError if the architecture does not fit the data's `inputs`, the shape of one sample, or `outputs`.
        """
        raise NotImplementedError


def image_sides(inputs: tuple[int, ...], multiple: int = 1) -> tuple[int, int, int]:
    """Channels, height and width of an image; ValueError unless the sides hold `multiple` pixels at least."""
    if len(inputs) != 3 or min(inputs) < 1:
        raise ValueError(f"inputs must be an image's (channels, height, width), {inputs} was given")
    if min(inputs[1:]) < multiple:
        raise ValueError(f"inputs must be images of at least {multiple} x {multiple} pixels, {inputs} was given")
    return inputs[0], inputs[1], inputs[2]


def token_sizes(inputs: tuple[int, ...]) -> tuple[int, int]:
    """How many symbols there are, and how many of them make a sample."""
    if len(inputs) != 2 or min(inputs) < 1:
        raise ValueError(f"inputs must be a text's (number of symbols, length), {inputs} was given")
    return inputs[0], inputs[1]


def check_outputs(outputs: int) -> None:
    if outputs < 1:
        raise ValueError(f"outputs must be at least 1, {outputs} was given")


def check_at_least(architecture: object, least: int, *names: str) -> None:
    """ValueError unless each of these settings is at least so much."""
    for name in names:
        value = getattr(architecture, name)
        if value < least:
            raise ValueError(f"{name} must be at least {least}, {value} was given")
