"""Quasi-global momentum with algorithms that average slowly, on graphs with and without symmetry."""

from dataclasses import replace

import numpy as np
import pytest

from contract import QUADRATIC, simulated
from gossamer.algorithms import Choco, Dpsgd, Epidemic, Lace, QuantSgp, Scsp, Sgp, Silk, SparsePush
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.data import Digits
from gossamer.data.partition import Skew
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import DirectedRing, Matchings, Ring, Topology
from gossamer.simulator.simulate import simulate
from gossamer.training.optimizer import Optimizer

TOP = TopK(0.1)
TOGETHER: list[tuple[Algorithm, Topology]] = [
    (Choco(TOP), Ring()),
    (Silk(), Ring()),
    (Lace(), Matchings()),
    (QuantSgp(TOP), DirectedRing()),
    (SparsePush(TOP, "auto"), DirectedRing()),
    (Scsp(TOP, "auto", full_rounds=8), DirectedRing()),
]


def spread(experiment: Experiment) -> float:
    models = simulated(experiment)
    return (models - models.mean(0)).norm(dim=1).mean().item()


@pytest.mark.parametrize(
    "algorithm",
    [
        Epidemic(),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (Sgp(), QuantSgp(TOP), SparsePush(TOP, "auto"))),
    ],
    ids=str,
)
def test_momentum_does_not_feed_what_a_directed_ring_turns(algorithm: Algorithm) -> None:
    """By the eigenvalues of the paper's recursion on this ring what nodes disagree on would grow by 5 % per round."""
    momentum = Optimizer(1e-3, 0.9, quasi_global=True)
    ring = replace(QUADRATIC, nodes=16, topology=DirectedRing(), optimizer=momentum, algorithm=algorithm)
    assert spread(replace(ring, rounds=300)) < 3 * spread(replace(ring, rounds=100))


def test_on_a_directed_graph_momentum_follows_a_nodes_own_steps() -> None:
    experiment = replace(QUADRATIC, topology=DirectedRing(), algorithm=Sgp(), batch_size=30, exchanges=2)
    experiment = replace(experiment, optimizer=Optimizer(0.2, 0.9, quasi_global=True))
    task = experiment.task.load()
    centres = np.stack([task.points[shard].double().numpy().mean(0) for shard in experiment.shards(task)])
    w, curvature = experiment.topology.at(7, experiment.seed, 0).dense(), task.curvature.double().numpy()
    x = m = np.zeros((7, 53))  # push-sum weights are 1 on a ring
    for _ in range(experiment.rounds):
        start = x
        for _ in range(experiment.local_steps):
            x = x - 0.2 * (0.9 * m + curvature * (x - centres))
        m = 0.9 * m + 0.1 * (start - x) / (0.2 * experiment.local_steps)
        x = w @ w @ x
    np.testing.assert_allclose(simulated(experiment).numpy(), x, atol=5e-6)


def accuracy(algorithm: Algorithm, topology: Topology, momentum: float = 0.9) -> float:
    experiment = Experiment(
        nodes=8,
        task=Digits(),
        rounds=208,
        settle=8,
        local_steps=1,
        partition=Skew(0.8),
        topology=topology,
        algorithm=algorithm,
        optimizer=Optimizer(0.1, momentum, nesterov=momentum > 0, quasi_global=momentum > 0),
        evaluation=Evaluation(every=1000, samples="all", nodes="all"),
    )
    return float(simulate(experiment, workers=1).result["accuracy_mean"])


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "topology"), TOGETHER, ids=str)
def test_compression_and_momentum_work_together_on_data_that_differ(algorithm: Algorithm, topology: Topology) -> None:
    reached = accuracy(algorithm, topology)
    assert reached > accuracy(Dpsgd(), Ring()) - 0.03
    assert reached > accuracy(Dpsgd(), Ring(), momentum=0) + 0.02
