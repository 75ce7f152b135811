"""What a step really takes, and how long messages really are: measured beside the formulas of `cost`."""

import os
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from gossamer.algorithms import ALGORITHMS, DeepSqueeze
from gossamer.compressors import Quantize
from gossamer.core import Algorithm, Round
from gossamer.rng import Streams
from gossamer.topologies import DirectedRing, Ring
from gossamer.wire import Codec

_ROWS = 4  # nodes whose messages are measured at once
_ROUNDS = 16


def peak_bytes(step: Callable[[], object]) -> int:
    """The most that torch holds at once of what it allocates in a step. It must leave nothing behind."""
    step()  # what is made once is not the step's
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler tells of its start on standard error
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    assert profiled.profiler is not None
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(held, default=0)


def message_bytes(name: str, module: nn.Module, nodes: int) -> float:
    """The mean length of a message to one neighbour, framed, by the encoder of simulation and network.

    Messages are those of the first rounds on a ring of so many nodes that start from the module's weights and take a
    random step. "deep-squeeze-int8" is DeepSqueeze whose model travels in eight bits.
    """
    algorithm: Algorithm = DeepSqueeze(Quantize(8)) if name == "deep-squeeze-int8" else ALGORITHMS[name]()
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()
    sizes = tuple(p.numel() for p in module.parameters())
    topology = DirectedRing() if "column_stochastic" in algorithm.requires else Ring()
    algorithm = algorithm.prepare(topology.at(nodes, 0, 0), sizes)
    codec = Codec(algorithm.parts, len(weights), seed=0)
    state, gradient = algorithm.init(weights.repeat(_ROWS, 1)), _gradient(weights, _ROWS)
    lengths: list[int] = []
    for number in range(_ROUNDS):
        round = Round(number, 0.1, Streams(0, range(_ROWS), number), 10**6, 1, layer_sizes=sizes)
        message, _ = algorithm.send(algorithm.local_step(state, gradient, round), round)
        parts = [part.total for part in codec.num_bytes(message).values()]
        lengths += (codec.frame_bytes + np.sum(parts, axis=0)).tolist()
        if max(lengths) < 1.05 * min(lengths):
            break  # how much is sent is not drawn, so that more messages would tell nothing new
    return sum(lengths) / len(lengths)


def _gradient(weights: Tensor, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, len(weights), generator=generator) * weights.square().mean().sqrt()
