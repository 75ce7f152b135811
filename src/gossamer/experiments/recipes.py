"""Recipes: complete experiments with a name. Change one with `dataclasses.replace`, or `--set` on the command line.

Data sets are read from the directory of --data; see docs/data.md.
"""

from collections.abc import Callable
from dataclasses import replace

from gossamer.algorithms import Cga, CompCga, Dpsgd, Jwins, Lace, QuantSgp, RandomSampling, Scsp, Sgp, Silk, SparsePush
from gossamer.compressors import Chain, LayerwiseTopK, Quantize, TopK
from gossamer.core import Algorithm
from gossamer.data import CelebA, Cifar10, Digits, Femnist, MovieLens, Shakespeare
from gossamer.data.partition import ByClient, LabelCuts, LabelShards, Partition, Skew
from gossamer.experiments.experiment import Evaluation, Experiment, TaskSource
from gossamer.graphs.topologies import DirectedRing, FourNodeRing, Matchings, RandomRegular, Ring, Topology
from gossamer.models import FemnistCnn, MatrixFactorization, ResNet20, StackedLstm
from gossamer.training.optimizer import Optimizer
from gossamer.training.schedules import Steps

# -- the demonstration's setting: the digits, non-IID, on sixteen nodes; small, and over in seconds --------------------


def _digits(name: str, algorithm: Algorithm) -> Experiment:
    return Experiment(
        name=name,
        nodes=16,
        rounds=150,
        local_steps=3,
        batch_size=16,
        task=Digits(),
        partition=LabelShards(per_node=2),
        topology=RandomRegular(degree=4),
        algorithm=algorithm,
        optimizer=Optimizer(learning_rate=0.1),
        evaluation=Evaluation(samples="all", nodes="all"),
    )


def dpsgd_digits() -> Experiment:
    """Full sharing on the digits: what the others are measured against."""
    return _digits("dpsgd-digits", Dpsgd())


def random_sampling_digits() -> Experiment:
    """Random sampling on the digits, at the share of bytes that JWINS takes."""
    return _digits("random-sampling-digits", RandomSampling())


def jwins_digits() -> Experiment:
    """JWINS on the digits, with the paper's cut-off law."""
    return _digits("jwins-digits", Jwins())


def silk_digits() -> Experiment:
    """Silk on the digits: signs of the differences that neighbours know least well."""
    return _digits("silk-digits", Silk())


def lace_digits() -> Experiment:
    """Lace on the digits: pairs that share a memory, two meetings per round, and four rounds to settle."""
    experiment = _digits("lace-digits", Lace(kept=0.06))
    return replace(experiment, rounds=154, settle=4, exchanges=2, topology=Matchings())


def _cross_gradients(name: str, algorithm: Algorithm) -> Experiment:
    experiment = replace(_digits(name, algorithm), rounds=300, local_steps=1, topology=Ring())
    return replace(experiment, optimizer=Optimizer(learning_rate=0.05))


def cga_digits() -> Experiment:
    """Cross-gradient aggregation on the digits: neighbours on a ring answer models with gradients."""
    return _cross_gradients("cga-digits", Cga())


def comp_cga_digits() -> Experiment:
    """The same with answers of one bit per parameter, and error feedback."""
    return _cross_gradients("comp-cga-digits", CompCga())


# -- JWINS's experiments: 96 nodes on a random 4-regular graph, data that differ from node to node ---------------------
# Dhasade et al., "Get more for less in decentralized learning systems", ICDCS 2023. Batch sizes, learning rates and
# numbers of local steps are those of the configurations that the authors' framework, decentralizepy, comes with; those
# of rounds are ours. Only a part of the nodes is tested, and the mean model, because testing all takes longer than
# training. Two more have sixteen nodes, to compare with other measurements.


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
    """JWINS on CIFAR-10 with GN-LeNet, two shards per node, cut as the authors' code cuts them."""
    return _jwins("cifar10", Cifar10(), 0.01, local_steps=3, batch_size=8, rounds=2000, partition=LabelCuts(2))


def lace_cifar10() -> Experiment:
    """Lace in JWINS's setting on CIFAR-10: 300 rounds, two meetings each, and 8 rounds to settle."""
    experiment = replace(
        jwins_cifar10(), name="lace-cifar10", partition=LabelShards(2), rounds=308, settle=8, fast=True
    )
    evaluation = Evaluation(every=308, nodes=16, samples="all")
    return replace(experiment, algorithm=Lace(), topology=Matchings(), exchanges=2, evaluation=evaluation)


def jwins_movielens() -> Experiment:
    """JWINS on MovieLens with the authors' matrix factorization, users' ratings whole."""
    model = MatrixFactorization(biases=False, start=0.05)
    return _jwins("movielens", MovieLens(model=model), 0.1, local_steps=10, rounds=1000)


def jwins_shakespeare() -> Experiment:
    """JWINS on Shakespeare with the authors' LSTM, roles whole."""
    return _jwins(
        "shakespeare", Shakespeare(model=StackedLstm(every_step=True)), 0.1, local_steps=10, test_samples=1000
    )


def jwins_femnist() -> Experiment:
    """JWINS on FEMNIST with LEAF's CNN, writers whole."""
    return _jwins("femnist", Femnist(FemnistCnn(hidden=512)), 0.001, local_steps=47, test_samples=1000)


def jwins_celeba() -> Experiment:
    """JWINS on CelebA with LEAF's CNN, celebrities whole."""
    return _jwins("celeba", CelebA(pixels="bytes"), 0.001, local_steps=4, test_samples=1000)


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


# -- Sparse-Push and SCSP on a directed ring of four nodes: on the digits, and with ResNet-20 on CIFAR-10 --------------
# Aketi, Singh and Rabaey, "Sparse-Push", 2021. A round is one step. On a laptop the last two take days: give --rounds.


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


def _resnet20_ring(
    name: str, nodes: int, task: Cifar10, skew: float, topology: Topology, algorithm: Algorithm, quasi_global: bool
) -> Experiment:
    """200 epochs with 32 samples per node and step; the learning rate is divided by 10 after 100 and 150 of them. The
    first is at a tenth of it, as in the code of Aketi, Kodge and Roy."""
    rounds_per_epoch = -(-50_000 // (32 * nodes))
    return Experiment(
        name=name,
        nodes=nodes,
        rounds=200 * rounds_per_epoch,
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
            schedule=Steps(at=(100 * rounds_per_epoch, 150 * rounds_per_epoch), warmup=rounds_per_epoch),
        ),
        evaluation=Evaluation(every=rounds_per_epoch, samples="all", nodes="all"),
    )


def _sparse_push(name: str, skew: float) -> Experiment:
    task = Cifar10(ResNet20(norm="group" if skew else "batch"), augment=True)
    return _resnet20_ring(name, 4, task, skew, FourNodeRing(graph="a"), SparsePush(TopK(0.01)), quasi_global=False)


def sparse_push_cifar10() -> Experiment:
    """Sparse-Push with 1 % kept: ResNet-20 with batch norm on CIFAR-10, a directed ring of 4, IID data (table 2)."""
    return _sparse_push("sparse-push-cifar10", skew=0.0)


def sparse_push_cifar10_skew() -> Experiment:
    """Sparse-Push with 1 % kept: ResNet-20 with group norm on CIFAR-10, a directed ring of 4, skew 0.8 (figure 6)."""
    return _sparse_push("sparse-push-cifar10-skew", skew=0.8)


# -- training and messages in eight bits: ResNet-20 on CIFAR-10 over a directed ring of eight nodes --------------------
# Aketi, Kodge and Roy, 2022, table 4: quasi-global momentum, 99 % dropped, skew 0.8; 85.52 % in eight bits, 86.76 % in
# float. Eight groups, and blocks of the eight-bit network that start as their shortcuts, are of the authors' code.


def low_precision_cifar10() -> Experiment:
    """Eight-bit training and messages of 1 %: ResNet-20 with Range-EvoNorm on CIFAR-10, a directed ring of eight."""
    model = ResNet20(norm="range-evonorm", groups=8, zero_init_residual=True)
    task = Cifar10(model, precision="int8", augment=True)
    algorithm = QuantSgp(Chain(LayerwiseTopK(0.01), Quantize(8)))
    return _resnet20_ring("low-precision-cifar10", 8, task, 0.8, DirectedRing(), algorithm, quasi_global=True)


def full_precision_cifar10() -> Experiment:
    """What the eight bits are compared with: the same in float32, with EvoNorm-S0."""
    task = Cifar10(ResNet20(norm="evonorm-s0", groups=8), augment=True)
    return _resnet20_ring(
        "full-precision-cifar10", 8, task, 0.8, DirectedRing(), QuantSgp(LayerwiseTopK(0.01)), quasi_global=True
    )


RECIPES: dict[str, Callable[[], Experiment]] = {
    "dpsgd-digits": dpsgd_digits,
    "random-sampling-digits": random_sampling_digits,
    "jwins-digits": jwins_digits,
    "silk-digits": silk_digits,
    "lace-digits": lace_digits,
    "cga-digits": cga_digits,
    "comp-cga-digits": comp_cga_digits,
    "sgp-ring": sgp_ring,
    "sparse-push-ring": sparse_push_ring,
    "scsp-ring": scsp_ring,
    "jwins-cifar10": jwins_cifar10,
    "lace-cifar10": lace_cifar10,
    "cifar10-first": cifar10_first,
    "reference-16": reference_16,
    "jwins-movielens": jwins_movielens,
    "jwins-shakespeare": jwins_shakespeare,
    "jwins-femnist": jwins_femnist,
    "jwins-celeba": jwins_celeba,
    "sparse-push-cifar10": sparse_push_cifar10,
    "sparse-push-cifar10-skew": sparse_push_cifar10_skew,
    "low-precision-cifar10": low_precision_cifar10,
    "full-precision-cifar10": full_precision_cifar10,
}
