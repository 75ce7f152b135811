"""Compile kernels, or load them from their cache, before worker processes fork and before time is measured.

Those of a model are compiled when its task is loaded, which tries it out, and by its trainer.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer import wire
from gossamer.core import Samples, Task
from gossamer.core.inbox import Arrival, BlockInbox
from gossamer.core.kernels import compilation
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.block_runner import edges_of
from gossamer.training.block import Block
from gossamer.training.trainer import Trainer


def precompile(experiment: Experiment, task: Task, samples: Samples, counted: bool = False) -> None:
    """The kernels that a round of a prepared experiment needs; `counted`: its messages never become bytes."""
    wire.precompile(counted)
    with suppress(Exception):  # the round itself will tell what is wrong, and where
        _rehearse(replace(experiment, local_steps=1), task, samples, counted)
    compilation.done()


class _NoTraining(Trainer):
    """Gradients of zero: the task's own were tried out when it was loaded."""

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(models)), torch.zeros_like(models)


def _rehearse(experiment: Experiment, task: Task, samples: Samples, counted: bool) -> None:
    """A round of the first node, whose results are forgotten. Its neighbours send what it sends."""
    block = Block(experiment, _NoTraining(task), [0], [samples], task.initial_model(experiment.seed)[None])
    block.train(0)
    message = block.send(0)
    edges = edges_of(experiment.delivery, 0, slice(0, 1))
    edges = edges._replace(positions=np.zeros_like(edges.positions))
    block.receive(0, BlockInbox(message, edges, [0]))
    if not counted:  # a peer's inbox is another kind of array to numba
        block.receive(0, BlockInbox.of_arrivals([[Arrival(0, 1.0, message, True)]]))
