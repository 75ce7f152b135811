"""Graphs in which every node meets at most one other at a time, and each of the two takes half of both."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gossamer.core.rng import permutation, philox
from gossamer.graphs import generators as graphs
from gossamer.graphs.base import Topology, check, weights_of
from gossamer.graphs.edge_colouring import edge_colouring
from gossamer.graphs.generators import Links, pairs
from gossamer.graphs.mixing_matrix import MixingMatrix


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

    By default a node may meet any other, in log2(nodes) pairings, rounded up, in which no two meet twice. Of 2^k nodes
    they are the hypercube, which averages exactly in k meetings; of other numbers, the nearest to it. Of an odd number
    one node is left over each time, and always another.

    With `length` there are so many random pairings. With `graph`, nodes meet over its links only: each link once, in as
    many pairings as a node has neighbours at most, or one more.
    """

    length: int = 0  # of the sequence, if its pairings are to be random ones
    graph: Topology | None = None  # undirected and the same in every round, such as ring, torus or small-world
    static = False

    def __post_init__(self) -> None:
        check(self.length >= 0, "length", "at least 1, or 0 for log2 of the nodes", self.length)
        if self.graph is None:
            return
        if self.graph.directed or not self.graph.static:
            must = "an undirected one that stays the same, such as ring, torus or random-regular"
            raise ValueError(f"graph must be {must}, {self.graph} is not")
        if self.length:
            raise ValueError(f"length must be left out where a graph's links decide it, {self.length} was given")

    def period(self, nodes: int, seed: int) -> int:
        if self.graph is not None:
            return len(_over_links(self.graph.with_digests(), nodes, seed))
        return self.length or _fewest(nodes)

    def with_digests(self) -> "Matchings":
        return self if self.graph is None else replace(self, graph=self.graph.with_digests())

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        same = self.with_digests()
        return weights_of(same, nodes, seed, round % same.period(nodes, seed))

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        if self.graph is not None:
            return _over_links(self.graph, nodes, seed)[draw]
        return _at_random(nodes, seed, self.length)[draw] if self.length else _with_anybody(nodes, draw)


@dataclass(frozen=True)
class GraphThenPairings(Topology):
    """A graph, then each of its links once, in pairings, then the graph again: the exchanges of a round in which models
    go out to all neighbours, and each of them answers."""

    graph: Topology  # undirected and the same in every round
    static = False

    def period(self, nodes: int, seed: int) -> int:
        return 1 + len(_over_links(self.graph, nodes, seed))

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        place = round % self.period(nodes, seed)
        return weights_of(self, nodes, seed, place - 1) if place else self.graph.at(nodes, seed, 0)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return _over_links(self.graph, nodes, seed)[draw]


def _fewest(nodes: int) -> int:
    """Meetings after which a node can have heard of every other."""
    return max(1, (nodes - 1).bit_length())


def _with_anybody(nodes: int, place: int) -> Links:
    """A pairing after which as many as can be have heard of each other, as evenly as can be.

    Node i meets c - i around the circle. Of two such pairings the second leads everybody c' - c places on from where
    the first led, so differences 2, -4, 8, -16, ... double what a node has heard of until that goes around the circle.
    Alternating signs keep the way back to the first pairing short. An odd circle has one node too many, whose partner
    is left over.
    """
    circle = nodes + nodes % 2
    one = np.arange(circle)
    turned = (1 + 2 * (1 - (-2) ** place) // 3 - one) % circle
    other = one ^ (1 << place) if circle & (circle - 1) == 0 else turned
    met = (one < other) & (other < nodes)
    return pairs(one[met], other[met])


@lru_cache(maxsize=4)
def _at_random(nodes: int, seed: int, number: int) -> list[Links]:
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


@lru_cache(maxsize=4)
def _over_links(graph: Topology, nodes: int, seed: int) -> list[Links]:
    """The links of a graph as pairings."""
    mixing = graph.at(nodes, seed, 0)
    if not mixing.strongly_connected():
        raise ValueError(f"graph must be connected, {graph} is not; take another, such as ring or random-regular")
    return pairings(mixing)


def pairings(mixing: MixingMatrix) -> list[Links]:
    """The links of a symmetric graph as pairings, each link in one of them."""
    once = mixing.receivers < mixing.senders
    return edge_colouring(pairs(mixing.receivers[once], mixing.senders[once]), mixing.nodes)
