"""How much is sent, and how far nodes move: cut-offs and averaging rates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer
from contract import QUADRATIC, simulated
from gossamer.algorithms import ALGORITHMS, Choco, LocalOnly, rates
from gossamer.algorithms.jwins import PAPER_CUTOFF, cutoff_for_budget
from gossamer.compressors import BFloat16, Chain, Compressor, NoCompression, Qsgd, Quantize, RandomK, Scaled, Sign, TopK
from gossamer.core.rng import Streams
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Evaluation
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import DirectedRandom, RandomRegular, Ring
from gossamer.training.optimizer import Optimizer


def test_the_papers_cutoff_is_drawn_as_written() -> None:
    assert PAPER_CUTOFF.mean == pytest.approx(0.342857, abs=1e-6)
    draws = torch.cat([PAPER_CUTOFF.draw(Streams(0, range(100), t)) for t in range(70)])
    assert draws.shape == (7000, 1)
    for fraction in (0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 1.0):
        assert abs((draws - fraction).abs().lt(1e-6).sum().item() - 1000) < 5 * 30
    assert PAPER_CUTOFF.deterministic().draw(Streams(0, [0], 0)).item() == pytest.approx(PAPER_CUTOFF.mean)


@given(st.floats(0.01, 1), st.booleans(), st.integers(10_000, 10**7))
def test_a_cutoff_for_a_budget_costs_that_budget_with_indices_at_their_entropy(
    budget: float, randomize: bool, num_parameters: int
) -> None:
    cutoff = cutoff_for_budget(budget, num_parameters, randomize)
    assert sum(cutoff.probabilities) == pytest.approx(1)
    assert all(0 < f <= 1 for f in cutoff.fractions)
    cost = 0.0
    for f, p in zip(cutoff.fractions, cutoff.probabilities, strict=True):
        index_bits = 0 if f == 1 else -f * np.log2(f) - (1 - f) * np.log2(1 - f)
        cost += p * (f + index_bits / 26.5)
    frame = 8 * 40 / (26.5 * num_parameters)
    assert budget - frame - 1e-6 <= cost <= budget + 1e-6


@pytest.mark.parametrize(("budget", "everything", "else_"), [(0.2, 0.1, 0.10), (0.1, 0.05, 0.05)])
def test_cutoffs_for_a_budget_are_near_the_papers(budget: float, everything: float, else_: float) -> None:
    cutoff = cutoff_for_budget(budget, 90_000)
    assert cutoff.probabilities[1] == pytest.approx(everything)
    assert cutoff.fractions == (pytest.approx(else_, rel=0.2), 1.0)


def test_a_budget_that_is_too_small_for_anything_is_refused_with_one_that_is_not() -> None:
    for budget in (1e-4, 5e-324):
        with pytest.raises(ValueError, match=r"leaves no room for a single of 5000 parameters; take at least 0\.0052"):
            cutoff_for_budget(budget, 5000)
    cutoff_for_budget(0.0053, 5000)


def test_the_table_of_rates_is_by_the_kept_fraction_in_however_many_bits() -> None:
    mixing = Ring().at(8, 0, 0)
    for compressor in (TopK(0.01), Chain(TopK(0.01), Quantize(8)), Chain(TopK(0.01), Sign()), RandomK(0.01)):
        assert rates.resolve("table", compressor, mixing, (1000,), 8) == pytest.approx(0.005)
    assert rates.resolve("table", NoCompression(), mixing, (1000,), 8) == 1


@pytest.mark.parametrize("coarse", [Quantize(2), Quantize(8), Qsgd(), Scaled(Qsgd(1)), Sign(), BFloat16()])
def test_the_table_has_no_rate_for_all_entries_in_fewer_bits(coarse: Compressor) -> None:
    mixing = Ring().at(8, 0, 0)
    with pytest.raises(ValueError, match=r'by the fraction of entries that is sent, and .* take "auto" or a number'):
        rates.resolve("table", coarse, mixing, (1000,), 8)
    assert 0 < rates.resolve("auto", coarse, mixing, (1000,), 8) < 1


@pytest.mark.parametrize("kept", [0.1, *(pytest.param(kept, marks=pytest.mark.slow) for kept in (0.5, 0.02))])
@pytest.mark.parametrize("kind", ["choco", "deep-squeeze", "sparse-push"])
def test_the_automatic_rate_comes_as_near_to_the_optimum_as_the_papers_table(kind: str, kept: float) -> None:
    topology = DirectedRandom(3) if kind == "sparse-push" else RandomRegular(4)
    task = Quadratic(dimension=100, num_samples=210, condition=2)
    base = replace(QUADRATIC, nodes=8, rounds=80, topology=topology, task=task, optimizer=Optimizer(0.03))
    algorithms = [ALGORITHMS[kind](TopK(kept), "auto"), ALGORITHMS[kind](TopK(kept), "table"), LocalOnly()]
    auto, table, alone = (
        (simulated(replace(base, algorithm=algorithm)) - task.optimum).norm(dim=1).mean().item()
        for algorithm in algorithms
    )
    assert auto <= table < alone


def test_the_automatic_rate_learns_the_digits_where_the_papers_table_is_too_slow() -> None:
    base = replace(RECIPES["jwins-digits"](), rounds=60, evaluation=Evaluation(every=60))
    auto, table = (
        gossamer.simulate(replace(base, algorithm=Choco(TopK(0.5), rate))).result["accuracy_mean"]
        for rate in ("auto", "table")
    )
    assert auto > 0.6 > 0.3 > table
