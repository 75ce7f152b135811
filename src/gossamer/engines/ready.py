"""An experiment with what it is run on: all of it follows from the experiment, and is the same in every process."""

from collections.abc import Sequence
from typing import NamedTuple

from gossamer.core import Samples, Task
from gossamer.engines.testing import Piece, pieces_of
from gossamer.experiment import Experiment


class Ready(NamedTuple):
    """An experiment that can run."""

    experiment: Experiment  # prepared
    task: Task
    shards: Sequence[Samples]  # of each node
    pieces: Sequence[Piece]  # of tests

    @classmethod
    def of(cls, experiment: Experiment) -> "Ready":
        task = experiment.load_task()
        experiment = experiment.prepared(task)
        return cls(experiment, task, experiment.shards(task), pieces_of(experiment, task))
