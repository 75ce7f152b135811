"""Gradients of one's own model on the neighbours' data: who answers whom, what it weighs, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from contract import of, simulated
from gossamer.algorithms import Cga, CompCga, Dpsgd, DriftCorrection, Momentum, RelativeToInit
from gossamer.algorithms.cga import Neighbours, combine
from gossamer.compressors import RandomK, Sign
from gossamer.data.supervised import Supervised
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRing, RandomRegular, Redrawn, Ring, Star
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Adam, Optimizer
from gossamer.training.privacy import Privacy
from oracles import least_combination


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.sampled_from([2, 7, 40]))
def test_the_combination_has_the_least_norm(seed: int, number: int, margin: float, width: int) -> None:
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(1 + number, width)).astype(np.float32) + rng.normal()
    weights = rng.dirichlet(np.ones(1 + number))
    out = np.empty(width, np.float32)
    combine(gradients[0], gradients[1:], weights, margin, out)
    weighted = weights[:, None] * gradients.astype(np.float64)
    best = least_combination(weighted[0], weighted[1:], margin)
    assert np.linalg.norm(out) <= np.linalg.norm(best) * (1 + 1e-5) + 5e-6
    if width > number:  # else many combinations can be as short
        np.testing.assert_allclose(out, best, atol=1e-4)


def test_without_a_margin_no_neighbour_is_hurt() -> None:
    rng = np.random.default_rng(0)
    own, cross = rng.normal(size=30).astype(np.float32), rng.normal(size=(3, 30)).astype(np.float32)
    out, alone = np.empty_like(own), np.empty_like(own)
    combine(own, cross, np.full(4, 0.25), 0.0, out)
    assert (cross @ own).min() < -1  # so there is something to be mended
    assert (cross @ out).min() > -1e-4
    combine(own, np.zeros_like(cross), np.full(4, 0.25), 0.0, alone)  # who does not answer has no say
    np.testing.assert_allclose(alone, own / 4)


@pytest.mark.parametrize("topology", [Ring(), Star(), RandomRegular(4)])
def test_every_link_is_in_one_pairing_with_the_weight_it_has_in_the_graph(topology: Ring | Star) -> None:
    mixing = topology.at(9, 0, 0)
    partners, weights = Neighbours.of(mixing)
    dense = np.zeros((9, 9))
    for node, (others, own) in enumerate(zip(partners, weights, strict=True)):
        dense[node, node] = own[0]
        for other, weight in zip(others, own[1:], strict=True):
            dense[node, other] += weight if other >= 0 else 0
    np.testing.assert_array_equal(dense, mixing.dense())


def test_a_link_carries_a_model_and_an_answer_and_nothing_else() -> None:
    experiment = of("comp-cga", rounds=2, settle=1, topology=Ring(), nodes=6)
    with Simulation(experiment, workers=1) as simulation:
        trained, lines = simulation.step(), simulation.ledger()
        by_exchange = [[line for line in lines if line["exchange"] == number] for number in range(3)]
        assert [len(each) for each in by_exchange] == [12, 6, 6]  # a ring of six has two pairings
        assert all(line["values"] > 53 * 2 for line in by_exchange[0])
        assert all(line["values"] <= 53 // 8 + 16 for each in by_exchange[1:] for line in each)  # a bit per parameter
        settled = simulation.step()
    assert settled["parts"]["gradient"]["values"] == 24 * 4  # a scale, of nothing
    assert settled["parts"]["x"]["values"] > 0.9 * trained["parts"]["x"]["values"]


def test_rounds_that_settle_are_plain_averaging() -> None:
    experiment = of("cga", rounds=4, settle=3)
    before = simulated(replace(experiment, rounds=1, settle=0)).double()
    w = torch.from_numpy(experiment.topology.at(7, experiment.seed, 0).dense())
    torch.testing.assert_close(simulated(experiment).double(), w @ w @ w @ before, atol=1e-6, rtol=0)


def test_neighbours_models_leave_no_trace_in_a_nodes_running_statistics() -> None:
    inputs, targets = torch.randn(120, 5, generator=torch.Generator().manual_seed(0)), torch.arange(120) % 2
    task = Supervised(
        model=lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
        train=(inputs, targets), test=(inputs, targets),
    )  # fmt: skip
    base = Experiment(task=task, nodes=4, rounds=1, local_steps=1, topology=Ring(), optimizer=Optimizer(0.1))
    buffers = []
    for algorithm in (Dpsgd(), Cga()):
        with Simulation(replace(base, algorithm=algorithm), workers=1) as simulation:
            simulation.step()
            buffers.append(simulation.save()["buffers"].clone())
    assert torch.equal(*buffers)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": Optimizer(0.1, 0.9)}, "optimizer: cga steps along several nodes' gradients"),
        ({"optimizer": Adam(0.1)}, "optimizer: cga steps along several nodes' gradients"),
        ({"optimizer": Optimizer(0.1, weight_decay=0.1)}, "optimizer: cga steps along"),
        ({"local_steps": 2}, "cga is defined for one local step per round"),
        ({"exchanges": 2}, "cga is defined for one exchange per round"),
        ({"faults": Faults(drop=0.1)}, "cga needs every message to arrive"),
        ({"topology": DirectedRing()}, "cga needs a symmetric graph"),
        ({"topology": Redrawn(RandomRegular(4))}, "cga needs the same graph in every round"),
        ({"privacy": Privacy(clip=1.0, noise=1.0)}, "cga answers neighbours with gradients of their models"),
    ],
)
def test_what_it_cannot_do_is_refused_before_the_first_round(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        simulated(of("cga", **changes))


def test_wrong_settings_and_wrappers_are_refused() -> None:
    with pytest.raises(ValueError, match="margin must be between 0 and 1, 2 was given"):
        Cga(margin=2)
    with pytest.raises(ValueError, match="momentum must be at least 0 and under 1"):
        CompCga(Sign(), momentum=1.0)
    with pytest.raises(ValueError, match="compressor cannot be random-k"):
        CompCga(RandomK(0.1))
    for wrapper in (Momentum, RelativeToInit, DriftCorrection):
        with pytest.raises(ValueError, match="cannot be around cross-gradient aggregation"):
            wrapper(Cga())
