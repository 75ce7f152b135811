"""What a drift correction learns: no more than the nodes disagree on, and enough to agree at the optimum."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import oracles
from contract import QUADRATIC, SOME, STATIC, simulated
from gossamer.algorithms import D2, Choco, Dpsgd, DriftCorrection, Lace, Sgp, Silk
from gossamer.core import Algorithm
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.topologies import Matchings
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Optimizer

PAIRS = {"topology": Matchings(), "exchanges": 2}


def corrections(experiment: Experiment) -> list[torch.Tensor]:
    """(n, D) after every round."""
    with Simulation(experiment, 1) as simulation:
        found = []
        while simulation.round < experiment.rounds:
            simulation.step()
            found.append(simulation.save()["correction"].clone())
        return found


@pytest.mark.parametrize(
    ("inner", "changes"),
    [(Dpsgd(), {}), (Choco(SOME, 0.4), {}), (Silk(kept=0.3, rate=0.4), STATIC), (Lace(kept=0.3), PAIRS)],
    ids=["dpsgd", "choco", "silk", "lace"],
)
def test_corrections_sum_to_nothing_over_all_nodes(inner: Algorithm, changes: dict[str, object]) -> None:
    d = corrections(replace(QUADRATIC, algorithm=DriftCorrection(inner, 0.1), rounds=30, **changes))[-1].double()
    assert d.norm(dim=1).min() > 0.1
    assert d.sum(0).norm() < 1e-5 * d.norm()


@pytest.mark.parametrize(
    ("inner", "strength"), [(Dpsgd(), 0.5), (Choco(SOME, 0.4), 0.1), (Silk(kept=0.3, rate=0.4), 0.1)], ids=str
)
def test_nodes_whose_data_differ_agree_at_the_optimum_at_a_large_learning_rate(
    inner: Algorithm, strength: float
) -> None:
    task = Quadratic(dimension=53, num_samples=210, condition=2)
    whole = replace(QUADRATIC, task=task, batch_size=30, rounds=200, optimizer=Optimizer(0.3), **STATIC)
    errors = [
        ((simulated(replace(whole, algorithm=algorithm)) - task.optimum).norm(dim=1).max() / task.optimum.norm()).item()
        for algorithm in (inner, DriftCorrection(inner, strength))
    ]
    assert errors[0] > 0.2
    assert errors[1] < 0.01


def test_all_exchanges_of_a_round_count() -> None:
    experiment = replace(QUADRATIC, algorithm=DriftCorrection(Dpsgd(), 0.5), batch_size=30, exchanges=2)
    task = experiment.task.load()
    centres = np.stack([task.points[shard].double().numpy().mean(0) for shard in experiment.shards(task)])
    w = [experiment.topology.at(7, experiment.seed, t).dense() for t in range(12)]
    problem = oracles.Problem(
        x=np.zeros((7, 53)),
        gradient=lambda x: task.curvature.double().numpy() * (x - centres),
        loss=lambda x: x[:, 0],
        lr=0.2,
        local_steps=2,
        weights=[w[t + 1] @ w[t] for t in range(0, 12, 2)],
        seed=experiment.seed,
    )
    np.testing.assert_allclose(simulated(experiment).numpy(), oracles.drift_correction(problem), atol=5e-6)


def test_rounds_that_settle_teach_nothing() -> None:
    found = corrections(replace(QUADRATIC, algorithm=DriftCorrection(Silk(kept=0.3, rate=0.4)), rounds=8, settle=3))
    assert not torch.equal(found[3], found[4])
    assert torch.equal(found[4], found[7])


@pytest.mark.parametrize("inner", [D2(), Sgp()])
def test_what_it_cannot_correct_is_refused(inner: Algorithm) -> None:
    with pytest.raises(ValueError, match="for symmetric graphs that steps before it exchanges, such as dpsgd, choco"):
        DriftCorrection(inner)
    with pytest.raises(ValueError, match="strength must be between 0 and 1, 2 was given"):
        DriftCorrection(Dpsgd(), 2)
