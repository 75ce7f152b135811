"""Pairings: everybody meets one other at a time, over a sequence that returns."""

import time

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.graphs import edge_colouring as colouring
from gossamer.graphs.families import (
    DirectedRing,
    EdgeList,
    ErdosRenyi,
    FullyConnected,
    RandomRegular,
    Ring,
    SmallWorld,
    Star,
    Torus,
)
from gossamer.graphs.matchings import Matchings, RandomMatching
from gossamer.graphs.topologies import Cycle, Redrawn, Topology


def pairings(topology: Topology, nodes: int, seed: int = 3) -> list[np.ndarray]:
    """The weights of one period."""
    return [topology.at(nodes, seed, t).dense() for t in range(topology.period(nodes, seed))]


def met(weights: np.ndarray) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in np.argwhere(weights) if i < j}


def after(topology: Topology, nodes: int, meetings: int, seed: int = 3) -> np.ndarray:
    """What is left of the nodes' differences after so many meetings."""
    product = np.eye(nodes)
    for t in range(meetings):
        product = topology.at(nodes, seed, t).dense() @ product
    return product - 1 / nodes


def rms(differences: np.ndarray) -> float:
    return float(np.linalg.norm(differences) / np.sqrt(len(differences) - 1))


@given(st.integers(1, 130))
@settings(deadline=None)
def test_everybody_meets_one_other_at_a_time_and_nobody_twice(nodes: int) -> None:
    sequence = pairings(Matchings(), nodes)
    assert len(sequence) == max(1, int(np.ceil(np.log2(nodes))))
    left_over = [np.flatnonzero(weights.diagonal() == 1).tolist() for weights in sequence]
    assert all(len(nodes_left) == nodes % 2 for nodes_left in left_over)
    if nodes > 1:
        assert len({node for one in left_over for node in one}) == (len(sequence) if nodes % 2 else 0)
    assert all(set(weights[weights > 0]) <= {0.5, 1.0} for weights in sequence)
    assert sum(len(met(weights)) for weights in sequence) == len(set.union(*map(met, sequence)))
    again = Matchings().at(nodes, 3, len(sequence)).dense()
    np.testing.assert_array_equal(again, sequence[0])


@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 64])
def test_over_a_power_of_two_pairings_average_exactly(nodes: int) -> None:
    period = Matchings().period(nodes, 3)
    np.testing.assert_array_equal(after(Matchings(), nodes, period), np.zeros((nodes, nodes)))


@pytest.mark.parametrize("nodes", range(2, 131, 2))
def test_over_any_even_number_nobody_can_hear_more_evenly(nodes: int) -> None:
    """After t meetings shares are multiples of 2^-t, so 2^t of them cannot be spread more evenly than one apart."""
    period = Matchings().period(nodes, 3)
    for meetings in range(1, period + 1):
        shares = (after(Matchings(), nodes, meetings) + 1 / nodes) * 2**meetings
        least = 2**meetings // nodes
        assert set(np.round(shares, 9).ravel()) <= {least, least + 1}


@pytest.mark.parametrize("nodes", [6, 7, 9, 10, 12, 15, 17, 24, 33, 48, 96, 97, 100])
def test_pairings_mix_better_than_random_ones(nodes: int) -> None:
    period = Matchings().period(nodes, 3)
    for meetings in (period, period + 1, 2 * period):
        at_random = np.mean([rms(after(Matchings(period), nodes, meetings, seed)) for seed in range(10)])
        assert rms(after(Matchings(), nodes, meetings)) < 0.8 * at_random


@pytest.mark.parametrize("nodes", [2, 3, 8, 17, 96])
def test_random_pairings_connect_everybody_and_depend_on_the_seed(nodes: int) -> None:
    topology = Matchings(5)
    assert topology.period(nodes, 0) == 5
    graph = networkx.Graph([pair for weights in pairings(topology, nodes) for pair in met(weights)])
    assert len(graph) == nodes
    assert networkx.is_connected(graph)
    if nodes > 3:
        assert met(topology.at(nodes, 3, 0).dense()) != met(topology.at(nodes, 4, 0).dense())


GRAPHS = [
    (Ring(), [1, 2, 3, 4, 7, 16]),
    (Torus(), [1, 2, 6, 9, 16, 35]),
    (Star(), [1, 2, 3, 9]),
    (FullyConnected(), [1, 2, 3, 8, 9, 24]),
    (RandomRegular(4), [1, 5, 8, 16, 33, 96]),
    (RandomRegular(3), [4, 10, 50]),
    (SmallWorld(), [1, 6, 16, 97]),
    (ErdosRenyi(), [1, 12, 40]),
]


@pytest.mark.parametrize(("graph", "nodes"), [(graph, nodes) for graph, many in GRAPHS for nodes in many], ids=str)
def test_over_a_graph_each_link_is_met_once_per_period_and_no_other(graph: Topology, nodes: int) -> None:
    topology = Matchings(graph=graph)
    sequence = pairings(topology, nodes)
    links = [pair for weights in sequence for pair in met(weights)]
    static = graph.at(nodes, 3, 0)
    assert len(links) == len(set(links))
    assert set(links) == met(static.dense())
    assert len(sequence) <= static.num_receivers.max() + 1
    for weights in sequence:
        assert (weights > 0).sum(axis=1).max() <= 2
        assert met(weights) or nodes == 1
    assert not topology.static
    assert not topology.directed


@pytest.mark.parametrize(("graph", "nodes"), [(Ring(), 16), (Torus(), 16), (Torus(), 64), (Star(), 9)], ids=str)
def test_a_bipartite_graph_needs_no_more_pairings_than_neighbours(graph: Topology, nodes: int) -> None:
    assert Matchings(graph=graph).period(nodes, 0) == graph.at(nodes, 0, 0).num_receivers.max()


edges = st.integers(2, 14).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1))
)


@given(edges, st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_graph_is_coloured_with_one_more_than_its_largest_degree(
    case: tuple[int, set[tuple[int, int]]], misra_gries: bool
) -> None:
    nodes, links = case
    each = sorted({(min(i, j), max(i, j)) for i, j in links if i != j})
    array = np.array(each, np.int64).reshape(-1, 2)
    degree = max(np.bincount(array.ravel()), default=0)
    if misra_gries and each:
        found = colouring._with_one_more(array.tolist(), nodes, int(degree)).pairings()
    else:
        found = colouring.edge_colouring(array, nodes)
    assert len(found) <= degree + 1
    assert all(len(set(pairing.ravel().tolist())) == pairing.size for pairing in found)
    assert sorted(map(tuple, np.concatenate(found).tolist())) == each


def test_the_petersen_graph_needs_one_colour_more_and_gets_it() -> None:
    links = np.array(networkx.petersen_graph().edges, np.int64)
    assert len(colouring.edge_colouring(links, 10)) == 4


def test_pairings_follow_from_nodes_and_seed_alone() -> None:
    topology = Matchings(graph=RandomRegular(4))
    first = [met(weights) for weights in pairings(topology, 30)]
    colouring_again = topology.graph.at(30, 3, 0)
    once = colouring_again.receivers < colouring_again.senders
    links = np.stack([colouring_again.receivers[once], colouring_again.senders[once]], axis=1)
    found = [{(i, j) for i, j in pairing.tolist()} for pairing in colouring.edge_colouring(links, 30)]
    assert first == found
    assert first != [met(weights) for weights in pairings(topology, 30, seed=4)]


def test_thousands_of_nodes_are_paired_in_seconds() -> None:
    begun = time.process_time()
    assert Matchings(graph=RandomRegular(4)).period(4096, 12) in (4, 5)
    assert Matchings().at(4095, 0, 0).num_receivers.sum() == 4094
    assert time.process_time() - begun < 20


def test_the_graph_of_a_file_is_read_again_and_its_content_noted(tmp_path) -> None:
    path = tmp_path / "some.edges"
    path.write_text("4\n0 1\n1 2\n2 3\n")
    topology = Matchings(graph=EdgeList(str(path)))
    assert topology.period(4, 0) == 2
    noted = topology.with_digests()
    assert noted.graph.digest
    path.write_text("4\n0 1\n0 2\n0 3\n")
    assert topology.period(4, 0) == 3
    assert met(topology.at(4, 0, 0).dense()) <= {(0, 1), (0, 2), (0, 3)}
    with pytest.raises(ValueError, match="is not the one whose digest is"):
        noted.at(4, 0, 0)


def test_pairings_that_cannot_be_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="1 pairing cannot connect 6 nodes; take length 2 or more, or 0"):
        Matchings(1).at(6, 0, 0)
    with pytest.raises(ValueError, match="length must be at least 1"):
        Matchings(-1)
    with pytest.raises(ValueError, match="length must be left out where a graph's links decide it, 3 was given"):
        Matchings(3, Ring())
    undirected = "graph must be an undirected one that stays the same, such as ring, torus or random-regular"
    for graph in (DirectedRing(), Redrawn(RandomRegular(4)), Cycle((Ring(), Star())), Matchings()):
        with pytest.raises(ValueError, match=undirected):
            Matchings(graph=graph)
    with pytest.raises(ValueError, match=r"graph must be connected, RandomMatching\(\) is not"):
        Matchings(graph=RandomMatching()).at(6, 0, 0)
    with pytest.raises(ValueError, match="degree 4 needs at least 5 nodes"):
        Matchings(graph=RandomRegular(4)).at(3, 0, 0)
