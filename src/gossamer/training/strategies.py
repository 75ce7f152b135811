"""Gradients of many small models at once.

One module after the other, its parameters being views of a row, is as fast as can be for convolutions and the like.
For a model of a few thousand parameters nearly all of that time is spent between the operations. So, where it pays:

    "batched"   chains of dense layers as products of stacks of matrices, one a node; matrix factorization by a kernel
    "vmap"      other small models without buffers and randomness, by torch.func.vmap

The choice is by a rule on the model, never by a timing: the same seed must give the same run. Rows are taken in chunks
whose size depends on the number of nodes alone, and processes host whole chunks, so the number of processes changes
nothing. Sums run in another order than in a module of one's own: models differ from those of "rows" in the last bits.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gossamer.models.fused.layers import ConvNormPool, FastEvoNormS0
from gossamer.models.matrix_factorization import Factorization, add_gradients

Strategy = Literal["rows", "batched", "vmap"]
Loss = Callable[[Tensor, Tensor], Tensor]

_SLOPES: dict[type[nn.Module], Callable[[Tensor, Tensor], Tensor]] = {  # back through activations that returned y
    nn.ReLU: lambda slope, y: torch.ops.aten.threshold_backward(slope, y, 0),
    nn.Tanh: torch.ops.aten.tanh_backward,
    nn.Sigmoid: torch.ops.aten.sigmoid_backward,
}
_ROW_WISE = (*_SLOPES, nn.GELU, nn.SiLU, nn.ELU, nn.Linear, nn.Flatten, nn.LayerNorm, nn.GroupNorm, nn.Sequential)
_SMALL = 20_000  # parameters


def chunk_for(nodes: int) -> int:
    """Rows at a time: enough to hide what an operation costs beside its arithmetic, and at least four chunks if the
    nodes suffice, so that processes share them evenly."""
    return min(max(-(-nodes // 4), 16), 64)


def strategy_for(module: nn.Module, loss: Loss, inputs: Tensor) -> Strategy:
    """The strategy of a model that takes such inputs, if none is asked for."""
    if unfit("batched", module, loss, inputs) is None:
        return "batched"
    tame = all(type(part) in _ROW_WISE for part in module.modules())  # a subclass may do anything
    small = sum(parameter.numel() for parameter in module.parameters()) <= _SMALL
    return "vmap" if tame and small and unfit("vmap", module, loss, inputs) is None else "rows"


def unfit(strategy: Strategy, module: nn.Module, loss: Loss, inputs: Tensor) -> str | None:
    """Why a strategy cannot do a model that takes such inputs; None if it can."""
    if strategy == "rows":
        return None
    if any(not parameter.requires_grad for parameter in module.parameters()) or any(True for _ in module.buffers()):
        return "every parameter must be trained, and there must be no buffers"
    chain = _chain(module)
    if strategy == "batched" and not chain and not is_factorization(module, loss):
        return "the model must be a chain (nn.Sequential) of nn.Linear layers and ReLU, Tanh or Sigmoid"
    if strategy == "batched" and chain and inputs.ndim > 2 and not isinstance(chain[0], nn.Flatten):
        return "inputs must be vectors, or the first layer nn.Flatten"
    if strategy == "vmap" and any(isinstance(part, (ConvNormPool, FastEvoNormS0)) for part in module.modules()):
        return "there must be no fast layers"
    if strategy == "vmap" and any(isinstance(part, nn.modules.dropout._DropoutNd) for part in module.modules()):
        return "what is random in a model must come from its node's own stream, so there must be no dropout"
    return None


def is_factorization(module: nn.Module, loss: Loss) -> bool:
    """Is it matrix factorization with its usual loss, for which there is a kernel?"""
    return isinstance(module, Factorization) and loss is nn.functional.mse_loss


class BatchedTrainer:
    """The models of a chunk, (B, D), on their minibatches, (B, b, ...), by a strategy that suits them."""

    def __init__(self, strategy: Strategy, module: nn.Module, loss: Loss):
        self._module, self._loss = module, loss
        self._factors = strategy == "batched" and is_factorization(module, loss)
        self._layers = _chain(module) if strategy == "batched" else []
        self._shapes = [parameter.shape for parameter in module.parameters()]
        self._sizes = [shape.numel() for shape in self._shapes]

    def descend(self, models: Tensor, inputs: Tensor, targets: Tensor, learning_rate: float) -> Tensor:
        """Take a step of gradient descent in place, by the "batched" strategy: the losses (B,)."""
        if self._factors:
            return self._add_gradients(models, inputs, targets, -learning_rate, models)
        parameters = self._split(models)
        losses, steps = _through_chain(self._layers, self._loss, parameters, inputs, targets, learning_rate)
        for parameter, step in zip(parameters, steps, strict=True):
            parameter.sub_(step)
        return losses

    def gradients(self, models: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D)."""
        if self._factors:
            found = torch.zeros_like(models)
            return self._add_gradients(models, inputs, targets, 1.0, found), found
        if self._layers:
            losses, slopes = _through_chain(self._layers, self._loss, self._split(models), inputs, targets)
        else:
            losses, slopes = _mapped(self._module, self._loss, self._split(models), inputs, targets)
        return losses, torch.cat([slope.flatten(1) for slope in slopes], dim=-1)

    def _split(self, models: Tensor) -> list[Tensor]:
        """The rows' parameters, (B, ...) each: views."""
        pieces = models.split_with_sizes(self._sizes, dim=-1)
        return [piece.view(-1, *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def _add_gradients(self, models: Tensor, inputs: Tensor, targets: Tensor, scale: float, out: Tensor) -> Tensor:
        assert isinstance(self._module, Factorization)
        sizes = self._module.users.num_embeddings, self._module.items.num_embeddings
        arrays = models.numpy(), inputs.numpy(), targets.numpy()
        return torch.from_numpy(add_gradients(*arrays, *sizes, scale, out.numpy()))


def _chain(module: nn.Module) -> list[nn.Module]:
    """The layers of a chain of dense layers and activations; none for any other model."""
    if isinstance(module, nn.Sequential):
        parts = [_chain(part) for part in module]
        return [layer for part in parts for layer in part] if all(parts) else []
    flattens = isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
    return [module] if flattens or type(module) in (nn.Linear, *_SLOPES) else []


def _through_chain(
    layers: Sequence[nn.Module],
    loss: Loss,
    parameters: Sequence[Tensor],
    inputs: Tensor,
    targets: Tensor,
    scale: float = 1.0,
) -> tuple[Tensor, list[Tensor]]:
    """Losses and scale * gradients: forward, and backward by hand, for autograd would take longer than the products.

    A minibatch is a matrix of one column a sample: products with the weights on the left are the quicker ones.
    """
    flattens = any(isinstance(layer, nn.Flatten) for layer in layers)
    x = (inputs.flatten(2) if flattens else inputs).transpose(1, 2)
    at, taken = 0, []  # taken: of each layer its input, or output, and the place of its parameters
    for layer in layers:
        if isinstance(layer, nn.Linear):
            taken.append((x, at))
            weights, bias = parameters[at], None if layer.bias is None else parameters[at + 1][..., None]
            x = torch.bmm(weights, x) if bias is None else torch.baddbmm(bias, weights, x)
            at += 1 if bias is None else 2
        else:
            x = x if isinstance(layer, nn.Flatten) else layer(x)
            taken.append((x, at))
    losses, slope = _loss(loss, x, targets)
    slope *= scale  # here, where it is smallest
    found, ones = [slope] * len(parameters), slope.new_ones(slope.shape[-1])
    for layer, (x, at) in zip(reversed(layers), reversed(taken), strict=True):
        if isinstance(layer, nn.Linear):
            found[at] = torch.bmm(slope, x.transpose(1, 2))
            if layer.bias is not None:
                found[at + 1] = slope.matmul(ones)  # a sum over the samples, quicker than `sum`
            if at > 0:
                slope = torch.bmm(parameters[at].transpose(1, 2), slope)
        elif type(layer) in _SLOPES and at > 0:
            slope = _SLOPES[type(layer)](slope, x)
    return losses, found


def _loss(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of the rows, and their derivatives by the outputs (B, ..., b), of which every column is a sample's."""
    if loss is nn.functional.cross_entropy and targets.ndim == 2 and not targets.is_floating_point():
        at = targets.long()[:, None]
        slope = outputs.log_softmax(1)
        losses = slope.gather(1, at).mean((1, 2)).neg_()
        slope.exp_().scatter_add_(1, at, torch.full((1, 1, 1), -1.0).expand(at.shape))
        return losses, slope.div_(targets.shape[1])
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        losses = torch.vmap(loss)(leaf.movedim(-1, 1).contiguous(), targets)
        return losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]


def loss_of_one(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of one model's outputs, and its derivatives by them."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        found = loss(leaf, targets)
        return found.detach(), torch.autograd.grad(found, leaf)[0]


def _mapped(
    module: nn.Module, loss: Loss, parameters: Sequence[Tensor], inputs: Tensor, targets: Tensor
) -> tuple[Tensor, list[Tensor]]:
    names = [name for name, _ in module.named_parameters()]

    def loss_of(x: Tensor, y: Tensor, *row: Tensor) -> Tensor:
        return loss(torch.func.functional_call(module, dict(zip(names, row, strict=True)), (x,)), y)

    leaves = [parameter.detach().requires_grad_() for parameter in parameters]
    losses: Tensor = torch.vmap(loss_of)(inputs, targets, *leaves)
    return losses.detach(), list(torch.autograd.grad(losses.sum(), leaves))  # rows do not meet: each has its own
