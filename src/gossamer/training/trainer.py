"""How the gradients of many rows, one per node, are computed.

    "rows"      one model after the other, in a module whose parameters are views of its row: as fast as can be for
                convolutions and the like. Models of fused layers have their gradients computed by hand
    "batched"   chunks of rows at once: dense layers, and matrix factorization
    "vmap"      chunks of rows at once: other small models

Rows are taken in chunks whose size depends on the number of nodes alone, and processes host whole chunks, so the number
of processes changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.core import Samples, Task
from gossamer.data.supervised import Supervised
from gossamer.models.fused.chain import Chain
from gossamer.training.batched import Loss, Strategy, stacked, strategy_for, unfit


class Trainer:
    """Leaves it to the task, which takes one row after the other: what any task can do."""

    name: Strategy = "rows"  # what is reported
    chunk = 1  # rows that must stay together in one block
    device = "cpu"  # where gradients are computed, as torch names it; rows given to a trainer are there

    def __init__(self, task: Task):
        self.task = task
        if isinstance(task, Supervised):
            self.device = task.device

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D) of each row on its minibatch of training samples, as in `Task.gradient`."""
        return self.task.gradient(models, samples, seeds, buffers)

    def sgd_step_(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor, learning_rate: float
    ) -> Tensor:
        """Take a step of plain SGD in place: the losses (B,)."""
        losses, gradient = self.gradient(models, samples, seeds, buffers)
        models.sub_(learning_rate * gradient)
        return losses


class FusedTrainer(Trainer):
    """One row after the other, by hand instead of by autograd; images that do not fit are left to the module."""

    task: Supervised

    def __init__(self, task: Supervised, chain: Chain):
        super().__init__(task)
        self._chain, self._plain = chain, is_plain(task)
        few = np.arange(min(2, task.num_samples))
        with torch.random.fork_rng(devices=[]):  # compiles its kernels before processes are forked
            self.gradient(task.initial_model(0)[None], few[None], [0], task.buffers[None].clone())

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        losses, gradients = torch.zeros(len(models)), torch.empty_like(models)
        for row, (batch, seed) in enumerate(zip(samples, seeds, strict=True)):
            losses[row] = self._gradient_of_row(models[row], batch, seed, buffers[row], gradients[row])
        return losses, gradients

    def sgd_step_(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor, learning_rate: float
    ) -> Tensor:
        if not self._plain:
            return super().sgd_step_(models, samples, seeds, buffers, learning_rate)
        losses, gradient = torch.zeros(len(models)), torch.empty(models.shape[1])
        for row, (batch, seed) in enumerate(zip(samples, seeds, strict=True)):
            losses[row] = self._gradient_of_row(models[row], batch, seed, buffers[row], gradient)
            models[row].sub_(gradient, alpha=learning_rate)
        return losses

    def _gradient_of_row(
        self, model: Tensor, batch: Samples, seed: int, buffers: Tensor, out: Tensor
    ) -> Tensor | float:
        """The loss of a model on a minibatch; its gradient goes into `out`."""
        loss = self.task.loss
        inputs, targets = pair = self.task.minibatch(batch, seed)
        classify = self._plain and loss is nn.functional.cross_entropy and targets.dtype == torch.int64
        classes = targets if classify else None
        found = self._chain.gradient(model, inputs, lambda x: loss_and_gradient(loss, x, targets), out, classes)
        return self.task.gradient_of_row(model, buffers, pair, out) if found is None else found


def loss_and_gradient(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of one model's outputs, and its derivatives by them."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        found = loss(leaf, targets)
        return found.detach(), torch.autograd.grad(found, leaf)[0]


class BatchedTrainer(Trainer):
    """A chunk of rows at once, by the "batched" or the "vmap" strategy."""

    task: Supervised

    def __init__(self, task: Supervised, strategy: Strategy, chunk: int):
        super().__init__(task)
        self.name, self.chunk = strategy, chunk
        self._stacked = stacked(strategy, task.module, task.loss)

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        chunks = [self._stacked.gradient(models[rows], *data) for rows, data in self._chunks(samples, seeds)]
        losses, gradients = zip(*chunks, strict=True)
        return torch.cat(losses), torch.cat(gradients)

    def sgd_step_(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor, learning_rate: float
    ) -> Tensor:
        chunks = self._chunks(samples, seeds)
        return torch.cat([self._stacked.sgd_step_(models[rows], *data, learning_rate) for rows, data in chunks])

    def _chunks(self, samples: Samples, seeds: Sequence[int]) -> Iterator[tuple[slice, tuple[Tensor, Tensor]]]:
        """The rows of each chunk and their minibatches. What is random in these belongs to the chunk."""
        for start in range(0, len(samples), self.chunk):
            rows = slice(start, start + self.chunk)
            yield rows, self.task.minibatch(samples[rows], seeds[start])


def chunk_for(nodes: int) -> int:
    """Rows at a time: enough to hide what an operation costs beside its arithmetic, and at least four chunks if the
    nodes suffice, so that processes share them evenly."""
    return min(max(-(-nodes // 4), 16), 64)


def is_plain(task: Supervised) -> bool:
    """Can minibatches be had and taken together? Targets below 0 are what cross-entropy leaves out."""
    tensors = isinstance(task.train, tuple) and task.augment is None and task.gives_pairs
    return tensors and (task.labels is None or bool(task.labels.min() >= 0))


def trainer_for(task: Task, strategy: Literal["auto"] | Strategy, nodes: int) -> Trainer:
    """The trainer of a task by this strategy, or by the one that suits it; ValueError if the strategy does not."""
    if not isinstance(task, Supervised):
        if strategy not in ("auto", "rows"):
            raise ValueError(f"{strategy} was given, and task {type(task).__name__} has no choice of it")
        return Trainer(task)
    if is_plain(task):
        with torch.random.fork_rng(devices=[]):
            inputs, _ = task.minibatch(np.arange(1), 0)
        if strategy == "auto":
            strategy = strategy_for(task.module, task.loss, inputs)
        if reason := unfit(strategy, task.module, task.loss, inputs):
            raise ValueError(f'{strategy!r} was given, and for it {reason}; take "rows"')
        if strategy != "rows":
            return BatchedTrainer(task, strategy, chunk_for(nodes))
    elif strategy not in ("auto", "rows"):
        needs = "data that are two tensors, with targets from 0 on, not augmented"
        raise ValueError(f'{strategy!r} needs {needs}; take "rows"')
    chain = Chain.of(task.module) if task.device == "cpu" and task.gives_pairs else None
    return Trainer(task) if chain is None else FusedTrainer(task, chain)
