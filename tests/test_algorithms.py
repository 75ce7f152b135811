"""The contract, over every algorithm of the table."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import pywt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from contract import CASES, QUADRATIC, in_blocks, of, simulated
from gossamer.algorithms import Dpsgd, Jwins, Momentum, RandomSampling
from gossamer.algorithms.cutoff import PAPER_LAW
from gossamer.compressors import count, random_entries
from gossamer.core import Round
from gossamer.engines.host import edges_of
from gossamer.engines.inbox import BlockInbox
from gossamer.engines.simulate import Simulation
from gossamer.experiment import Evaluation, Experiment
from gossamer.optimizer import Optimizer
from gossamer.rng import Streams
from gossamer.tasks import Digits, Quadratic
from gossamer.topologies import RandomRegular, Star

Matrix = NDArray[np.float64]


@pytest.mark.parametrize("case", CASES)
def test_any_split_of_the_nodes_into_blocks_gives_the_same_models(case: str) -> None:
    experiment = of(case)
    whole = simulated(experiment)
    assert torch.equal(simulated(experiment, workers=2), whole)
    assert torch.equal(simulated(experiment, workers=3), whole)
    for split in ([range(7)], [[i] for i in range(7)], [[0, 4, 5], [1], [2, 3, 6]]):
        assert torch.equal(in_blocks(experiment, split), whole)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=7, max_size=7), st.sampled_from(sorted(CASES)))
def test_nodes_may_be_dealt_to_blocks_in_any_way(block_of: list[int], case: str) -> None:
    split = [[i for i in range(7) if block_of[i] == b] for b in sorted(set(block_of))]
    assert torch.equal(in_blocks(of(case, rounds=2), split), simulated(of(case, rounds=2)))


def test_networks_too_are_the_same_in_any_number_of_workers() -> None:
    experiment = of("jwins", task=Digits(hidden=5), rounds=3)
    assert torch.equal(simulated(experiment, workers=3), simulated(experiment))


# The papers' recursions, one matrix row a node, written out without the code under test.


def oracle_dpsgd(experiment: Experiment, x: Matrix, step: Callable[[Matrix], Matrix], rounds: list[Matrix]) -> Matrix:
    for w in rounds:
        x = w @ step(x)
    return x


def oracle_random_sampling(
    experiment: Experiment, x: Matrix, step: Callable[[Matrix], Matrix], rounds: list[Matrix]
) -> Matrix:
    n, d = x.shape
    for t, w in enumerate(rounds):
        x = step(x)
        m = random_entries(Streams(experiment.seed, range(n), t), 0.3, d).numpy()
        x = np.stack([x[i] + sum(w[i, j] * m[j] * (x[j] - x[i]) for j in range(n)) for i in range(n)])
    return x


def oracle_jwins(experiment: Experiment, x: Matrix, step: Callable[[Matrix], Matrix], rounds: list[Matrix]) -> Matrix:
    (n, d), v = x.shape, np.zeros_like(x)
    transform = wavelet_matrix(d)
    for t, w in enumerate(rounds):
        start, x = x @ transform.T, step(x)
        c = x @ transform.T
        alpha = PAPER_LAW.draw(Streams(experiment.seed, range(n), t)).numpy()[:, 0]
        top = [set(np.argsort(-abs(v[i] + c[i] - start[i]))[: count(alpha[i], d)]) for i in range(n)]
        m = np.array([[k in top[i] for k in range(d)] for i in range(n)])
        y = np.stack([c[i] + sum(w[i, j] * m[j] * (c[j] - c[i]) for j in range(n)) for i in range(n)])
        x, v = y @ transform, v * ~m + y - start
    return x


def wavelet_matrix(d: int) -> Matrix:
    """sym2, 4 levels, periodized, of the first multiple of 16 entries; the others stay."""
    n = d // 16 * 16
    matrix = np.eye(d)
    columns = [np.concatenate(pywt.wavedec(e, "sym2", mode="periodization", level=4)) for e in np.eye(n)]
    matrix[:n, :n] = np.stack(columns, axis=1)
    return matrix


ORACLES = {"dpsgd": oracle_dpsgd, "random-sampling": oracle_random_sampling, "jwins": oracle_jwins}


@pytest.mark.parametrize("case", ORACLES)
def test_the_papers_recursion_gives_the_same_models(case: str) -> None:
    experiment = of(case, batch_size=30, rounds=12)  # every batch is a node's whole data
    task = QUADRATIC.task.load()
    centres = np.stack([task.points[shard].double().mean(0) for shard in experiment.shards(task)])

    def step(x: Matrix) -> Matrix:
        for _ in range(2):
            x = x - 0.2 * task.curvature.double().numpy() * (x - centres)
        return x

    rounds = [experiment.topology.at(7, experiment.seed, t).dense() for t in range(12)]
    expected = ORACLES[case](experiment, np.zeros((7, 53)), step, rounds)
    np.testing.assert_allclose(simulated(experiment).numpy(), expected, atol=2e-6)


def exchange(case: str, x: Tensor, rounds: int) -> Tensor:
    """The models after rounds of communication alone."""
    algorithm, n = CASES[case].algorithm, len(x)
    state = algorithm.init(torch.zeros_like(x))
    state = algorithm.local_step(state, -x, Round(0, 1.0, Streams(0, range(n), 0)))
    for t in range(rounds):
        round = Round(t, 1.0, Streams(0, range(n), t))
        message, state = algorithm.send(state, round)
        mixing = RandomRegular(degree=4).at(n, 0, 0)
        state = algorithm.receive(state, BlockInbox(message, edges_of(mixing, slice(0, n)), range(n)), round)
    return algorithm.model(state)


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c].conserves == "mean"])
def test_an_exchange_conserves_the_mean(case: str) -> None:
    x = torch.randn(9, 100, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(exchange(case, x, 50).double().mean(0), x.double().mean(0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c].conserves == "hull"])
def test_an_exchange_takes_no_number_out_of_the_nodes_range(case: str) -> None:
    x = torch.randn(9, 100, generator=torch.Generator().manual_seed(1))
    algorithm = getattr(CASES[case].algorithm, "inner", CASES[case].algorithm)
    to = algorithm.transform.forward if isinstance(algorithm, Jwins) else torch.clone
    before, after = to(exchange(case, x, 0)), to(exchange(case, x, 1))
    assert (after >= before.amin(0) - 1e-5).all()
    assert (after <= before.amax(0) + 1e-5).all()
    assert not torch.equal(before, after)


@pytest.mark.parametrize("case", CASES)
def test_nodes_that_agree_stay_where_they_are(case: str) -> None:
    x = torch.randn(1, 100, generator=torch.Generator().manual_seed(1)).repeat(9, 1)
    torch.testing.assert_close(exchange(case, x, 3), exchange(case, x, 0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_nodes_come_to_agree(case: str) -> None:
    x = torch.randn(9, 100, generator=torch.Generator().manual_seed(1))
    apart = (exchange(case, x, 0) - exchange(case, x, 0).mean(0)).norm()
    after = exchange(case, x, 60)
    assert (after - after.mean(0)).norm() < 0.05 * apart


def error(case: str, learning_rate: float, rounds: int) -> float:
    """How far the farthest node is from the optimum of a quadratic, whose nodes pull in different directions."""
    task = Quadratic(dimension=53, num_samples=210, condition=2)
    algorithm, optimum = CASES[case].algorithm, task.optimum
    if isinstance(algorithm, Momentum):
        learning_rate *= 1 - algorithm.beta
        optimum = task.curvature * optimum / (task.curvature + algorithm.weight_decay)  # decay: a quadratic around 0
    optimizer, seldom = Optimizer(learning_rate), Evaluation(every=rounds)
    small = {"batch_size": 30, "local_steps": 1, "rounds": rounds, "optimizer": optimizer, "evaluation": seldom}
    models = simulated(of(case, task=task, **small))
    return ((models - optimum).norm(dim=1).max() / optimum.norm()).item()


@pytest.mark.parametrize("case", CASES)
def test_a_smaller_learning_rate_brings_every_algorithm_nearer_to_the_optimum(case: str) -> None:
    coarse, fine = error(case, 0.3, rounds=50), error(case, 0.03, rounds=400)
    assert fine < 0.4 * coarse
    if CASES[case].conserves == "mean":
        assert fine < 0.02  # the others stop short: an average of parts does not keep the mean of all nodes


@pytest.mark.parametrize("case", CASES)
def test_a_run_continued_from_saved_state_is_the_same_to_the_last_bit(case: str) -> None:
    experiment = of(case)
    with Simulation(experiment, workers=2) as first:
        for _ in range(3):
            first.step()
        saved = {name: tensor.clone() for name, tensor in first.save().items()}
        totals = dict(first.totals)
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, round=3, totals=totals)
        rest = [second.step() for _ in range(3)]
        assert torch.equal(second.models(), simulated(experiment))
    assert rest[-1]["round"] == 6


@pytest.mark.parametrize("algorithm", [Jwins(budget=1.0), RandomSampling(budget=1.0), Jwins(budget=1.0, wavelet=False)])
def test_with_the_whole_budget_every_algorithm_is_full_sharing(algorithm: Jwins | RandomSampling) -> None:
    full = simulated(replace(QUADRATIC, algorithm=Dpsgd()))
    torch.testing.assert_close(simulated(replace(QUADRATIC, algorithm=algorithm)), full, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_single_node_trains_alone(case: str) -> None:
    models = simulated(of(case, nodes=1, topology=Star(), partition=QUADRATIC.partition))
    assert models.shape == (1, 53)
    assert models.isfinite().all()
