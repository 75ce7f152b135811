"""Sequences of graphs over which any number of nodes average exactly."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.graphs.finite_time import BaseGraph


def product(topology: BaseGraph, nodes: int, start: int = 0) -> np.ndarray:
    found = np.eye(nodes)
    for t in range(start, start + topology.period(nodes, 0)):
        found = topology.at(nodes, 0, t).dense() @ found
    return found


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("nodes", range(1, 65))
def test_any_number_of_nodes_averages_exactly_in_few_rounds(nodes: int, degree: int) -> None:
    topology = BaseGraph(degree)
    period = topology.period(nodes, 0)
    assert period <= max(1, 2 * math.log(nodes, degree + 1) + 2)
    assert topology.representative_rounds(nodes, 0) == tuple(range(period))
    for t in range(period):
        mixing = topology.at(nodes, 0, t)
        assert mixing.symmetric
        assert mixing.row_stochastic
        assert mixing.num_receivers.max() <= degree
        assert (mixing.weights > 0).all()
        assert topology.at(nodes, 7, t + period) is mixing, "nothing is drawn, and the sequence returns"
    np.testing.assert_allclose(product(topology, nodes), np.full((nodes, nodes), 1 / nodes), atol=1e-12)


@given(st.integers(1, 400), st.integers(1, 12))
@settings(deadline=None, max_examples=50)
def test_so_do_many_nodes_with_many_neighbours(nodes: int, degree: int) -> None:
    topology = BaseGraph(degree)
    assert topology.period(nodes, 0) <= max(1, 2 * math.log(nodes, degree + 1) + 2)
    np.testing.assert_allclose(product(topology, nodes), np.full((nodes, nodes), 1 / nodes), atol=1e-12)


@pytest.mark.parametrize("nodes", [2, 8, 64])
def test_of_a_power_of_two_it_is_the_hypercube(nodes: int) -> None:
    topology = BaseGraph()
    assert topology.period(nodes, 0) == math.log2(nodes)
    for t in range(topology.period(nodes, 0)):
        expected = np.eye(nodes) / 2
        expected[np.arange(nodes), np.arange(nodes) ^ (1 << t)] = 0.5
        np.testing.assert_array_equal(topology.at(nodes, 0, t).dense(), expected)


def test_five_nodes_follow_the_papers_example() -> None:
    """Four average, the fifth exchanges 4/5 with one of them, and the four average again."""
    rounds = [BaseGraph().at(5, 0, t).dense() for t in range(5)]
    assert BaseGraph().period(5, 0) == 5
    exchange = rounds[2]
    assert exchange[0, 4] == exchange[4, 0] == pytest.approx(4 / 5)
    assert exchange[4, 4] == pytest.approx(1 / 5)
    for before, afterwards in ((0, 3), (1, 4)):
        np.testing.assert_array_equal(rounds[before], rounds[afterwards])
        assert rounds[before][4, 4] == 1


def test_equal_groups_are_taken_where_they_are_quicker() -> None:
    """6 = 2 * 3: three average in three rounds, and then pairs across; by digits, 4 + 2, it would take five."""
    assert BaseGraph().period(6, 0) == 4
    assert BaseGraph(2).period(6, 0) == 2


@pytest.mark.parametrize("nodes", [2, 4, 7])
def test_enough_neighbours_for_all_average_at_once(nodes: int) -> None:
    topology = BaseGraph(nodes - 1)
    assert topology.period(nodes, 0) == 1
    np.testing.assert_allclose(topology.at(nodes, 0, 0).dense(), np.full((nodes, nodes), 1 / nodes), atol=1e-15)


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"^degree must be at least 1, 0 was given$"):
        BaseGraph(0)
    with pytest.raises(ValueError, match=r"^nodes must be at least 1, 0 was given$"):
        BaseGraph().at(0, 0, 0)
