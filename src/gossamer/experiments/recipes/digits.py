"""The demonstration's setting: the digits, non-IID, on sixteen nodes. Small, and over in seconds."""

from gossamer.algorithms import Dpsgd, Jwins, RandomSampling, Silk
from gossamer.core import Algorithm
from gossamer.data import Digits
from gossamer.data.partition import LabelShards
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import RandomRegular
from gossamer.training.optimizer import Optimizer


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
