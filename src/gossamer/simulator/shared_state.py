"""The board: memory that all blocks of a simulation see, in whatever process they run."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import wire
from gossamer.core import Message, Part, State, Task
from gossamer.core.state import map_tensors
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.shared_memory import Memory
from gossamer.wire.resync import ResyncLedger, has_cumulative, plain_bytes


@dataclass
class SharedState:
    """Memory that all blocks see: the messages of the round, and what is reported of each node."""

    messages: Message  # (n, width) rows, or (n * depth, width): those of a round lie at (round mod depth) * n;
    # of a running part the sum of all so far
    state: State  # (n, ...): where blocks keep theirs
    buffers: Tensor  # (n, K): those of the tasks' models, where blocks keep them
    losses: Tensor  # (n,) training loss of the round
    num_bytes: Tensor  # (n, number of parts, 3): header, indices, values of one message
    full_bytes: Tensor  # (n,): one message of full sharing
    reference_bytes: Tensor  # (n, number of encodings to compare with)
    mean: Tensor  # (D + K,): the mean of all nodes' models and of their buffers, as of the last evaluation
    scores: Tensor  # (shards of an evaluation, 2): test loss and metric
    weights: Tensor  # (n,): push-sum weight, the mean over coefficients if each has its own
    resync_ledger: ResyncLedger | None  # who was reached by what, if messages can be missed

    @property
    def frame_bytes(self) -> NDArray[np.int64]:
        """(n,): the length of each node's frame of this round."""
        lengths: NDArray[np.int64] = wire.Codec.frame_bytes + self.num_bytes.sum((1, 2)).numpy()
        return lengths

    @classmethod
    def of(cls, experiment: Experiment, task: Task, num_shards: int, large: Memory, small: Memory) -> "SharedState":
        """The board before the first round, or as another process has it; what grows with the model is `large`."""
        n, d = experiment.nodes, sum(task.layer_sizes)
        num_rows = n * experiment.delivery.depth  # messages that are late stay where they are until they arrive
        algorithm = experiment.optimizer.wrap(experiment.algorithm)
        one = algorithm.init(task.initial_model(experiment.seed)[None].clone())  # and every node starts there
        state = map_tensors(one, lambda _, row: large.rows(n, row))
        messages = {}
        for name, spec in algorithm.parts.items():
            width = d if spec.width is None else spec.width
            values = large.zeros(num_rows, width, dtype=torch.float64 if spec.values == "float64" else torch.float32)
            marked = (spec.sparse or spec.seeded or spec.same_indices_as) and not spec.cumulative
            messages[name] = Part(values, large.zeros(num_rows, width, dtype=torch.bool) if marked else None)
        return cls(
            messages=messages,
            state=state,
            buffers=small.rows(n, task.buffers[None]),
            losses=small.zeros(n),
            num_bytes=small.zeros(n, len(messages), 3, dtype=torch.int64),
            full_bytes=small.zeros(n, dtype=torch.int64),
            reference_bytes=small.zeros(n, len(experiment.wire.compare), dtype=torch.int64),
            mean=small.zeros(d + len(task.buffers)),
            scores=small.zeros(num_shards, 2, dtype=torch.float64),
            weights=small.zeros(n, dtype=torch.float64),
            resync_ledger=_ledger(experiment, d, small),
        )


def _ledger(experiment: Experiment, num_parameters: int, memory: Memory) -> ResyncLedger | None:
    """None if nothing can be missed, or it would not matter."""
    parts = experiment.algorithm.parts
    if not has_cumulative(parts) or (experiment.topology.static and not experiment.faults.any):
        return None
    return ResyncLedger.of(experiment.nodes, plain_bytes(parts, num_parameters), memory.zeros)
