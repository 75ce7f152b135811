"""Who sends to whom in a round, and with what weight.

A topology is a frozen dataclass whose fields are its settings. `at(nodes, seed, round)` is a pure function: every
peer computes the same graph of the same round, and no one coordinates.

Undirected graphs get Metropolis-Hastings weights (symmetric, doubly stochastic); directed ones get weights that are
column stochastic: a sender divides its mass equally among itself and its receivers.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Literal

import numpy as np

from gossamer.core.rng import permutation, philox
from gossamer.graphs import generators as graphs
from gossamer.graphs.generators import Links, pairs
from gossamer.graphs.mixing_matrix import MixingMatrix


class Topology:
    """A graph for every round. A family of graphs gives `links`; a schedule of graphs gives `at`."""

    @property
    def directed(self) -> bool:
        """May the weights be other than symmetric?"""
        return False

    @property
    def static(self) -> bool:
        """Is the graph the same in every round?"""
        return True

    @property
    def random(self) -> bool:
        """Does the graph depend on the seed, so that it can be drawn again?"""
        return False

    @property
    def representative_rounds(self) -> tuple[int, ...]:
        """A round of each kind of graph that will come, for checking them all beforehand."""
        return (0,)

    def period(self, nodes: int) -> int:
        """After so many exchanges the same graphs come again; 0: never."""
        return 1 if self.static else 0

    def with_digests(self) -> "Topology":
        """The same with the content of files that it reads noted; ValueError if it is not what was noted before."""
        return self

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        """The weights of a round; ValueError if the family has no graph of so many nodes."""
        return _mixing(self, nodes, seed, 0)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        """The links of the draw-th graph of the family; links to oneself and repeated ones do not count."""
        raise NotImplementedError


@lru_cache(maxsize=16)  # enough for one-peer-exponential on 65,536 nodes; a dense graph of thousands is large
def _mixing(topology: Topology, nodes: int, seed: int, draw: int) -> MixingMatrix:
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1, {nodes} was given")
    if nodes == 1 and topology.random:  # a single node has no degree to respect
        return MixingMatrix.metropolis(np.empty((0, 2), np.int64), 1)
    links = topology.links(nodes, seed, draw)
    return MixingMatrix.uniform_out(links, nodes) if topology.directed else MixingMatrix.metropolis(links, nodes)


def _check(holds: bool, field: str, must: str, given: object) -> None:
    if not holds:
        raise ValueError(f"{field} must be {must}, {given} was given")


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
        _check(self.rows >= 0, "rows", "at least 1, or 0 for the most square grid", self.rows)

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
        _check(self.degree >= 1, "degree", "at least 1", self.degree)

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
        _check(self.degree >= 2 and self.degree % 2 == 0, "degree", "an even number, at least 2", self.degree)
        _check(0 <= self.rewire <= 1, "rewire", "between 0 and 1", self.rewire)

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
        _check(0 < self.probability <= 1, "probability", "above 0 and at most 1", self.probability)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        bits = philox(seed, "topology", round=draw)
        what = f"a random graph with probability {self.probability}"
        advice = f"take a probability of at least {log(nodes) / nodes:.2g} (ln(nodes) / nodes)"
        return graphs.first_connected(lambda: graphs.erdos_renyi(nodes, self.probability, bits), nodes, what, advice)


@dataclass(frozen=True)
class OnePeerExponential(Topology):
    """In round t every node sends to one other, 2^t places further around the circle, then again from 1 place."""

    directed = True
    static = False

    def period(self, nodes: int) -> int:
        return max(1, (nodes - 1).bit_length())

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        return _mixing(self, nodes, seed, round % self.period(nodes))

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return pairs(np.arange(nodes), (np.arange(nodes) + 2**draw) % nodes)


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
        _check(self.out_degree >= 1, "out_degree", "at least 1", self.out_degree)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        _check_degree("out_degree", self.out_degree, nodes)
        return graphs.directed_random(nodes, self.out_degree, philox(seed, "topology", round=draw))


@dataclass(frozen=True)
class RandomMatching(Topology):
    """Nodes in random pairs, one left over if their number is odd; connected only over time, so have it redrawn."""

    random = True

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        order = permutation(philox(seed, "topology", round=draw), nodes)
        return pairs(order[: nodes // 2 * 2 : 2], order[1::2])


@dataclass(frozen=True)
class Matchings(Topology):
    """Every node meets one other at a time, in a sequence of pairings that returns.

    Of 2^k nodes it is the hypercube, which averages exactly in k meetings; of other numbers, as many random pairings,
    over which everybody is connected. Of an odd number one node is left over each time.
    """

    length: int = 0  # pairings until the first returns; 0: log2 of the number of nodes, rounded up
    static = False

    def __post_init__(self) -> None:
        _check(self.length >= 0, "length", "at least 1, or 0 for log2 of the nodes", self.length)

    def period(self, nodes: int) -> int:
        return self.length or max(1, (nodes - 1).bit_length())

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        return _mixing(self, nodes, seed, round % self.period(nodes))

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        if nodes & (nodes - 1) == 0:
            bit = 1 << draw % max(1, (nodes - 1).bit_length()) if nodes > 1 else 0
            low = np.flatnonzero(np.arange(nodes) & bit == 0)
            return pairs(low, low | bit)
        return _matchings(nodes, seed, self.period(nodes))[draw]


@lru_cache(maxsize=4)
def _matchings(nodes: int, seed: int, number: int) -> list[Links]:
    """So many random pairings, drawn again until they connect all nodes."""
    bits, least = philox(seed, "topology"), 2 if nodes > 2 else 1
    if number < least:
        raise ValueError(f"{number} pairing cannot connect {nodes} nodes; take length {least} or more, or 0")
    found: list[Links] = []

    def drawn() -> Links:
        orders = [permutation(bits, nodes) for _ in range(number)]
        found[:] = [pairs(order[: nodes // 2 * 2 : 2], order[1::2]) for order in orders]
        return np.concatenate(found)

    graphs.first_connected(drawn, nodes, f"a sequence of {number} pairings", "take a larger length")
    return found


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
        return _mixing(self if self.digest else self.with_digests(), nodes, seed, 0)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return graphs.read_links(self.path, nodes, self.directed, self.digest)


@dataclass(frozen=True)
class Redrawn(Topology):
    """A random graph that is drawn again every so many rounds."""

    graph: Topology
    every: int = 1  # rounds
    static = False

    def __post_init__(self) -> None:
        if not self.graph.random:
            names = ", ".join(name for name, family in TOPOLOGIES.items() if vars(family).get("random"))
            raise ValueError(f"graph must be a random one ({names}), {self.graph} is not")
        _check(self.every >= 1, "every", "at least 1", self.every)

    @property
    def directed(self) -> bool:
        return self.graph.directed

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        return _mixing(self.graph, nodes, seed, round // self.every)


@dataclass(frozen=True)
class Cycle(Topology):
    """The given graphs in turn, each for so many rounds, then from the first again.

    A random graph's place in the cycle is its draw, so two of one family differ. A schedule within the cycle counts
    only the rounds that are its own.
    """

    graphs: tuple[Topology, ...]
    every: int = 1  # rounds

    def __post_init__(self) -> None:
        _check(len(self.graphs) > 0, "graphs", "at least one topology", "none")
        _check(self.every >= 1, "every", "at least 1", self.every)

    @property
    def directed(self) -> bool:
        return any(graph.directed for graph in self.graphs)

    @property
    def static(self) -> bool:
        return len(self.graphs) == 1 and self.graphs[0].static

    @property
    def representative_rounds(self) -> tuple[int, ...]:
        return tuple(self.every * place for place in range(len(self.graphs)))

    def period(self, nodes: int) -> int:
        own = all(graph.static or graph.random for graph in self.graphs)  # a schedule within counts laps of its own
        return self.every * len(self.graphs) if own else 0

    def with_digests(self) -> "Cycle":
        return replace(self, graphs=tuple(graph.with_digests() for graph in self.graphs))

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        turn, within = divmod(round, self.every)
        lap, place = divmod(turn, len(self.graphs))
        graph = self.graphs[place]
        if graph.random:
            return _mixing(graph, nodes, seed, place)
        return graph.at(nodes, seed, lap * self.every + within)


TOPOLOGIES: dict[str, type[Topology]] = {
    "ring": Ring,
    "torus": Torus,
    "random-regular": RandomRegular,
    "fully-connected": FullyConnected,
    "star": Star,
    "small-world": SmallWorld,
    "erdos-renyi": ErdosRenyi,
    "one-peer-exponential": OnePeerExponential,
    "directed-ring": DirectedRing,
    "directed-random": DirectedRandom,
    "random-matching": RandomMatching,
    "matchings": Matchings,
    "four-node-ring": FourNodeRing,
    "edge-list": EdgeList,
    "redrawn": Redrawn,
    "cycle": Cycle,
}
