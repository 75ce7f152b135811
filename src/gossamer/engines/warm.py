"""Compile the kernels of a round, or load them from numba's cache, once and before worker processes fork."""

import numpy as np
import torch

from gossamer import wire
from gossamer.compressors import largest
from gossamer.core import Task, chosen, partial_average, picked
from gossamer.engines.host import Codecs
from gossamer.engines.inbox import BlockInbox, Edges
from gossamer.experiment import Experiment


def warm(experiment: Experiment, task: Task) -> None:
    """Carry a small message through selection and averaging, and others through the experiment's codecs."""
    x = torch.ones(1, 2)
    part = chosen(x, largest(x, torch.full((1, 1), 0.5)))
    assert part.sent is not None
    picked(part.sent, x, x)
    nobody = np.zeros(1, np.int64)
    partial_average(x, BlockInbox({"x": part}, Edges(np.array([0, 1]), nobody, nobody, np.ones(1)), [0]), "x")
    codecs = Codecs(experiment, task)
    wire.warm(codecs.full, counted=True)
    for codec in (codecs.messages, codecs.resync):
        wire.warm(codec, counted=experiment.wire.mode == "count")
