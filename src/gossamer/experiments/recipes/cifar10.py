"""CIFAR-10 on sixteen nodes with two label shards each, three steps of eight images a round: GN-LeNet, JWINS."""

from gossamer.algorithms import Jwins
from gossamer.data import Cifar10
from gossamer.data.partition import LabelCuts, LabelShards, Partition
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import RandomRegular
from gossamer.training.optimizer import Optimizer


def _sixteen(name: str, rounds: int, degree: int, partition: Partition, evaluation: Evaluation) -> Experiment:
    return Experiment(
        name=name,
        nodes=16,
        rounds=rounds,
        local_steps=3,
        batch_size=8,
        task=Cifar10(),
        partition=partition,
        topology=RandomRegular(degree),
        algorithm=Jwins(),
        optimizer=Optimizer(learning_rate=0.01),
        evaluation=evaluation,
    )


def cifar10_first() -> Experiment:
    """JWINS on CIFAR-10, 16 nodes, 300 rounds: the setting of docs/results/cifar10.md."""
    return _sixteen("cifar10-first", 300, 4, LabelShards(per_node=2), Evaluation(every=50, samples=2000, nodes="all"))


def reference_16() -> Experiment:
    """JWINS on CIFAR-10, 16 nodes of degree 3, 120 rounds: what the authors' implementation was timed on."""
    return _sixteen("reference-16", 120, 3, LabelCuts(per_node=2), Evaluation(every=40, samples="all", nodes="all"))
