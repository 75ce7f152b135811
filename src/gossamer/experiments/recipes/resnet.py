"""The directed rings of the Sparse-Push and low-precision papers, with ResNet-20 on CIFAR-10.

Both train for 200 epochs with 32 samples a node and step, and divide the learning rate by 10 after 100 and 150. A round
is one step. The data set is read from the directory of --data; see docs/data.md. On a laptop these take days: give
--rounds.
"""

from gossamer.algorithms import QuantSgp, SparsePush
from gossamer.compressors import Chain, LayerwiseTopK, Quantize, TopK
from gossamer.core import Algorithm
from gossamer.data import Cifar10
from gossamer.data.partition import Skew
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import DirectedRing, FourNodeRing, Topology
from gossamer.models import ResNet20
from gossamer.training.optimizer import Optimizer, Steps

_EPOCHS = 200


def _ring(
    name: str, nodes: int, task: Cifar10, skew: float, topology: Topology, algorithm: Algorithm, quasi_global: bool
) -> Experiment:
    rounds_an_epoch = -(-50_000 // (32 * nodes))
    return Experiment(
        name=name,
        nodes=nodes,
        rounds=_EPOCHS * rounds_an_epoch,
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
            schedule=Steps(at=(100 * rounds_an_epoch, 150 * rounds_an_epoch)),
        ),
        evaluation=Evaluation(every=rounds_an_epoch, samples="all", nodes="all"),
    )


def _sparse_push(name: str, skew: float) -> Experiment:
    task = Cifar10(ResNet20(norm="group"), augment=True)
    return _ring(name, 4, task, skew, FourNodeRing(graph="a"), SparsePush(TopK(0.01)), quasi_global=False)


def sparse_push_cifar10() -> Experiment:
    """Sparse-Push with 1 % kept: ResNet-20 on CIFAR-10, a directed ring of four nodes, IID data."""
    return _sparse_push("sparse-push-cifar10", skew=0.0)


def sparse_push_cifar10_skew() -> Experiment:
    """Sparse-Push with 1 % kept: ResNet-20 on CIFAR-10, a directed ring of four nodes, data skew 0.8."""
    return _sparse_push("sparse-push-cifar10-skew", skew=0.8)


def low_precision_cifar10() -> Experiment:
    """Eight-bit training and messages of 10 %: ResNet-20 with Range-EvoNorm on CIFAR-10, a directed ring of eight."""
    task = Cifar10(ResNet20(norm="range-evonorm"), precision="int8", augment=True)
    algorithm = QuantSgp(Chain(LayerwiseTopK(0.1), Quantize(8)))
    return _ring("low-precision-cifar10", 8, task, 0.8, DirectedRing(), algorithm, quasi_global=True)


def full_precision_cifar10() -> Experiment:
    """What the eight bits are compared with: the same in float32, with EvoNorm-S0."""
    task = Cifar10(ResNet20(norm="evonorm-s0"), augment=True)
    return _ring(
        "full-precision-cifar10", 8, task, 0.8, DirectedRing(), QuantSgp(LayerwiseTopK(0.1)), quasi_global=True
    )
