"""A slice of a recipe that needs no files and takes seconds: the row's own model on a few random samples.

`gossamer reproduce --check` runs one of each, so that a recipe which no longer builds or runs, or computes something
else, is found within a minute and not after an hour of training.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from gossamer.core.rng import philox
from gossamer.data import AgNews, CelebA, Cifar100, Femnist, MovieLens, Qmnist, SentenceLength, Shakespeare
from gossamer.data.arrays import Arrays, Pair, task_of
from gossamer.data.movielens import within
from gossamer.data.supervised import Supervised
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import DirectedRing, RandomRegular, Redrawn, Torus

NUM_TRAIN, NUM_TEST = 192, 16
ROUNDS, BATCH = 2, 2  # with training; samples per step
NODES: dict[type, int] = {RandomRegular: 5, Redrawn: 5, DirectedRing: 3, Torus: 6}  # of graphs of any size

IMAGES: dict[type, tuple[tuple[int, int, int], int]] = {  # the shape of an image, and classes
    Qmnist: ((1, 28, 28), 10),
    Femnist: ((1, 28, 28), 62),
    CelebA: ((3, 84, 84), 2),
}
TEXTS: dict[type, int] = {Shakespeare: 80, AgNews: 4, SentenceLength: 6}  # classes


def stand_in(task: Any) -> Supervised:
    """A task with the model, precision and kind of data of this one, on random samples."""
    rng = np.random.Generator(philox(0, "stand-in"))
    number = NUM_TRAIN + NUM_TEST
    clients = np.arange(NUM_TRAIN) % 96
    if isinstance(task, MovieLens):
        users, items = rng.integers(0, 96, number), rng.integers(0, 40, number)
        pairs = torch.from_numpy(np.stack([users, items], 1))
        ratings = torch.from_numpy(rng.integers(1, 11, number).astype(np.float32) / 2)
        train, test = _divided(pairs, ratings)
        arrays = Arrays(train, test, (96, 40), 1, clients)
        return task_of(task, arrays, loss=functional.mse_loss, score=lambda o, t: within(1.0, o, t), metric="accuracy")
    if type(task) in TEXTS:
        classes, length = TEXTS[type(task)], getattr(task, "length", 80)
        inputs = torch.from_numpy(rng.integers(0, 80, (number, length)))
        shape: tuple[int, ...] = (80, length)
    else:
        default = ((3, getattr(task, "size", 32), getattr(task, "size", 32)), 100 if type(task) is Cifar100 else 10)
        shape, classes = IMAGES.get(type(task), default)
        inputs = torch.from_numpy(rng.standard_normal((number, *shape), dtype=np.float32))
    train, test = _divided(inputs, torch.arange(number) % classes)
    return task_of(task, Arrays(train, test, shape, classes, clients))


def _divided(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[Pair, Pair]:
    return (inputs[:NUM_TRAIN], targets[:NUM_TRAIN]), (inputs[NUM_TRAIN:], targets[NUM_TRAIN:])


def slice_of(experiment: Experiment) -> Experiment:
    """A few rounds of an experiment on a stand-in for its data, on fewer nodes where the graph allows it."""
    return replace(
        experiment,
        nodes=NODES.get(type(experiment.topology), experiment.nodes),
        rounds=ROUNDS + experiment.rounds - experiment.training_rounds,
        local_steps=1,
        batch_size=BATCH,
        task=stand_in(experiment.task),
        evaluation=Evaluation(every=10**6, samples="all", nodes=1),
    )
