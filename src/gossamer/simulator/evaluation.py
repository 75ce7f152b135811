"""Evaluation in shards that any worker can take: one model, on some of the test samples.

The shards depend on the experiment alone, and their scores are put together in one order, so the number of workers
changes nothing.
"""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np
from torch import Tensor

from gossamer.core import Samples, Task
from gossamer.core.rng import permutation, philox
from gossamer.experiments.experiment import Experiment, section

SHARD_SAMPLES = 500


class EvaluationShard(NamedTuple):
    """A model on some samples."""

    row: int  # a node; the number of nodes: the mean model
    samples: Samples
    weight: float  # of its scores in the model's
    personal: bool = False  # is it of the test on the node's own distribution?


def evaluation_shards(experiment: Experiment, task: Task, held: Sequence[Samples]) -> list[EvaluationShard]:
    """Everything that an evaluation of a prepared experiment tests, in the order of nodes; the mean model after them,
    and then nodes on their own distributions. `held` are the training samples of every node."""
    nodes = chosen_nodes(experiment)
    samples = chosen_test_samples(experiment, task)
    rows = [*nodes, *[experiment.nodes] * experiment.evaluation.mean_model]
    parts = [samples] if task.collects_outputs else _parts(samples)
    shards = [EvaluationShard(row, part, len(part)) for row in rows for part in parts]
    if experiment.evaluation.personal:
        shards += [shard for node in nodes for shard in personal_shards(experiment, task, node, held[node])]
    return shards


def personal_shards(experiment: Experiment, task: Task, node: int, held: Samples) -> list[EvaluationShard]:
    """A node's test on the distribution of the training samples that it holds.

    If clients' data are whole on nodes, that is on the test samples of its own clients, as many as others are tested on
    at most. Else it is on the test samples of all, where those of a label count as much as that label does among the
    node's training samples.
    """
    with section("evaluation.personal"):
        if not task.scores_samples:
            raise ValueError(
                f"true was given, and {task.metric} is of all samples together, in which labels cannot be weighted; "
                "give a score, and it as another of metrics"
            )
        if experiment.partition.keeps_clients and task.clients is not None and task.test_clients is not None:
            own = np.flatnonzero(np.isin(task.test_clients, task.clients[held]))
            order = permutation(philox(experiment.seed, "personal test samples", node), len(own))
            groups = [(1, np.sort(own[order[: len(chosen_test_samples(experiment, task))]]))]
        elif task.labels is not None and task.test_labels is not None:
            samples = chosen_test_samples(experiment, task)
            labels = zip(*np.unique(task.labels[held], return_counts=True), strict=True)
            groups = [(count, samples[task.test_labels[samples] == label]) for label, count in labels]
        else:
            raise ValueError(
                "true was given, and this task has no labels for its test samples, nor a partition by clients that it "
                "knows in the test; leave it out"
            )
        shards = [
            EvaluationShard(node, part, count * len(part) / len(samples), personal=True)
            for count, samples in groups
            for part in _parts(samples)
        ]
        if not shards:
            raise ValueError(
                f"no test sample is of a label or client of node {node}; take more evaluation.samples, or leave it out"
            )
    return shards


def _parts(samples: Samples) -> list[Samples]:
    return [samples[start : start + SHARD_SAMPLES] for start in range(0, len(samples), SHARD_SAMPLES)]


def scores_of(shards: Sequence[EvaluationShard], scores: Tensor, personal: bool = False) -> dict[int, list[float]]:
    """Test loss and metrics of every model, from those of the shards, (shards, 2 or more): on the test
    samples of all, or of the nodes on their own distributions."""
    numbers: dict[int, list[int]] = {}  # of each model's shards
    for number, shard in enumerate(shards):
        if shard.personal == personal:
            numbers.setdefault(shard.row, []).append(number)
    found: dict[int, list[float]] = {}
    for row, here in numbers.items():
        values = scores.numpy()[here]
        weights = [shards[number].weight for number in here]
        found[row] = (values[0] if len(here) == 1 else np.average(values, axis=0, weights=weights)).tolist()
    return found


def known(value: float) -> float | None:
    """None for what is no number, as a correlation is while all predictions are the same: files have no nan."""
    return value if isfinite(value) else None


def worst_decile(scores: Sequence[float], higher_is_better: bool) -> float:
    """The mean of the worst tenth, of one at least."""
    worst_first = sorted(scores, reverse=not higher_is_better)
    worst = worst_first[: max(1, round(len(scores) / 10))]
    return sum(worst) / len(worst)


def num_tested(shards: Sequence[EvaluationShard]) -> int:
    """Samples of all that each model is tested on."""
    return sum(len(shard.samples) for shard in shards if shard.row == shards[0].row and not shard.personal)


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
