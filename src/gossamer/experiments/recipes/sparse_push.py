"""Sparse-Push and SCSP on a directed ring of four nodes: on the digits against full sharing, and with ResNet-20.

Aketi, Singh and Rabaey, "Sparse-Push", 2021. A round is one step. CIFAR-10 is read from the directory of --data; see
docs/data.md. On a laptop its recipes take days: give --rounds.
"""

from gossamer.algorithms import Scsp, Sgp, SparsePush
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.data import Cifar10, Digits
from gossamer.data.partition import Skew
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import FourNodeRing, Topology
from gossamer.models import ResNet20
from gossamer.training.optimizer import Optimizer, Steps

_EPOCHS = 200


def _directed(name: str, algorithm: Algorithm) -> Experiment:
    return Experiment(
        name=name,
        nodes=4,
        rounds=400,
        local_steps=1,
        batch_size=32,
        task=Digits(),
        partition=Skew(fraction=0.8),
        topology=FourNodeRing(graph="a"),
        algorithm=algorithm,
        optimizer=Optimizer(learning_rate=0.1),
        evaluation=Evaluation(samples="all", nodes="all"),
    )


def sgp_ring() -> Experiment:
    """Full sharing on a directed ring of four nodes, data skew 0.8."""
    return _directed("sgp-ring", Sgp())


def sparse_push_ring() -> Experiment:
    """Sparse-Push with 1 % kept on a directed ring of four nodes, data skew 0.8."""
    return _directed("sparse-push-ring", SparsePush(TopK(0.01)))


def scsp_ring() -> Experiment:
    """SCSP with 1 % kept on a directed ring of four nodes, data skew 0.8; 40 of its rounds share in full."""
    return _directed("scsp-ring", Scsp(TopK(0.01), full_rounds=40))


def resnet20_ring(
    name: str, nodes: int, task: Cifar10, skew: float, topology: Topology, algorithm: Algorithm, quasi_global: bool
) -> Experiment:
    """200 epochs with 32 samples per node and step; the learning rate is divided by 10 after 100 and 150 of them."""
    rounds_per_epoch = -(-50_000 // (32 * nodes))
    return Experiment(
        name=name,
        nodes=nodes,
        rounds=_EPOCHS * rounds_per_epoch,
        local_steps=1,
        batch_size=32,
        task=task,
        partition=Skew(skew),
        topology=topology,
        algorithm=algorithm,
        optimizer=Optimizer(
            learning_rate=0.1,
            momentum=0.9,
            nesterov=quasi_global,
            quasi_global=quasi_global,
            weight_decay=1e-4,
            schedule=Steps(at=(100 * rounds_per_epoch, 150 * rounds_per_epoch)),
        ),
        evaluation=Evaluation(every=rounds_per_epoch, samples="all", nodes="all"),
    )


def _sparse_push(name: str, skew: float) -> Experiment:
    task = Cifar10(ResNet20(norm="group"), augment=True)
    return resnet20_ring(name, 4, task, skew, FourNodeRing(graph="a"), SparsePush(TopK(0.01)), quasi_global=False)


def sparse_push_cifar10() -> Experiment:
    """Sparse-Push with 1 % kept: ResNet-20 on CIFAR-10, a directed ring of four nodes, IID data."""
    return _sparse_push("sparse-push-cifar10", skew=0.0)


def sparse_push_cifar10_skew() -> Experiment:
    """Sparse-Push with 1 % kept: ResNet-20 on CIFAR-10, a directed ring of four nodes, data skew 0.8."""
    return _sparse_push("sparse-push-cifar10-skew", skew=0.8)
