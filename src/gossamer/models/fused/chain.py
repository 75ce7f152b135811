"""The backward pass of a chain of fused layers, by hand: autograd and small tensors between the layers would take a
fifth of a step. Parameters are read from the model's row, and gradients written into the row of the gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Size, Tensor, nn

from gossamer.models.fused.kernels import classify, transpose
from gossamer.models.fused.layers import ConvNormPool, SavedTensors, Workspace
from gossamer.models.lenet import ChannelsLast

Loss = Callable[[Tensor], tuple[Tensor, Tensor]]  # outputs to the loss and its gradient by them
_NO_PARAMETERS = (ChannelsLast, nn.ReLU, nn.Flatten)


class Link(Protocol):
    """A layer of a chain. It keeps what its backward pass needs."""

    def forward(self, model: Tensor, x: Tensor) -> Tensor: ...

    def backward(self, model: Tensor, grad_output: Tensor, out: Tensor, needs_grad_x: bool) -> Tensor:
        """The gradient by x, if it is needed; that by its own parameters goes into `out`, the row of the gradient."""


class Chain:
    """The layers of a model, one after the other."""

    def __init__(self, links: Sequence[Link]):
        self.links = links
        self._first = next(at for at, link in enumerate(links) if not isinstance(link, _NoParameters))
        self._fitting: dict[Size, bool] = {}
        self._classifier = _classifier(links)

    @classmethod
    def of(cls, module: nn.Module) -> "Chain | None":
        """The model as a chain, if it is one, every layer is known here and one of them is fused."""
        layers, parameters = _layers(module), list(module.parameters())
        kinds = [type(layer) for layer in layers]
        once = sum(len(list(layer.parameters())) for layer in layers) == len(parameters)
        flat = all((layer.start_dim, layer.end_dim) == (1, -1) for layer in layers if isinstance(layer, nn.Flatten))
        vectors = nn.Linear not in kinds or nn.Flatten in kinds[: kinds.index(nn.Linear)]
        trained = all(parameter.requires_grad for parameter in parameters)
        known = {*_NO_PARAMETERS, ConvNormPool, nn.Linear}.issuperset(kinds) and ConvNormPool in kinds
        return cls(list(_links(layers))) if once and flat and vectors and trained and known else None

    @torch.no_grad()
    def gradient(
        self, model: Tensor, x: Tensor, loss: Loss, out: Tensor, classes: Tensor | None = None
    ) -> Tensor | float | None:
        """The loss of a model (D,), and in `out` its gradient; None if the images do not fit the fused layers.

        `classes` may be given where the loss is their cross-entropy.
        """
        if not self._fits(model, x):
            return None
        links = self.links if self._classifier is None or classes is None else self.links[:-2]
        for link in links:
            x = link.forward(model, x)
        value: Tensor | float
        if self._classifier is None or classes is None:
            value, grad_output = loss(x)
        else:
            value, grad_output = self._classifier.classify(model, x, classes, out)
        for at in range(len(links) - 1, self._first - 1, -1):
            grad_output = links[at].backward(model, grad_output, out, at > self._first)
        return value

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
    """The layers in the order in which they run; one that runs twice, twice."""
    if type(module) is nn.Sequential:
        return [layer for part in module for layer in _layers(part)]
    return [] if type(module) is nn.Identity else [module]


def _links(layers: Sequence[nn.Module]) -> Iterator[Link]:
    start = 0  # of the layer's parameters in the row of a model
    for layer in layers:
        views = []
        for parameter in layer.parameters():
            views.append(_ParameterView(slice(start, start + parameter.numel()), parameter.shape))
            start += parameter.numel()
        if isinstance(layer, ConvNormPool):
            conv_bias = None if layer.conv.bias is None else views.pop(1)
            kernel, weight, bias = views
            yield _Conv(layer, kernel, conv_bias, weight, bias)
        elif isinstance(layer, nn.Linear):
            yield _Dense(views[0], views[1] if len(views) == 2 else None)
        else:
            yield _NoParameters(layer)


@dataclass
class _ParameterView:
    """Where in a row a parameter stands."""

    where: slice
    shape: Size

    def of(self, row: Tensor) -> Tensor:
        return row[self.where].view(self.shape)


@dataclass
class _NoParameters:
    """A layer without parameters."""

    layer: nn.Module
    x: Tensor = field(init=False)

    def forward(self, model: Tensor, x: Tensor) -> Tensor:
        self.x = x
        out: Tensor = self.layer(x)
        return out

    def backward(self, model: Tensor, grad_output: Tensor, out: Tensor, needs_grad_x: bool) -> Tensor:
        return grad_output * (self.x > 0) if isinstance(self.layer, nn.ReLU) else grad_output.view(self.x.shape)


@dataclass
class _Dense:
    weight: _ParameterView
    bias: _ParameterView | None
    x: Tensor = field(init=False)

    def forward(self, model: Tensor, x: Tensor) -> Tensor:
        self.x = x
        bias = None if self.bias is None else self.bias.of(model)
        return nn.functional.linear(x, self.weight.of(model), bias)

    def backward(self, model: Tensor, grad_output: Tensor, out: Tensor, needs_grad_x: bool) -> Tensor:
        torch.mm(grad_output.t(), self.x, out=self.weight.of(out))
        if self.bias is not None:
            torch.sum(grad_output, 0, out=self.bias.of(out))
        return grad_output @ self.weight.of(model) if needs_grad_x else grad_output

    def classify(self, model: Tensor, x: Tensor, classes: Tensor, out: Tensor) -> tuple[float, Tensor]:
        """Forward and backward in one, on images that are to be flattened; the loss is cross-entropy."""
        images = x.permute(0, 2, 3, 1).numpy()
        grad_images = torch.empty(images.shape)
        flat = len(images), -1, images.shape[-1]
        row, grad_row = model.numpy(), out.numpy()
        where = slice(0) if self.bias is None else self.bias.where
        layer, grad_layer = (
            (array[self.weight.where].reshape(self.weight.shape), array[where]) for array in (row, grad_row)
        )
        grads = grad_images.numpy().reshape(flat), *grad_layer
        return classify(images.reshape(flat), *layer, classes.numpy(), *grads), grad_images.permute(0, 3, 1, 2)


def _classifier(links: Sequence[Link]) -> _Dense | None:
    """The dense layer at the end, if only flattening stands between it and a fused layer."""
    if len(links) < 3:
        return None
    conv, flatten, dense = links[-3:]
    flattens = isinstance(flatten, _NoParameters) and isinstance(flatten.layer, nn.Flatten)
    return dense if isinstance(conv, _Conv) and flattens and isinstance(dense, _Dense) else None


@dataclass
class _Conv:
    layer: ConvNormPool
    kernel: _ParameterView
    conv_bias: _ParameterView | None
    weight: _ParameterView
    bias: _ParameterView
    workspaces: dict[Size, Workspace] = field(default_factory=dict)  # one per shape of images
    saved: SavedTensors = field(init=False)

    def __post_init__(self) -> None:
        out, channels, height, width = self.kernel.shape
        self._sides = out, channels, height * width
        self._kernel = torch.empty(out, height, width, channels).permute(0, 3, 1, 2)  # channels last

    def forward(self, model: Tensor, x: Tensor) -> Tensor:
        row = model.numpy()
        transpose(row[self.kernel.where].reshape(self._sides), _transposed(self._kernel))
        conv_bias = None if self.conv_bias is None else model[self.conv_bias.where]
        norm = row[self.weight.where], row[self.bias.where]
        x = x.contiguous(memory_format=torch.channels_last)
        self.saved = self.layer.run(x, self._kernel, conv_bias, *norm, self.workspaces.get(x.shape))
        workspace = self.workspaces[x.shape] = self.saved.workspace
        return workspace.out

    def backward(self, model: Tensor, grad_output: Tensor, out: Tensor, needs_grad_x: bool) -> Tensor:
        grad_x, grad_kernel = self.layer.backward(grad_output, self.saved, needs_grad_x)
        row, (grad_weight, grad_bias, grad_conv_bias) = out.numpy(), self.saved.workspace.grads[2]
        transpose(_transposed(grad_kernel), row[self.kernel.where].reshape(self._sides))
        row[self.weight.where], row[self.bias.where] = grad_weight, grad_bias
        if self.conv_bias is not None:
            row[self.conv_bias.where] = grad_conv_bias
        return grad_output if grad_x is None else grad_x


def _transposed(kernel: Tensor) -> Any:
    """(out, channels, height, width) as an array (out, height * width, channels)."""
    array = kernel.permute(0, 2, 3, 1).numpy()
    return array.reshape(len(array), -1, array.shape[-1])
