"""Training and messages in eight bits: ResNet-20 on CIFAR-10 over a directed ring of eight nodes.

Aketi, Kodge and Roy, 2022; as long as Sparse-Push's, with quasi-global momentum.
"""

from gossamer.algorithms import QuantSgp
from gossamer.compressors import Chain, LayerwiseTopK, Quantize
from gossamer.data import Cifar10
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.recipes.sparse_push import resnet20_ring
from gossamer.graphs.topologies import DirectedRing
from gossamer.models import ResNet20


def low_precision_cifar10() -> Experiment:
    """Eight-bit training and messages of 10 %: ResNet-20 with Range-EvoNorm on CIFAR-10, a directed ring of eight."""
    task = Cifar10(ResNet20(norm="range-evonorm"), precision="int8", augment=True)
    algorithm = QuantSgp(Chain(LayerwiseTopK(0.1), Quantize(8)))
    return resnet20_ring("low-precision-cifar10", 8, task, 0.8, DirectedRing(), algorithm, quasi_global=True)


def full_precision_cifar10() -> Experiment:
    """What the eight bits are compared with: the same in float32, with EvoNorm-S0."""
    task = Cifar10(ResNet20(norm="evonorm-s0"), augment=True)
    return resnet20_ring(
        "full-precision-cifar10", 8, task, 0.8, DirectedRing(), QuantSgp(LayerwiseTopK(0.1)), quasi_global=True
    )
