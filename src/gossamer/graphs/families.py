"""Graphs that stay as they are: the known families, random ones, and the graph of a file."""

from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Literal

import numpy as np

from gossamer.core.rng import permutation, philox
from gossamer.graphs import generators as graphs
from gossamer.graphs.base import Topology, check, weights_of
from gossamer.graphs.generators import Links, pairs
from gossamer.graphs.mixing_matrix import MixingMatrix


def _check_degree(field: str, degree: int, nodes: int) -> None:
    if nodes <= degree:
        raise ValueError(
            f"{field} {degree} needs at least {degree + 1} nodes, {nodes} were given; "
            "take more nodes, or another topology such as ring (--set topology.name=ring, in Python gs.Ring())"
        )


@dataclass(frozen=True)
class Ring(Topology):
    """Every node has two neighbours, in a circle."""

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return graphs.ring(np.arange(nodes))


@dataclass(frozen=True)
class Torus(Topology):
    """A grid whose opposite sides meet: every node has up to four neighbours."""

    rows: int = 0  # 0: as square as the number of nodes allows; of a prime number, that is a ring

    def __post_init__(self) -> None:
        check(self.rows >= 0, "rows", "at least 1, or 0 for the most square grid", self.rows)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        divisors = [rows for rows in range(1, nodes + 1) if nodes % rows == 0]
        rows = self.rows or max(d for d in divisors if d * d <= nodes)
        if rows not in divisors and nodes > 1:
            raise ValueError(f"a torus of {nodes} nodes cannot have {rows} rows; take one of {divisors} rows, or 0")
        grid = np.arange(nodes).reshape(min(rows, nodes), -1)
        right, down = np.roll(grid, -1, axis=1), np.roll(grid, -1, axis=0)
        return np.concatenate([pairs(grid.ravel(), right.ravel()), pairs(grid.ravel(), down.ravel())])


@dataclass(frozen=True)
class RandomRegular(Topology):
    """A random connected graph in which every node has the same number of neighbours."""

    degree: int = 4
    random = True

    def __post_init__(self) -> None:
        check(self.degree >= 1, "degree", "at least 1", self.degree)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        degree = self.degree
        _check_degree("degree", degree, nodes)
        if degree * nodes % 2:
            near = f"{degree - 1} or {degree + 1}" if degree > 1 else "2"
            raise ValueError(
                f"a random {degree}-regular graph of {nodes} nodes does not exist: degree * nodes must be even; "
                f"take degree {near}, or an even number of nodes"
            )
        if degree == 1 and nodes > 2:
            raise ValueError(f"degree 1 cannot connect {nodes} nodes; take degree 2 or more, or 2 nodes")
        bits = philox(seed, "topology", round=draw)
        if degree == 2:  # connected, it is a ring in random order, which a draw of any 2-regular graph seldom is
            return graphs.ring(permutation(bits, nodes))
        what, advice = f"a random {degree}-regular graph", "take a larger degree"
        return graphs.first_connected(lambda: graphs.regular(nodes, degree, bits), nodes, what, advice)


@dataclass(frozen=True)
class FullyConnected(Topology):
    """Every node is every other's neighbour."""

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return pairs(*np.triu_indices(nodes, 1))


@dataclass(frozen=True)
class Star(Topology):
    """Node 0 is the neighbour of all others, which have no other."""

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return pairs(np.zeros(nodes, np.int64), np.arange(nodes))


@dataclass(frozen=True)
class SmallWorld(Topology):
    """A ring of near neighbours some of whose links lead anywhere (Watts and Strogatz), connected."""

    degree: int = 4  # on average; half of it to either side of the ring
    rewire: float = 0.1  # probability that a link leads anywhere
    random = True

    def __post_init__(self) -> None:
        check(self.degree >= 2 and self.degree % 2 == 0, "degree", "an even number, at least 2", self.degree)
        check(0 <= self.rewire <= 1, "rewire", "between 0 and 1", self.rewire)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        _check_degree("degree", self.degree, nodes)
        bits = philox(seed, "topology", round=draw)
        what = f"a small world of degree {self.degree} and rewire {self.rewire}"
        advice = "take a larger degree or a smaller rewire"
        return graphs.first_connected(
            lambda: graphs.small_world(nodes, self.degree, self.rewire, bits), nodes, what, advice
        )


@dataclass(frozen=True)
class ErdosRenyi(Topology):
    """A random connected graph in which any two nodes are neighbours with the same probability."""

    probability: float = 0.3
    random = True

    def __post_init__(self) -> None:
        check(0 < self.probability <= 1, "probability", "above 0 and at most 1", self.probability)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        bits = philox(seed, "topology", round=draw)
        what = f"a random graph with probability {self.probability}"
        advice = f"take a probability of at least {log(nodes) / nodes:.2g} (ln(nodes) / nodes)"
        return graphs.first_connected(lambda: graphs.erdos_renyi(nodes, self.probability, bits), nodes, what, advice)


@dataclass(frozen=True)
class DirectedRing(Topology):
    """Every node sends to the next one, in a circle."""

    directed = True

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return graphs.ring(np.arange(nodes))


@dataclass(frozen=True)
class DirectedRandom(Topology):
    """Every node sends to the same number of others: the next one of a random ring, and others at random."""

    out_degree: int = 2
    directed = True
    random = True

    def __post_init__(self) -> None:
        check(self.out_degree >= 1, "out_degree", "at least 1", self.out_degree)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        _check_degree("out_degree", self.out_degree, nodes)
        return graphs.directed_random(nodes, self.out_degree, philox(seed, "topology", round=draw))


_FOUR_NODE_RINGS = {
    "a": ((0, 1), (1, 2), (2, 3), (3, 0)),
    "b": ((1, 0), (2, 1), (3, 2), (0, 3)),
    "c": ((0, 2), (2, 1), (1, 3), (3, 0)),
}


@dataclass(frozen=True)
class FourNodeRing(Topology):
    """The directed rings of four nodes in the Sparse-Push paper, whose senders give away 1/2, 1/3, 1/2 and 1/3."""

    graph: Literal["a", "b", "c"] = "a"
    directed = True

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        if nodes != 4:
            raise ValueError(f"this graph has 4 nodes, {nodes} were given; take nodes = 4, or directed-ring")
        return MixingMatrix.with_shares(np.array(_FOUR_NODE_RINGS[self.graph]), np.array([1 / 2, 1 / 3, 1 / 2, 1 / 3]))


@dataclass(frozen=True)
class EdgeList(Topology):
    """The graph of a file: first line the number of nodes, then a line "i j" per link."""

    path: str
    directed: bool = False  # True: i sends to j, and need not hear from it
    digest: str = ""  # of the file's content; a run notes it, so that no other graph takes its place

    def with_digests(self) -> "EdgeList":
        digest = graphs.read_file(self.path, self.digest)[1]
        return replace(self, path=str(Path(self.path).absolute()), digest=digest)

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        return weights_of(self if self.digest else self.with_digests(), nodes, seed, 0)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return graphs.read_links(self.path, nodes, self.directed, self.digest)
