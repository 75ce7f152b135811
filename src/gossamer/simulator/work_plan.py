"""What workers do in a stage, cut into units that any of them can take: blocks of nodes, or some pieces of tests.

A unit is at first one worker's own, so that what it keeps of its nodes is used again; who has done its own takes what
others have not begun.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gossamer.simulator.evaluation import EvaluationShard
from gossamer.simulator.prepared import PreparedExperiment

BLOCK_BYTES = 4 << 20  # of a block's models: so that what is computed from them is small, and near the processor
LEAST_BYTES = 1 << 20  # where more blocks are wanted, none is smaller: each takes some tenths of a millisecond itself
NUM_UNITS = 8  # a worker, where none gets too small: the last one is what others wait for


@dataclass(frozen=True)
class WorkPlan:
    """The units of every stage, and whose they are at first."""

    blocks: Sequence[Sequence[range]]  # each worker's, nodes ascending
    pieces: Sequence[EvaluationShard]

    @classmethod
    def of(cls, ready: PreparedExperiment, num_workers: int) -> "WorkPlan":
        chunk = getattr(ready.task, "chunk", 1)
        chunk_bytes = 4 * sum(ready.task.layer_sizes) * chunk
        runs = split(range(ready.experiment.nodes), num_workers, chunk)
        numbers = [_num_blocks(-(-len(run) // chunk), chunk_bytes, len(runs)) for run in runs]
        return cls([split(run, number, chunk) for run, number in zip(runs, numbers, strict=True)], ready.pieces)

    @property
    def num_workers(self) -> int:
        return len(self.blocks)

    def by_worker(self, stage: str) -> list[range]:
        """The numbers of each worker's own units."""
        if stage == "test":
            return [range(number, self._num_tests, self.num_workers) for number in range(self.num_workers)]
        ends = np.cumsum([0, *map(len, self.blocks)]).tolist()
        return [range(start, end) for start, end in pairwise(ends)]

    def tests(self, unit: int) -> range:
        """The numbers of the pieces in a unit of tests."""
        return range(unit, len(self.pieces), self._num_tests)

    @property
    def _num_tests(self) -> int:
        return min(len(self.pieces), NUM_UNITS * self.num_workers)

    def name(self, stage: str, unit: int) -> str:
        """What an error says of a unit."""
        if stage == "test":
            return f"tests {unit + 1} of {self._num_tests}"
        nodes = [block for share in self.blocks for block in share][unit]
        return f"nodes {nodes[0]} to {nodes[-1]}"


def _num_blocks(num_chunks: int, chunk_bytes: int, num_workers: int) -> int:
    """Of one of so many workers, whose nodes are so many chunks."""
    needed = -(-num_chunks // max(1, BLOCK_BYTES // chunk_bytes))
    wanted = min(NUM_UNITS, num_chunks * chunk_bytes // LEAST_BYTES)
    return needed if num_workers == 1 else max(needed, wanted)


def split(nodes: range, number: int, chunk: int) -> list[range]:
    """The nodes in so many runs of whole chunks, as even as can be; fewer, if there are not enough chunks."""
    firsts = np.arange(nodes.start, nodes.stop, chunk)
    starts = [int(part[0]) for part in np.array_split(firsts, min(number, len(firsts)))]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], nodes.stop], strict=True)]
