"""An experiment with what it is run on: all of it follows from the experiment, so every process can have its own."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gossamer.core import Samples, Task
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.evaluation import EvaluationShard, evaluation_shards
from gossamer.training.trainer import Trainer


class PreparedExperiment(NamedTuple):
    """An experiment that can run."""

    experiment: Experiment  # prepared
    task: Task
    trainer: Trainer  # of the task
    shards: Sequence[Samples]  # of each node
    evaluation_shards: Sequence[EvaluationShard]

    @classmethod
    def of(cls, experiment: Experiment, task: Task | None = None) -> "PreparedExperiment":
        """With the experiment's task, if it is loaded already."""
        task = experiment.load_task() if task is None else task
        trainer = experiment.trainer_for(task)
        experiment = experiment.prepared(task)
        shards = experiment.shards(task)
        return cls(experiment, task, trainer, shards, evaluation_shards(experiment, task, shards))

    def fingerprint(self) -> str:
        """Differs if another process found other data, other weights or other shards."""
        digest = hashlib.sha256()
        for array in self._arrays():
            digest.update(f"{array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        return digest.hexdigest()

    def _arrays(self) -> Iterator[np.ndarray]:
        task = self.task
        yield np.array([task.num_samples, task.num_test_samples, *task.layer_sizes])
        yield task.initial_model(self.experiment.seed).numpy()
        yield from self.shards
        yield from (found for found in (task.labels, task.clients) if found is not None)
        yield from task.fingerprint_arrays()
