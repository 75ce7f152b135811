"""What all blocks of a simulation see, in whatever process they run: their states, messages and results.

It lies in memory, or in files, that processes share.
"""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import wire
from gossamer.core import Message, Part, State, Task
from gossamer.core.state import map_tensors
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.ranks import Placement
from gossamer.wire.resync import ResyncLedger, has_cumulative, plain_bytes


class Memory:
    """Where tensors lie that processes see and write together: in memory, in a file each, or all in one file.

    Anonymous memory, because /dev/shm is 64 MB in many containers; forked processes have it in common. Files have no
    names, so they are gone when the tensors and the processes are, whatever way they end; and their room is taken at
    once, because a disk that is found full later kills the process that writes. A process that was not forked is given
    the one open file, asks for the same tensors in the same order, and finds them; that file is there as long as any of
    them.
    """

    def __init__(self, file: IO[bytes] | None = None, is_new: bool = True, directory: Path | None = None):
        self.file = file
        self._is_new = is_new
        self._directory = directory
        self._end = 0

    @classmethod
    def in_a_file(cls, directory: str | os.PathLike[str]) -> "Memory":
        return cls(TemporaryFile(dir=Path(directory)))

    @classmethod
    def in_files(cls, directory: str | os.PathLike[str]) -> "Memory":
        return cls(directory=Path(directory))

    def close(self) -> None:
        """Take no more; the tensors stay."""
        if self.file is not None:
            self.file.close()

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor; zeros, unless the memory is another process's."""
        num_bytes = prod(shape) * dtype.itemsize
        return torch.frombuffer(self._mapped(max(1, num_bytes)), dtype=torch.uint8)[:num_bytes].view(dtype).view(shape)

    def room(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Zeros of which few may ever be written: what nobody touches takes no memory. In memory, never in files."""
        num_bytes = max(1, prod(shape) * dtype.itemsize)
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        mapped = mmap.mmap(-1, num_bytes, flags=flags)
        return torch.frombuffer(mapped, dtype=torch.uint8)[: prod(shape) * dtype.itemsize].view(dtype).view(shape)

    def rows(self, number: int, row: Tensor) -> Tensor:
        """So many rows like this one, (1, ...), unless the memory is another process's."""
        tensor = self.zeros(number, *row.shape[1:], dtype=row.dtype)
        return tensor.copy_(row) if self._is_new else tensor

    def _mapped(self, num_bytes: int) -> mmap.mmap:
        if self._directory is not None:
            with TemporaryFile(dir=self._directory) as file:
                _take_room(file, 0, num_bytes)
                return mmap.mmap(file.fileno(), num_bytes)
        if self.file is None:
            return mmap.mmap(-1, num_bytes)
        start, pages = self._end, -(-num_bytes // mmap.ALLOCATIONGRANULARITY)
        if self._is_new:
            _take_room(self.file, start, num_bytes)
        self._end = start + pages * mmap.ALLOCATIONGRANULARITY
        return mmap.mmap(self.file.fileno(), num_bytes, offset=start)


def _take_room(file: IO[bytes], start: int, num_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), start, num_bytes)
        return
    file.seek(start)
    for written in range(0, num_bytes, 1 << 20):
        file.write(bytes(min(1 << 20, num_bytes - written)))
    file.flush()


@dataclass
class SharedState:
    """The nodes' states, the messages of the round, and what is reported of each node.

    States are those of the nodes that this rank hosts, b of n. Tables of n rows are the same in all ranks. Messages
    have room for all nodes, and those are there that hosted nodes sent or hear.
    """

    messages: Message  # (n * kept, width) rows: those of an exchange lie at (exchange mod kept) * n;
    # of a cumulative part the sum of all so far in the exchange's channel
    state: State  # (b, ...): where blocks keep theirs
    buffers: Tensor  # (b, K): those of the tasks' models, where blocks keep them
    losses: Tensor  # (n,) training loss of the round
    num_bytes: Tensor  # (n, number of parts, 3): header, indices, values of one message
    full_bytes: Tensor  # (n,): one message of full sharing
    reference_bytes: Tensor  # (n, number of encodings to compare with)
    mean: Tensor  # (D + K,): the mean of all nodes' models and of their buffers, as of the last evaluation
    scores: Tensor  # (shards of an evaluation, 2 or more): test loss, metric, and further metrics
    weights: Tensor  # (n,): push-sum weight, the mean over coefficients if each has its own
    masses: Tensor  # (kept, n): the same of the messages that are kept, before it is divided among receivers
    distances: Tensor  # (n,): of each node's model from the mean, as of the last evaluation
    frames: Tensor  # (b, bytes): the frames of hosted nodes for other ranks, if there are any
    came: Tensor  # (bytes,): those that came from other ranks, one behind the other
    resync_ledgers: Sequence[ResyncLedger]  # who was reached by what in each channel; none if nothing can be missed

    @property
    def frame_bytes(self) -> NDArray[np.int64]:
        """(n,): the length of each node's frame of this round."""
        lengths: NDArray[np.int64] = wire.Codec.frame_bytes + self.num_bytes.sum((1, 2)).numpy()
        return lengths

    def resync_ledger(self, exchange: int) -> ResyncLedger | None:
        """That of the exchange's channel."""
        return self.resync_ledgers[exchange % len(self.resync_ledgers)] if self.resync_ledgers else None

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        task: Task,
        num_shards: int,
        large: Memory,
        small: Memory,
        placement: Placement | None = None,
    ) -> "SharedState":
        """As before the first round, or as another process has it; what grows with the model is in `large`."""
        n, d = experiment.nodes, sum(task.layer_sizes)
        several = placement is not None and placement.num_ranks > 1
        num_hosted = n if placement is None else len(placement.hosted)
        message_rows = large.room if several else large.zeros
        frame_bytes = wire.Codec(experiment.algorithm.parts, d, experiment.seed).max_bytes if several else 0
        num_rows = n * experiment.delivery.kept  # messages that are late stay where they are until they arrive
        algorithm = experiment.optimizer.wrap(experiment.algorithm)
        one = algorithm.init(task.initial_model(experiment.seed)[None].clone())  # and every node starts there
        state = map_tensors(one, lambda _, row: large.rows(num_hosted, row))
        messages = {}
        for name, spec in algorithm.parts.items():
            width = d if spec.width is None else spec.width
            values = message_rows(num_rows, width, dtype=torch.float64 if spec.values == "float64" else torch.float32)
            marked = (spec.sparse or spec.seeded or spec.same_indices_as) and not spec.cumulative
            messages[name] = Part(values, message_rows(num_rows, width, dtype=torch.bool) if marked else None)
        return cls(
            messages=messages,
            state=state,
            buffers=small.rows(num_hosted, task.buffers[None]),
            losses=small.zeros(n),
            num_bytes=small.zeros(n, len(messages), 3, dtype=torch.int64),
            full_bytes=small.zeros(n, dtype=torch.int64),
            reference_bytes=small.zeros(n, len(experiment.wire.compare), dtype=torch.int64),
            mean=small.zeros(d + len(task.buffers)),
            scores=small.zeros(num_shards, 2 + len(task.more_metrics), dtype=torch.float64),
            weights=small.zeros(n, dtype=torch.float64),
            masses=small.zeros(experiment.delivery.kept, n, dtype=torch.float64),
            distances=small.zeros(n, dtype=torch.float64),
            frames=small.room(num_hosted if several else 0, frame_bytes, dtype=torch.uint8),
            came=small.room((n - num_hosted) * frame_bytes, dtype=torch.uint8),
            resync_ledgers=_ledgers(experiment, d, small),
        )


def push_sum_part(experiment: Experiment) -> str | None:
    """The part with push-sum weights, if there is an account to keep of them: some are lost, or late."""
    names = [name for name, spec in experiment.algorithm.parts.items() if spec.push_sum_weight]
    return names[0] if names and not experiment.delivery.complete else None


def _ledgers(experiment: Experiment, num_parameters: int, memory: Memory) -> list[ResyncLedger]:
    """One per channel; none if nothing can be missed, or it would not matter."""
    parts, delivery = experiment.algorithm.parts, experiment.delivery
    period = experiment.topology.period(experiment.nodes, experiment.seed)
    same_links = period > 0 and delivery.channels % period == 0  # in all exchanges of a channel
    if not has_cumulative(parts) or (same_links and delivery.complete):
        return []
    plain = plain_bytes(parts, num_parameters)
    return [ResyncLedger.of(experiment.nodes, plain, memory.zeros) for _ in range(delivery.channels)]
