import dataclasses
import hashlib
import math
import re
import subprocess
import sys
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.core.rng import philox
from gossamer.graphs import generators as graphs
from gossamer.graphs.matchings import GraphThenPairings
from gossamer.graphs.mixing_matrix import MixingMatrix
from gossamer.graphs.topologies import (
    TOPOLOGIES,
    BaseGraph,
    Cycle,
    DirectedRandom,
    DirectedRing,
    EdgeList,
    ErdosRenyi,
    FullyConnected,
    Matchings,
    OnePeerExponential,
    RandomRegular,
    Redrawn,
    Ring,
    SmallWorld,
    Star,
    Topology,
    Torus,
)

ANY_SIZE = [
    Ring(),
    Torus(),
    FullyConnected(),
    Star(),
    ErdosRenyi(0.6),
    OnePeerExponential(),
    DirectedRing(),
    DirectedRandom(1),
    Redrawn(ErdosRenyi(0.7), every=2),
    Redrawn(DirectedRandom(1)),
    Cycle((Ring(), Star(), ErdosRenyi(0.8)), every=2),
    Cycle((DirectedRing(), OnePeerExponential())),
    Matchings(),
    Matchings(graph=Torus()),
    BaseGraph(),
    BaseGraph(3),
]
RANDOM = [RandomRegular(4), RandomRegular(3), SmallWorld(), ErdosRenyi(), DirectedRandom(), DirectedRandom(5)]


def graph_of(mixing: MixingMatrix) -> networkx.DiGraph:
    """The links between different nodes, sender to receiver."""
    receivers, senders = np.nonzero(mixing.dense())
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(mixing.nodes))
    graph.add_edges_from((int(j), int(i)) for i, j in zip(receivers, senders, strict=True) if i != j)
    return graph


def degrees(mixing: MixingMatrix) -> set[int]:
    return set(mixing.num_receivers.tolist())


def same(one: MixingMatrix, other: MixingMatrix) -> bool:
    return np.array_equal(one.dense(), other.dense())


links = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
)


@given(links)
def test_metropolis_weights_follow_the_formula_entry_by_entry(case):
    n, pairs = case
    linked = {(i, j) for a, b in pairs for i, j in ((a, b), (b, a)) if i != j}
    degree = [sum((i, j) in linked for j in range(n)) for i in range(n)]
    expected = np.zeros((n, n))
    for i, j in linked:
        expected[i, j] = 1 / (1 + max(degree[i], degree[j]))
    for i in range(n):
        expected[i, i] = 1 - sum(expected[i])
    mixing = MixingMatrix.metropolis(np.array(pairs, np.int64).reshape(-1, 2), n)
    np.testing.assert_allclose(mixing.dense(), expected, atol=1e-15)
    assert mixing.symmetric
    assert mixing.row_stochastic
    assert mixing.column_stochastic
    assert mixing.num_receivers.tolist() == degree


@given(links)
def test_uniform_out_weights_follow_the_formula_entry_by_entry(case):
    n, pairs = case
    linked = {(sender, receiver) for sender, receiver in pairs if sender != receiver}
    expected = np.zeros((n, n))
    for j in range(n):
        receivers = [i for i in range(n) if (j, i) in linked]
        for i in [*receivers, j]:
            expected[i, j] = 1 / (1 + len(receivers))
    mixing = MixingMatrix.uniform_out(np.array(pairs, np.int64).reshape(-1, 2), n)
    np.testing.assert_array_equal(mixing.dense(), expected)
    assert mixing.column_stochastic
    assert mixing.symmetric == bool(np.allclose(expected, expected.T, rtol=0, atol=1e-12))
    assert mixing.row_stochastic == bool(np.allclose(expected.sum(axis=1), 1, rtol=0, atol=1e-12))
    graph = networkx.DiGraph(list(linked))
    graph.add_nodes_from(range(n))
    assert mixing.strongly_connected() == networkx.is_strongly_connected(graph)


@pytest.mark.parametrize(
    ("topology", "nodes"),
    [(topology, nodes) for topology in ANY_SIZE for nodes in [1, 2, 3, 5, 8, 16]]
    + [(topology, nodes) for topology in [RandomRegular(2), SmallWorld(2, 0.5)] for nodes in [1, 3, 5, 8, 16]]
    + [(topology, nodes) for topology in RANDOM for nodes in [1, 8, 16]],
    ids=str,
)
def test_what_a_topology_declares_is_what_its_weights_are(topology, nodes):
    rounds = [topology.at(nodes, 3, t) for t in range(12)]
    for mixing in rounds:
        assert mixing.nodes == nodes
        assert mixing.column_stochastic
        assert mixing.symmetric or topology.directed
        assert mixing.strongly_connected() or not topology.static
        for i in range(nodes):
            row = mixing.senders[mixing.indptr[i] : mixing.indptr[i + 1]]
            assert i in row
            assert row.tolist() == sorted(set(row.tolist()))
        assert (mixing.weights > 0).all()
        assert (mixing.indptr.dtype, mixing.senders.dtype, mixing.weights.dtype) == (np.int64, np.int64, np.float64)
    if topology.static:
        assert all(mixing is rounds[0] for mixing in rounds)


@pytest.mark.parametrize(
    "topology",
    [*RANDOM, *ANY_SIZE, Torus(4), RandomRegular(7), DirectedRandom(3), Redrawn(RandomRegular(4))],
    ids=str,
)
def test_one_node_keeps_everything_to_itself(topology):
    mixing = topology.at(1, 0, 5)
    assert mixing.dense().tolist() == [[1.0]]
    assert mixing.num_receivers.tolist() == [0]
    assert mixing.strongly_connected()
    assert mixing.spectral_gap() == 1.0


@pytest.mark.parametrize("topology", [Ring(), Torus(), FullyConnected(), Star(), DirectedRing(), OnePeerExponential()])
def test_two_nodes_share_half_and_half(topology):
    np.testing.assert_array_equal(topology.at(2, 0, 3).dense(), np.full((2, 2), 0.5))


@pytest.mark.parametrize("topology", [DirectedRing(), DirectedRandom(1), OnePeerExponential()], ids=str)
def test_a_directed_graph_has_one_way_links(topology):
    assert topology.directed
    assert not topology.at(5, 0, 0).symmetric


def test_weights_cannot_be_changed_by_one_of_those_who_share_them():
    mixing = Ring().at(4, 0, 0)
    with pytest.raises(ValueError, match="read-only"):
        mixing.weights[0] = 1


def test_the_known_families_have_their_known_links():
    def undirected(topology, nodes):
        return graph_of(topology.at(nodes, 0, 0)).to_undirected()

    assert undirected(Ring(), 7).edges == networkx.cycle_graph(7).edges
    assert set(undirected(Star(), 6).edges) == set(networkx.star_graph(5).edges)
    assert set(undirected(FullyConnected(), 6).edges) == set(networkx.complete_graph(6).edges)
    assert set(graph_of(DirectedRing().at(4, 0, 0)).edges) == {(0, 1), (1, 2), (2, 3), (3, 0)}


@pytest.mark.parametrize(("nodes", "rows", "columns"), [(16, 4, 4), (12, 3, 4), (6, 2, 3), (100, 10, 10)])
def test_a_torus_is_as_square_as_it_can_be(nodes, rows, columns):
    grid = networkx.grid_2d_graph(rows, columns, periodic=True)
    expected = {frozenset({a * columns + b, c * columns + d}) for (a, b), (c, d) in grid.edges}
    assert {frozenset(edge) for edge in graph_of(Torus().at(nodes, 0, 0)).edges} == expected
    assert same(Torus().at(nodes, 0, 0), Torus(rows).at(nodes, 0, 0))


def test_a_torus_of_a_prime_number_of_nodes_is_a_ring():
    assert same(Torus().at(7, 0, 0), Ring().at(7, 0, 0))


@given(st.integers(1, 12), st.integers(2, 25), st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_a_random_regular_graph_is_regular_and_connected(degree, nodes, seed):
    if nodes <= degree or degree * nodes % 2 or (degree == 1 and nodes > 2):
        with pytest.raises(ValueError, match="degree"):
            RandomRegular(degree).at(nodes, seed, 0)
    else:
        mixing = RandomRegular(degree).at(nodes, seed, 0)
        assert degrees(mixing) == {degree}
        assert mixing.strongly_connected()


@pytest.mark.parametrize(("degree", "num_graphs"), [(3, 70), (2, 70)])
def test_every_regular_graph_can_be_drawn(degree, num_graphs):
    # On six nodes, 60 labelled hexagons and 10 pairs of triangles; the cubic graphs are their complements.
    bits = philox(0, "test")
    drawn = [tuple(sorted(map(tuple, np.sort(graphs.regular(6, degree, bits), axis=1).tolist()))) for _ in range(1200)]
    assert len(set(drawn)) == num_graphs


@given(st.integers(1, 8), st.integers(2, 30), st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_directed_random_sends_to_so_many_others_and_is_strongly_connected(out_degree, nodes, seed):
    if nodes > out_degree:
        mixing = DirectedRandom(out_degree).at(nodes, seed, 0)
        assert degrees(mixing) == {out_degree}
        assert mixing.strongly_connected()


def test_directed_random_reaches_all_others_alike():
    reached = sum((DirectedRandom(3).at(8, seed, 0).dense() > 0).astype(int) for seed in range(700))
    others = reached[~np.eye(8, dtype=bool)]
    assert others.sum() == 700 * 8 * 3
    assert abs(others - 300).max() < 60  # over four standard deviations


@given(st.sampled_from([2, 4, 6]), st.floats(0, 1), st.integers(7, 30), st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_a_small_world_keeps_its_number_of_links_and_is_connected(degree, rewire, nodes, seed):
    mixing = SmallWorld(degree, rewire).at(nodes, seed, 0)
    assert mixing.num_receivers.sum() == nodes * degree
    assert mixing.strongly_connected()


def test_a_small_world_without_rewiring_is_a_lattice_and_with_it_is_not():
    lattice = networkx.watts_strogatz_graph(20, 4, 0)
    assert graph_of(SmallWorld(4, 0.0).at(20, 0, 0)).to_undirected().edges == lattice.edges
    moved = len(set(graph_of(SmallWorld(4, 0.5).at(400, 0, 0)).edges) - set(lattice_edges(400)))
    assert 650 < moved < 900  # 800 links, half of them rewired, seen from both ends


def lattice_edges(nodes):
    return networkx.watts_strogatz_graph(nodes, 4, 0).to_directed().edges


def test_an_erdos_renyi_graph_has_about_so_many_links():
    num_links = ErdosRenyi(0.3).at(200, 0, 0).num_receivers.sum() / 2
    assert abs(num_links - 0.3 * 19900) < 300
    assert degrees(ErdosRenyi(1.0).at(6, 0, 0)) == {5}


@pytest.mark.parametrize("nodes", [3, 4, 8, 9, 16])
def test_one_peer_exponential_hops_by_powers_of_two(nodes):
    for t in range(9):
        hop = 2 ** (t % math.ceil(math.log2(nodes)))
        expected = np.zeros((nodes, nodes))
        for i in range(nodes):
            expected[i, i] += 0.5
            expected[(i + hop) % nodes, i] += 0.5
        np.testing.assert_array_equal(OnePeerExponential().at(nodes, 0, t).dense(), expected)


def test_one_peer_exponential_averages_exactly_over_a_power_of_two():
    product = np.eye(8)
    for t in range(3):
        product = OnePeerExponential().at(8, 0, t).dense() @ product
    np.testing.assert_array_equal(product, np.full((8, 8), 1 / 8))


@pytest.mark.parametrize("topology", RANDOM, ids=str)
def test_the_seed_decides_a_random_graph(topology):
    one = topology.at(20, 1, 0)
    assert not same(one, topology.at(20, 2, 0))
    again = [topology.links(20, 1, 0) for _ in range(2)]  # not from the cache
    np.testing.assert_array_equal(*again)
    assert topology.at(20, 1, 7) is one


def test_another_process_draws_the_same_graphs():
    program = (
        "from gossamer.graphs.topologies import *; import hashlib\n"
        f"for t in {RANDOM!r}: print(hashlib.sha256(t.at(50, 9, 0).dense().tobytes()).hexdigest())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    here = [hashlib.sha256(topology.at(50, 9, 0).dense().tobytes()).hexdigest() for topology in RANDOM]
    assert run.stdout.split() == here


def test_a_drawn_graph_stays_the_same_from_version_to_version():
    # Peers with different versions must agree: if this changes, every run of a random graph changes with it.
    regular = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 5), (2, 4), (3, 5), (4, 5)]
    directed = [(0, 2), (0, 3), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1)]
    assert sorted(graph_of(RandomRegular(3).at(6, 0, 0)).to_undirected().edges) == regular
    assert sorted(graph_of(DirectedRandom(2).at(4, 0, 0)).edges) == directed


@pytest.mark.parametrize("family", RANDOM, ids=str)
def test_redrawn_draws_a_new_graph_every_so_many_rounds(family):
    topology = Redrawn(family, every=3)
    assert not topology.static
    assert topology.directed == family.directed
    rounds = [topology.at(20, 1, t) for t in range(9)]
    for t in range(1, 9):
        assert same(rounds[t], rounds[t - 1]) == (t % 3 != 0)
    assert same(rounds[0], family.at(20, 1, 0))


def test_a_cycle_goes_through_its_graphs():
    rounds = [Cycle((Ring(), Star()), every=2).at(5, 0, t) for t in range(6)]
    expected = [Ring(), Ring(), Star(), Star(), Ring(), Ring()]
    assert all(same(mixing, graph.at(5, 0, 0)) for mixing, graph in zip(rounds, expected, strict=True))


def test_a_cycle_counts_a_schedules_own_rounds_and_draws_equal_families_apart():
    topology = Cycle((OnePeerExponential(), RandomRegular(4), RandomRegular(4)), every=2)
    for lap in range(3):
        for within in range(2):
            assert same(topology.at(20, 1, 6 * lap + within), OnePeerExponential().at(20, 1, 2 * lap + within))
    assert not same(topology.at(20, 1, 2), topology.at(20, 1, 4))
    assert same(topology.at(20, 1, 2), topology.at(20, 1, 8))
    nested = Cycle((Cycle((Ring(), Star())), FullyConnected()))
    expected = [Ring(), FullyConnected(), Star(), FullyConnected(), Ring()]
    assert all(same(nested.at(6, 0, t), graph.at(6, 0, 0)) for t, graph in enumerate(expected))


def test_a_cycle_is_static_if_nothing_in_it_changes():
    assert Cycle((Ring(),)).static
    assert not Cycle((OnePeerExponential(),)).static
    assert not Cycle((Ring(), Star())).static
    assert Cycle((Ring(), DirectedRing())).directed
    assert not Cycle((Ring(), Star())).directed


@pytest.mark.parametrize("nodes", [3, 4, 9, 16, 501, 1000])
def test_the_spectral_gap_is_that_of_the_closed_form(nodes):
    ring = [abs(1 + 2 * math.cos(2 * math.pi * k / nodes)) / 3 for k in range(1, nodes)]
    directed = [abs(1 + complex(math.cos(2 * math.pi * k / nodes), math.sin(2 * math.pi * k / nodes))) / 2
                for k in range(1, nodes)]  # fmt: skip
    assert Ring().at(nodes, 0, 0).spectral_gap() == pytest.approx(1 - max(ring), abs=1e-12, rel=1e-8)
    assert DirectedRing().at(nodes, 0, 0).spectral_gap() == pytest.approx(1 - max(directed), abs=1e-12, rel=1e-8)
    assert FullyConnected().at(nodes, 0, 0).spectral_gap() == pytest.approx(1, abs=1e-12)
    assert Star().at(nodes, 0, 0).spectral_gap() == pytest.approx(1 / nodes, rel=1e-9)


@pytest.mark.parametrize("topology", [RandomRegular(4), SmallWorld(), DirectedRandom()], ids=str)
def test_the_sparse_spectral_gap_is_the_dense_one(topology):
    mixing = topology.at(502, 1, 0)
    values = np.sort(np.abs(np.linalg.eigvals(mixing.dense())))
    assert mixing.spectral_gap() == pytest.approx(1 - values[-2], rel=1e-8)


def test_every_process_finds_the_same_spectrum_of_many_nodes_to_the_last_bit():
    """Rates and checks depend on it, so peers and workers that compute it for themselves must agree."""
    mixing = RandomRegular(4).at(700, 0, 0)
    for figure in (mixing.norm_of_identity_minus_w, mixing.smallest_eigenvalue, mixing.spectral_gap):
        assert len({figure() for _ in range(8)}) == 1, figure


def test_the_spectral_gap_is_found_densely_when_iteration_fails(monkeypatch):
    from scipy.sparse.linalg import ArpackError

    def fail(*arguments, **options):
        raise ArpackError(-9)

    monkeypatch.setattr("scipy.sparse.linalg.eigsh", fail)
    assert Star().at(501, 0, 0).spectral_gap() == pytest.approx(1 / 501)


def test_a_weight_of_nothing_is_as_good_as_none():
    mixing = MixingMatrix.with_shares(np.array([[1, 0]]), np.array([0.0, 0.0, 0.0]))
    assert len(mixing.weights) == 4
    assert mixing.symmetric


def test_two_islands_are_not_connected_and_have_no_gap():
    mixing = MixingMatrix.metropolis(np.array([[0, 1], [2, 3]]), 4)
    assert not mixing.strongly_connected()
    assert mixing.spectral_gap() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("topology", [RandomRegular(4), Torus(), SmallWorld(), DirectedRandom(4)], ids=str)
def test_thousands_of_nodes_are_connected(topology):
    mixing = topology.at(4096, 12, 0)
    assert mixing.column_stochastic
    assert mixing.strongly_connected()


def write(folder: Path, text: str) -> str:
    path = folder / "some.edges"
    path.write_text(text)
    return str(path)


def test_an_edge_list_may_name_links_twice_and_nodes_themselves(tmp_path):
    path = write(tmp_path, "4\n0 1\n1 0\n1 2\n2 2\n\n2 3\n3 0\n 0   3 \n")
    assert same(EdgeList(path).at(4, 0, 0), Ring().at(4, 0, 0))


def test_a_directed_edge_list_sends_from_the_first_to_the_second(tmp_path):
    topology = EdgeList(write(tmp_path, "3\n0 1\n1 2\n2 0\n"), directed=True)
    assert topology.directed
    assert topology.static
    assert same(topology.at(3, 0, 0), DirectedRing().at(3, 0, 0))


def test_an_edge_list_of_one_node_needs_no_links(tmp_path):
    assert EdgeList(write(tmp_path, "1")).at(1, 0, 0).dense().tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("text", "directed", "sentence"),
    [
        ("", False, "line 1 of the graph PATH must be its number of nodes"),
        ("four\n0 1\n", False, "line 1 of the graph PATH must be its number of nodes"),
        ("3\n0 1\n1 2\n", False, "the graph PATH has 3 nodes, the experiment 4; make them equal"),
        ("4\n0 1\n1 x\n", False, "line 3 of the graph PATH must be two nodes \"i j\" between 0 and 3, '1 x' was found"),
        ("4\n0 1 2\n", False, "line 2 of the graph PATH must be two nodes \"i j\" between 0 and 3, '0 1 2' was found"),
        ("4\n0 4\n", False, "line 2 of the graph PATH must be two nodes \"i j\" between 0 and 3, '0 4' was found"),
        ("4\n0 -1\n", False, "line 2 of the graph PATH must be two nodes \"i j\" between 0 and 3, '0 -1' was found"),
        ("4\n0 1\n2 3\n", False, "the graph PATH is not connected; add links until every node reaches every other"),
        ("4\n0 1\n1 2\n2 3\n", True,
         "the graph PATH is not strongly connected; add links until every node reaches every other"),
    ],
)  # fmt: skip
def test_a_wrong_edge_list_is_refused_in_a_sentence(tmp_path, text, directed, sentence):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence.replace('PATH', path))}$"):
        EdgeList(path, directed).at(4, 0, 0)


def test_an_edge_list_that_cannot_be_read_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"the graph /nowhere\.edges cannot be read: No such file or directory"):
        EdgeList("/nowhere.edges").at(4, 0, 0)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"binary cannot be read: it is not text"):
        EdgeList(str(tmp_path / "binary")).at(4, 0, 0)


WAY_OUT = "; take more nodes, or another topology such as ring (--set topology.name=ring, in Python gs.Ring())"


@pytest.mark.parametrize(
    ("topology", "nodes", "sentence"),
    [
        (Ring(), 0, "nodes must be at least 1, 0 was given"),
        (RandomRegular(4), 3, "degree 4 needs at least 5 nodes, 3 were given" + WAY_OUT),
        (RandomRegular(3), 5, "a random 3-regular graph of 5 nodes does not exist: degree * nodes must be even; "
         "take degree 2 or 4, or an even number of nodes"),
        (RandomRegular(1), 3, "a random 1-regular graph of 3 nodes does not exist: degree * nodes must be even; "
         "take degree 2, or an even number of nodes"),
        (RandomRegular(1), 4, "degree 1 cannot connect 4 nodes; take degree 2 or more, or 2 nodes"),
        (SmallWorld(4), 4, "degree 4 needs at least 5 nodes, 4 were given" + WAY_OUT),
        (ErdosRenyi(0.001), 100, "a random graph with probability 0.001 of 100 nodes was not connected in 100 draws; "
         "take a probability of at least 0.046 (ln(nodes) / nodes)"),
        (DirectedRandom(2), 2, "out_degree 2 needs at least 3 nodes, 2 were given" + WAY_OUT),
        (Torus(3), 16, "a torus of 16 nodes cannot have 3 rows; take one of [1, 2, 4, 8, 16] rows, or 0"),
        (Redrawn(RandomRegular(4)), 3, "degree 4 needs at least 5 nodes, 3 were given" + WAY_OUT),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_be_is_refused_in_a_sentence(topology, nodes, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        topology.at(nodes, 0, 0)


@pytest.mark.parametrize(
    ("topology", "advice"),
    [
        (SmallWorld(2, 1.0), "take a larger degree or a smaller rewire"),
        (RandomRegular(4), "take a larger degree"),
    ],
)
def test_a_graph_that_stays_in_pieces_is_refused_in_a_sentence(topology, advice, monkeypatch):
    monkeypatch.setattr(graphs, "connected", lambda links, nodes: False)
    with pytest.raises(ValueError, match=f"of 40 nodes was not connected in 100 draws; {advice}$"):
        topology.at(40, 99, 0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Torus(-1), "rows must be at least 1, or 0 for the most square grid, -1 was given"),
        (lambda: RandomRegular(0), "degree must be at least 1, 0 was given"),
        (lambda: SmallWorld(3), "degree must be an even number, at least 2, 3 was given"),
        (lambda: SmallWorld(4, 1.5), "rewire must be between 0 and 1, 1.5 was given"),
        (lambda: ErdosRenyi(0.0), "probability must be above 0 and at most 1, 0.0 was given"),
        (lambda: ErdosRenyi(math.nan), "probability must be above 0 and at most 1, nan was given"),
        (lambda: DirectedRandom(0), "out_degree must be at least 1, 0 was given"),
        (lambda: Redrawn(RandomRegular(4), 0), "every must be at least 1, 0 was given"),
        (lambda: Redrawn(Ring()), "graph must be a random one (random-regular, small-world, erdos-renyi, "
         "directed-random, random-matching), Ring() is not"),
        (lambda: Cycle(()), "graphs must be at least one topology, none was given"),
        (lambda: Cycle((Ring(),), 0), "every must be at least 1, 0 was given"),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make()


def test_the_representative_rounds_of_a_cycle_are_those_of_its_graphs():
    cycle = Cycle((Ring(), BaseGraph(), Star()), every=2)
    assert cycle.representative_rounds(6, 0) == (0, 2, 3, 8, 9, 4)  # of six nodes base-graph has four rounds
    own = [cycle.at(6, 0, round) for round in cycle.representative_rounds(6, 0)]
    expected = [Ring().at(6, 0, 0), *(BaseGraph().at(6, 0, round) for round in range(4)), Star().at(6, 0, 0)]
    assert all(same(one, other) for one, other in zip(own, expected, strict=True))


def test_every_named_topology_is_a_dataclass_with_a_one_line_description():
    assert set(TOPOLOGIES.values()) == set(Topology.__subclasses__()) - {GraphThenPairings}  # of cross-gradients
    for name, family in TOPOLOGIES.items():
        assert name == re.sub(r"(?<=[a-z])(?=[A-Z])", "-", family.__name__).lower()
        assert dataclasses.is_dataclass(family)
        assert family.__doc__.splitlines()[0].endswith(".")
        assert "random" not in {field.name for field in dataclasses.fields(family)}
