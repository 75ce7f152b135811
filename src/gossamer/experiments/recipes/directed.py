"""Sparse-Push and SCSP against full sharing on a directed ring of four nodes, as in the paper, on the digits."""

from gossamer.algorithms import Scsp, Sgp, SparsePush
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.data import Digits
from gossamer.data.partition import Skew
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import FourNodeRing
from gossamer.training.optimizer import Optimizer


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
