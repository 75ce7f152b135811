"""Fast models that are chains of layers, with gradients by hand: between the layers autograd, Python and small tensors
take a fifth of a step. A model is read where it lies, and its gradient written where it is wanted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Size, Tensor, nn

from gossamer.models.fused.classify import classify, swap
from gossamer.models.fused.layers import ConvNormPool, Space, Trace
from gossamer.models.lenet import ChannelsLast

Loss = Callable[[Tensor], tuple[Tensor, Tensor]]  # of a chain's outputs: a loss and its derivative by them


class Link(Protocol):
    """A layer of a chain. It remembers what its way back takes."""

    def forward(self, model: Tensor, x: Tensor) -> Tensor: ...

    def back(self, model: Tensor, slopes: Tensor, out: Tensor, to_x: bool) -> Tensor:
        """The gradient by x, if it is wanted; that by its own parameters goes into `out`."""


class Chain:
    """The layers of a model, one after the other."""

    def __init__(self, links: Sequence[Link]):
        self.links = links
        self._first = next(at for at, link in enumerate(links) if not isinstance(link, _Plain))
        self._fitting: dict[Size, bool] = {}
        self._classifier = _classifier(links)

    @classmethod
    def of(cls, module: nn.Module) -> "Chain | None":
        """The chain that a model is, if it is one, every layer is known here and one of them is fast."""
        layers, parameters = _layers(module), list(module.parameters())
        kinds = [type(layer) for layer in layers]
        once = sum(len(list(layer.parameters())) for layer in layers) == len(parameters)
        flat = all((layer.start_dim, layer.end_dim) == (1, -1) for layer in layers if isinstance(layer, nn.Flatten))
        vectors = nn.Linear not in kinds or nn.Flatten in kinds[: kinds.index(nn.Linear)]
        trained = all(parameter.requires_grad for parameter in parameters)
        known = {*_PLAIN, ConvNormPool, nn.Linear}.issuperset(kinds) and ConvNormPool in kinds
        return cls(list(_links(layers))) if once and flat and vectors and trained and known else None

    @torch.no_grad()
    def gradient(
        self, model: Tensor, x: Tensor, loss: Loss, out: Tensor, classes: Tensor | None = None
    ) -> Tensor | float | None:
        """The loss of a model (D,), and in `out` its gradient; None if the images do not fit the fast layers. Where the
        loss is the cross-entropy of classes, they may be given."""
        if not self._fits(model, x):
            return None
        links = self.links if self._classifier is None or classes is None else self.links[:-2]
        for link in links:
            x = link.forward(model, x)
        found: Tensor | float
        if self._classifier is None or classes is None:
            found, slopes = loss(x)
        else:
            found, slopes = self._classifier.classify(model, x, classes, out)
        for at in range(len(links) - 1, self._first - 1, -1):
            slopes = links[at].back(model, slopes, out, at > self._first)
        return found

    def _fits(self, model: Tensor, x: Tensor) -> bool:
        if x.shape not in self._fitting:
            self._fitting[x.shape] = all(layer.fits(given) for layer, given in self._inputs(model, x))
        return self._fitting[x.shape]

    def _inputs(self, model: Tensor, x: Tensor) -> Iterator[tuple[ConvNormPool, Tensor]]:
        for link in self.links:
            if isinstance(link, _Conv):
                yield link.layer, x
            x = link.forward(model, x)


def _layers(module: nn.Module) -> list[nn.Module]:
    """What a chain does, one after the other; a layer that is in it twice, twice."""
    if type(module) is nn.Sequential:
        return [layer for part in module for layer in _layers(part)]
    return [] if type(module) is nn.Identity else [module]


def _links(layers: Sequence[nn.Module]) -> Iterator[Link]:
    start = 0  # of the layer's parameters in the row of a model
    for layer in layers:
        places = []
        for parameter in layer.parameters():
            places.append(_Place(slice(start, start + parameter.numel()), parameter.shape))
            start += parameter.numel()
        if isinstance(layer, ConvNormPool):
            offset = None if layer.conv.bias is None else places.pop(1)
            kernel, weight, bias = places
            yield _Conv(layer, kernel, offset, weight, bias)
        elif isinstance(layer, nn.Linear):
            yield _Dense(places[0], places[1] if len(places) == 2 else None)
        else:
            yield _Plain(layer)


@dataclass
class _Place:
    """Where in a row a parameter is."""

    where: slice
    shape: Size

    def of(self, row: Tensor) -> Tensor:
        return row[self.where].view(self.shape)


@dataclass
class _Plain:
    """A layer without parameters."""

    layer: nn.Module
    x: Tensor = field(init=False)

    def forward(self, model: Tensor, x: Tensor) -> Tensor:
        self.x = x
        out: Tensor = self.layer(x)
        return out

    def back(self, model: Tensor, slopes: Tensor, out: Tensor, to_x: bool) -> Tensor:
        return slopes * (self.x > 0) if isinstance(self.layer, nn.ReLU) else slopes.view(self.x.shape)


@dataclass
class _Dense:
    weight: _Place
    bias: _Place | None
    x: Tensor = field(init=False)

    def forward(self, model: Tensor, x: Tensor) -> Tensor:
        self.x = x
        bias = None if self.bias is None else self.bias.of(model)
        return nn.functional.linear(x, self.weight.of(model), bias)

    def back(self, model: Tensor, slopes: Tensor, out: Tensor, to_x: bool) -> Tensor:
        torch.mm(slopes.t(), self.x, out=self.weight.of(out))
        if self.bias is not None:
            torch.sum(slopes, 0, out=self.bias.of(out))
        return slopes @ self.weight.of(model) if to_x else slopes

    def classify(self, model: Tensor, x: Tensor, classes: Tensor, out: Tensor) -> tuple[float, Tensor]:
        """Forward and back at once: images are flattened, and the loss is cross-entropy."""
        images = x.permute(0, 2, 3, 1).numpy()
        slopes = torch.empty(images.shape)
        flat = len(images), -1, images.shape[-1]
        row, of_row = model.numpy(), out.numpy()
        where = slice(0) if self.bias is None else self.bias.where
        layer, of_layer = (
            (array[self.weight.where].reshape(self.weight.shape), array[where]) for array in (row, of_row)
        )
        slopes_of = slopes.numpy().reshape(flat), *of_layer
        return classify(images.reshape(flat), *layer, classes.numpy(), *slopes_of), slopes.permute(0, 3, 1, 2)


def _classifier(links: Sequence[Link]) -> _Dense | None:
    """The dense layer at the end, if all that is between it and a fast layer is that its images are flattened."""
    if len(links) < 3:
        return None
    conv, flatten, dense = links[-3:]
    flattens = isinstance(flatten, _Plain) and isinstance(flatten.layer, nn.Flatten)
    return dense if isinstance(conv, _Conv) and flattens and isinstance(dense, _Dense) else None


@dataclass
class _Conv:
    layer: ConvNormPool
    kernel: _Place
    offset: _Place | None
    weight: _Place
    bias: _Place
    spaces: dict[Size, Space] = field(default_factory=dict)  # for images of a shape
    trace: Trace = field(init=False)

    def __post_init__(self) -> None:
        out, channels, height, width = self.kernel.shape
        self._sides = out, channels, height * width
        self._kernel = torch.empty(out, height, width, channels).permute(0, 3, 1, 2)  # channels last

    def forward(self, model: Tensor, x: Tensor) -> Tensor:
        row = model.numpy()
        swap(row[self.kernel.where].reshape(self._sides), _swapped(self._kernel))
        offset = None if self.offset is None else model[self.offset.where]
        norm = row[self.weight.where], row[self.bias.where]
        x = x.contiguous(memory_format=torch.channels_last)
        self.trace = self.layer.run(x, self._kernel, offset, *norm, self.spaces.get(x.shape))
        space = self.spaces[x.shape] = self.trace.space
        return space.out

    def back(self, model: Tensor, slopes: Tensor, out: Tensor, to_x: bool) -> Tensor:
        of_x, of_kernel = self.layer.back(slopes, self.trace, to_x)
        row, (of_weight, of_bias, of_offset) = out.numpy(), self.trace.space.slopes[2]
        swap(_swapped(of_kernel), row[self.kernel.where].reshape(self._sides))
        row[self.weight.where], row[self.bias.where] = of_weight, of_bias
        if self.offset is not None:
            row[self.offset.where] = of_offset
        return slopes if of_x is None else of_x


def _swapped(kernel: Tensor) -> Any:
    """(out, channels, height, width) as an array (out, height * width, channels)."""
    array = kernel.permute(0, 2, 3, 1).numpy()
    return array.reshape(len(array), -1, array.shape[-1])


_PLAIN = (ChannelsLast, nn.ReLU, nn.Flatten)
