"""A torch module whose weights are those of whichever node's turn it is."""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.data.datasets import Batch


class BoundModule:
    """A module that is trained and tested with many nodes' weights, one after the other.

    A node's model is a row of all parameters that require a gradient, one after the other, and its buffers are a row of
    all numbers that the module changes in training, such as running statistics. `bind` makes the module's tensors views
    of such rows: nothing is copied. Called with a minibatch, it is whatever the module's `forward` takes and returns.
    """

    def __init__(self, module: nn.Module, target: str) -> None:
        self.module = module
        self._target = target  # the key of the targets in a minibatch that is a dictionary

    @cached_property
    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.module.parameters() if p.requires_grad]

    @cached_property
    def changing(self) -> list[Tensor]:
        """The module's buffers of numbers. Counts are not among them: torch's layers count batches only to average
        over all of them, which none does unless told to, and then there is no answer for several nodes."""
        for name, module in self.module.named_modules():
            if getattr(module, "track_running_stats", False) and getattr(module, "momentum", 0.1) is None:
                raise ValueError(f"layer {name!r} has momentum=None, which is not kept per node; give it a number")
        return [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]

    def bind(self, model: Tensor, buffers: Tensor) -> None:
        """Make the module's parameters and its buffers views of these rows."""
        for bound, row in ((self.parameters, model), (self.changing, buffers)):
            for tensor, values in zip(bound, torch.split(row, [tensor.numel() for tensor in bound]), strict=True):
                tensor.data = values.view(tensor.shape)

    def __call__(self, batch: Batch) -> tuple[Tensor | None, Any, Any]:
        """The loss that the model gave itself, if it did; its outputs; the targets of the batch, if it has any."""
        if isinstance(batch, Mapping):
            names, targets = self._arguments(tuple(batch)), batch.get(self._target)
            found = self.module(batch) if names is None else self.module(**{name: batch[name] for name in names})
        else:
            inputs, targets = batch
            found = self.module(*batch) if self.takes_targets else self.module(inputs)
        if isinstance(found, Mapping):  # as Hugging Face's models return it
            others = [value for key, value in found.items() if key != "loss"]
            return found.get("loss"), found.get("logits", others[0] if others else None), targets
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Tensor) and found[0].ndim == 0:
            return found[0], found[1], targets
        return None, found, targets

    def _arguments(self, keys: tuple[str, ...]) -> list[str] | None:
        """Which entries of a batch the model's forward takes by name; None: it takes the batch as it is."""
        taken = self._parameters_of_forward
        if named := [key for key in keys if key in taken]:
            return named
        by_any_name = any(one.kind is one.VAR_KEYWORD for one in taken.values())
        return list(keys) if by_any_name else None

    @cached_property
    def takes_targets(self) -> bool:
        """Does forward need two arguments, as forward(inputs, targets) -> loss, outputs does?"""
        kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        needed = [one for one in self._parameters_of_forward.values() if one.kind in kinds and one.default is one.empty]
        return len(needed) == 2

    @cached_property
    def _parameters_of_forward(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.module.forward).parameters


def with_weights(module: nn.Module, model: Tensor, buffers: Tensor) -> nn.Module:
    """The module with a copy of these rows, ready to be used."""
    trained = [p for p in module.parameters() if p.requires_grad]
    changing = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    with torch.no_grad():
        for tensors, row in ((trained, model), (changing, buffers)):
            for tensor, values in zip(tensors, torch.split(row, [t.numel() for t in tensors]), strict=True):
                tensor.copy_(values.view(tensor.shape))
    return module.eval()


def check_parameters(module: nn.Module) -> None:
    """ValueError if a trained parameter cannot be a part of a row. Tied ones are one parameter, and no trouble."""
    places: dict[int, str] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(f"parameter {name!r} has no shape yet; call the model once before you give it")
        if parameter.dtype != torch.float32:
            raise ValueError(f"parameter {name!r} is {parameter.dtype}; call .float() on the model")
        if parameter.numel() and (other := places.setdefault(parameter.untyped_storage().data_ptr(), name)) != name:
            raise ValueError(
                f"parameters {other!r} and {name!r} share memory; to tie them, let both be the same nn.Parameter"
            )
