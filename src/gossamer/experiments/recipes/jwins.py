"""JWINS's experiments: 96 nodes on a random 4-regular graph, data that differ from node to node.

Dhasade et al., "Get more for less in decentralized learning systems", ICDCS 2023. Batch sizes, learning rates and
numbers of local steps are those of the configurations that the authors' framework, decentralizepy, comes with; numbers
of rounds are ours. Only a part of the nodes is tested, and the mean model, because testing all takes longer than
training. Two more have sixteen nodes, to compare with other measurements. The data sets are read from the directory of
--data; see docs/data.md.
"""

from gossamer.algorithms import Jwins
from gossamer.data import CelebA, Cifar10, Femnist, MovieLens, Shakespeare
from gossamer.data.partition import ByClient, LabelCuts, LabelShards, Partition
from gossamer.experiments.experiment import Evaluation, Experiment, TaskSource
from gossamer.graphs.topologies import RandomRegular
from gossamer.models import FemnistCnn
from gossamer.training.optimizer import Optimizer


def _jwins(
    task_name: str,
    task: TaskSource,
    learning_rate: float,
    local_steps: int,
    batch_size: int = 16,
    rounds: int = 500,
    partition: Partition | None = None,
    test_samples: int = 10_000,
) -> Experiment:
    return Experiment(
        name=f"jwins-{task_name}",
        nodes=96,
        rounds=rounds,
        local_steps=local_steps,
        batch_size=batch_size,
        task=task,
        partition=partition or ByClient(),
        topology=RandomRegular(degree=4),
        algorithm=Jwins(),
        optimizer=Optimizer(learning_rate=learning_rate),
        evaluation=Evaluation(every=50, nodes=8, samples=test_samples),
    )


def jwins_cifar10() -> Experiment:
    """JWINS on CIFAR-10 with GN-LeNet, two label shards per node."""
    return _jwins("cifar10", Cifar10(), 0.01, local_steps=3, batch_size=8, rounds=2000, partition=LabelShards(2))


def jwins_movielens() -> Experiment:
    """JWINS on MovieLens with matrix factorization, users' ratings whole."""
    return _jwins("movielens", MovieLens(), 0.1, local_steps=10, rounds=1000)


def jwins_shakespeare() -> Experiment:
    """JWINS on Shakespeare with LEAF's LSTM, roles whole."""
    return _jwins("shakespeare", Shakespeare(), 0.1, local_steps=10, test_samples=1000)


def jwins_femnist() -> Experiment:
    """JWINS on FEMNIST with LEAF's CNN, writers whole."""
    return _jwins("femnist", Femnist(FemnistCnn(hidden=512)), 0.001, local_steps=47, test_samples=1000)


def jwins_celeba() -> Experiment:
    """JWINS on CelebA with LEAF's CNN, celebrities whole."""
    return _jwins("celeba", CelebA(), 0.001, local_steps=4, test_samples=1000)


def _sixteen(name: str, rounds: int, degree: int, partition: Partition, evaluation: Evaluation) -> Experiment:
    """CIFAR-10 on sixteen nodes with two label shards each, three steps of eight images per round."""
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
