"""Compile the kernels of a round, or load them from numba's cache, once and before worker processes fork."""

from functools import cache

import numpy as np
import torch

from gossamer import wire
from gossamer.compressors import largest
from gossamer.core import chosen, partial_average, picked
from gossamer.engines.inbox import BlockInbox, Edges


@cache
def warm() -> None:
    """Carry a small message through selection, coding and averaging."""
    wire.warm()
    x = torch.ones(1, 2)
    part = chosen(x, largest(x, torch.full((1, 1), 0.5)))
    assert part.sent is not None
    picked(part.sent, x, x)
    nobody = np.zeros(1, np.int64)
    partial_average(x, BlockInbox({"x": part}, Edges(np.array([0, 1]), nobody, nobody, np.ones(1)), [0]), "x")
