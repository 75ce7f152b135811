"""Gradients of many small models at once: a chunk of rows (B, D) on its minibatches (B, b, ...).

For a model of a few thousand parameters nearly all of the time of one module after the other is spent between the
operations. Here an operation does all rows:

    StackedChain            dense layers one after the other, as products of stacks of matrices, one matrix per node
    StackedFactorization    matrix factorization, by a kernel that touches only the parameters of the minibatches
    VmappedModule           other small models without buffers and randomness, by torch.func.vmap

Sums run in another order than in a module of one's own: models differ from those of "rows" in the last bits.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from gossamer.models.fused.layers import ConvNormPool, FastEvoNormS0
from gossamer.models.matrix_factorization import Factorization, add_gradients

Strategy = Literal["rows", "batched", "vmap"]
Loss = Callable[[Tensor, Tensor], Tensor]

_BACKWARD: dict[type[nn.Module], Callable[[Tensor, Tensor], Tensor]] = {  # of activations that returned y
    nn.ReLU: lambda grad_output, y: torch.ops.aten.threshold_backward(grad_output, y, 0),
    nn.Tanh: torch.ops.aten.tanh_backward,
    nn.Sigmoid: torch.ops.aten.sigmoid_backward,
}
_ROW_WISE = (*_BACKWARD, nn.GELU, nn.SiLU, nn.ELU, nn.Linear, nn.Flatten, nn.LayerNorm, nn.GroupNorm, nn.Sequential)
_SMALL = 20_000  # parameters


def strategy_for(module: nn.Module, loss: Loss, inputs: Tensor) -> Strategy:
    """The strategy of a model that takes such inputs, if none is asked for.

    By a rule on the model, never by a timing: the same seed must give the same run.
    """
    if unfit("batched", module, loss, inputs) is None:
        return "batched"
    row_wise = all(type(part) in _ROW_WISE for part in module.modules())  # a subclass may do anything
    small = sum(parameter.numel() for parameter in module.parameters()) <= _SMALL
    return "vmap" if row_wise and small and unfit("vmap", module, loss, inputs) is None else "rows"


def unfit(strategy: Strategy, module: nn.Module, loss: Loss, inputs: Tensor) -> str | None:
    """Why a strategy cannot do a model that takes such inputs; None if it can."""
    if strategy == "rows":
        return None
    if any(not parameter.requires_grad for parameter in module.parameters()) or any(True for _ in module.buffers()):
        return "every parameter must be trained, and there must be no buffers"
    chain = _dense_chain(module)
    if strategy == "batched" and _is_factorization(module, loss) and inputs.device.type != "cpu":
        return "matrix factorization is done by a kernel for the CPU"
    if strategy == "batched" and not chain and not _is_factorization(module, loss):
        return "the model must be a chain (nn.Sequential) of nn.Linear layers and ReLU, Tanh or Sigmoid"
    if strategy == "batched" and chain and inputs.ndim > 2 and not isinstance(chain[0], nn.Flatten):
        return "inputs must be vectors, or the first layer nn.Flatten"
    if strategy == "vmap" and any(isinstance(part, (ConvNormPool, FastEvoNormS0)) for part in module.modules()):
        return "there must be no fast layers"
    if strategy == "vmap" and any(isinstance(part, nn.modules.dropout._DropoutNd) for part in module.modules()):
        return "what is random in a model must come from its node's own stream, so there must be no dropout"
    return None


def _is_factorization(module: nn.Module, loss: Loss) -> bool:
    """Is it matrix factorization with its usual loss, for which there is a kernel?"""
    return isinstance(module, Factorization) and loss is nn.functional.mse_loss


def _dense_chain(module: nn.Module) -> list[nn.Module]:
    """The layers of a chain of dense layers and activations; none for any other model."""
    if isinstance(module, nn.Sequential):
        parts = [_dense_chain(part) for part in module]
        return [layer for part in parts for layer in part] if all(parts) else []
    flattens = isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
    return [module] if flattens or type(module) in (nn.Linear, *_BACKWARD) else []


class StackedModels(Protocol):
    """The models of a chunk, (B, D), on their minibatches, (B, b, ...)."""

    def gradient(self, models: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D)."""

    def sgd_step_(self, models: Tensor, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        """Take a step of plain SGD in place: the losses (B,)."""


def stacked(strategy: Strategy, module: nn.Module, loss: Loss) -> StackedModels:
    """The rows of a model that fits the strategy."""
    if strategy == "vmap":
        return VmappedModule(module, loss)
    if isinstance(module, Factorization):
        return StackedFactorization(module)
    return StackedChain(module, loss)


class StackedFactorization:
    """Matrix factorization with the mean squared error."""

    def __init__(self, module: Factorization):
        self._sizes = module.users.num_embeddings, module.items.num_embeddings, module.biased
        model = torch.zeros(1, sum(parameter.numel() for parameter in module.parameters()))
        self.gradient(model, torch.zeros(1, 1, 2, dtype=torch.int64), torch.zeros(1, 1))  # compiles before forks

    def gradient(self, models: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        gradients = torch.zeros_like(models)
        return self._add_gradients(models, inputs, targets, 1.0, gradients), gradients

    def sgd_step_(self, models: Tensor, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        return self._add_gradients(models, inputs, targets, -learning_rate, models)

    def _add_gradients(self, models: Tensor, inputs: Tensor, targets: Tensor, scale: float, out: Tensor) -> Tensor:
        arrays = models.numpy(), inputs.numpy(), targets.numpy()
        return torch.from_numpy(add_gradients(*arrays, *self._sizes, scale, out.numpy()))


class StackedChain:
    """Dense layers and activations, one after the other."""

    def __init__(self, module: nn.Module, loss: Loss):
        self._layers, self._loss = _dense_chain(module), loss
        self._shapes = [parameter.shape for parameter in module.parameters()]

    def gradient(self, models: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        losses, gradients = self._backpropagate(_split(models, self._shapes), inputs, targets)
        return losses, _joined(gradients)

    def sgd_step_(self, models: Tensor, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        parameters = _split(models, self._shapes)
        losses, steps = self._backpropagate(parameters, inputs, targets, learning_rate)
        for parameter, step in zip(parameters, steps, strict=True):
            parameter.sub_(step)
        return losses

    def _backpropagate(
        self, parameters: Sequence[Tensor], inputs: Tensor, targets: Tensor, scale: float = 1.0
    ) -> tuple[Tensor, list[Tensor]]:
        """Losses and scale * gradients: forward, and backward by hand, for autograd would take longer than the
        products. A minibatch is a matrix of one column per sample: products with the weights on the left are quicker.
        """
        flattens = any(isinstance(layer, nn.Flatten) for layer in self._layers)
        x = (inputs.flatten(2) if flattens else inputs).transpose(1, 2)
        at, saved = 0, []  # saved: of each layer its input, or output, and the place of its parameters
        for layer in self._layers:
            if isinstance(layer, nn.Linear):
                saved.append((x, at))
                weights, bias = parameters[at], None if layer.bias is None else parameters[at + 1][..., None]
                x = torch.bmm(weights, x) if bias is None else torch.baddbmm(bias, weights, x)
                at += 1 if bias is None else 2
            else:
                x = x if isinstance(layer, nn.Flatten) else layer(x)
                saved.append((x, at))
        losses, grad_output = _losses(self._loss, x, targets)
        grad_output *= scale  # here, where it is smallest
        gradients, ones = [grad_output] * len(parameters), grad_output.new_ones(grad_output.shape[-1])
        for layer, (x, at) in zip(reversed(self._layers), reversed(saved), strict=True):
            if isinstance(layer, nn.Linear):
                gradients[at] = torch.bmm(grad_output, x.transpose(1, 2))
                if layer.bias is not None:
                    gradients[at + 1] = grad_output.matmul(ones)  # a sum over the samples, quicker than `sum`
                if at > 0:
                    grad_output = torch.bmm(parameters[at].transpose(1, 2), grad_output)
            elif type(layer) in _BACKWARD and at > 0:
                grad_output = _BACKWARD[type(layer)](grad_output, x)
        return losses, gradients


def _losses(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of the rows, and their derivatives by the outputs (B, ..., b), of which every column is a sample's."""
    if loss is nn.functional.cross_entropy and targets.ndim == 2 and not targets.is_floating_point():
        at = targets.long()[:, None]
        grad_output = outputs.log_softmax(1)
        losses = grad_output.gather(1, at).mean((1, 2)).neg_()
        grad_output.exp_().scatter_add_(1, at, grad_output.new_full((1, 1, 1), -1.0).expand(at.shape))
        return losses, grad_output.div_(targets.shape[1])
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        losses = torch.vmap(loss)(leaf.movedim(-1, 1).contiguous(), targets)
        return losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]


class VmappedModule:
    """Any module whose forward pass torch.func.vmap can map over rows."""

    def __init__(self, module: nn.Module, loss: Loss):
        self._module, self._loss = module, loss
        self._shapes = [parameter.shape for parameter in module.parameters()]
        self._names = [name for name, _ in module.named_parameters()]

    def gradient(self, models: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if not self._module.training:  # since an evaluation
            self._module.train()
        leaves = [parameter.detach().requires_grad_() for parameter in _split(models, self._shapes)]
        losses: Tensor = torch.vmap(self._loss_of_row)(inputs, targets, *leaves)
        gradients = torch.autograd.grad(losses.sum(), leaves)  # rows do not meet: each has its own
        return losses.detach(), _joined(gradients)

    def _loss_of_row(self, inputs: Tensor, targets: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(self._names, parameters, strict=True))
        return self._loss(torch.func.functional_call(self._module, named, (inputs,)), targets)

    def sgd_step_(self, models: Tensor, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        losses, gradient = self.gradient(models, inputs, targets)
        models.sub_(learning_rate * gradient)
        return losses


def _split(models: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The rows' parameters, (B, ...) each: views."""
    pieces = models.split_with_sizes([shape.numel() for shape in shapes], dim=-1)
    return [piece.view(-1, *shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _joined(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten(1) for gradient in gradients], dim=-1)
