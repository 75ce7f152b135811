"""Evaluation in shards that any worker can take: one model, on some of the test samples.

The shards depend on the experiment alone, and their scores are put together in one order, so the number of workers
changes nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from gossamer.core import Samples, Task
from gossamer.core.rng import permutation, philox
from gossamer.experiments.experiment import Experiment

SHARD_SAMPLES = 500


class EvaluationShard(NamedTuple):
    """A model on some samples."""

    row: int  # a node; the number of nodes: the mean model
    samples: Samples


def evaluation_shards(experiment: Experiment, task: Task) -> list[EvaluationShard]:
    """Everything that an evaluation of a prepared experiment tests, in the order of nodes; the mean model last."""
    rows = [*chosen_nodes(experiment), *[experiment.nodes] * experiment.evaluation.mean_model]
    samples = chosen_test_samples(experiment, task)
    starts = range(0, len(samples), SHARD_SAMPLES)
    return [EvaluationShard(row, samples[start : start + SHARD_SAMPLES]) for row in rows for start in starts]


def scores_of(shards: Sequence[EvaluationShard], scores: Tensor) -> dict[int, list[float]]:
    """Test loss and metric of every model, from those of the shards, (shards, 2)."""
    found: dict[int, list[float]] = {}
    rows = np.array([shard.row for shard in shards])
    for row in dict.fromkeys(rows.tolist()):
        here = np.flatnonzero(rows == row)
        lengths = [len(shard.samples) for shard in shards if shard.row == row]
        values = scores.numpy()[here]
        found[row] = (values[0] if len(here) == 1 else np.average(values, axis=0, weights=lengths)).tolist()
    return found


def num_tested(shards: Sequence[EvaluationShard]) -> int:
    """Samples that each model is tested on."""
    return sum(len(shard.samples) for shard in shards if shard.row == shards[0].row)


def chosen_nodes(experiment: Experiment) -> list[int]:
    """The nodes whose models are tested."""
    n, wanted = experiment.nodes, experiment.evaluation.nodes
    order = permutation(philox(experiment.seed, "evaluated nodes"), n)
    return sorted(order[: n if isinstance(wanted, str) else wanted].tolist())


def chosen_test_samples(experiment: Experiment, task: Task) -> Samples:
    """The test samples that models are measured on."""
    n, wanted = task.num_test_samples, experiment.evaluation.samples
    order = permutation(philox(experiment.seed, "test samples"), n)
    return np.sort(order[: n if isinstance(wanted, str) else wanted])
