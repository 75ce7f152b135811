"""Who sends to whom in a round, and with what weight: all topologies by name, and the schedules of graphs.

A topology is a frozen dataclass whose fields are its settings. `at(nodes, seed, round)` is a pure function: every
peer computes the same graph of the same round, and no one coordinates.

Undirected graphs get Metropolis-Hastings weights (symmetric, doubly stochastic); directed ones get weights that are
column stochastic: a sender divides its mass equally among itself and its receivers.
"""

from dataclasses import dataclass, replace

import numpy as np

from gossamer.graphs.base import Topology, check, weights_of
from gossamer.graphs.families import (
    DirectedRandom,
    DirectedRing,
    EdgeList,
    ErdosRenyi,
    FourNodeRing,
    FullyConnected,
    RandomRegular,
    Ring,
    SmallWorld,
    Star,
    Torus,
)
from gossamer.graphs.finite_time import BaseGraph
from gossamer.graphs.generators import Links, pairs
from gossamer.graphs.matchings import Matchings, RandomMatching
from gossamer.graphs.mixing_matrix import MixingMatrix

__all__ = [
    "TOPOLOGIES", "BaseGraph", "Cycle", "DirectedRandom", "DirectedRing", "EdgeList", "ErdosRenyi", "FourNodeRing",
    "FullyConnected", "Matchings", "OnePeerExponential", "RandomMatching", "RandomRegular", "Redrawn", "Ring",
    "SmallWorld", "Star", "Topology", "Torus",
]  # fmt: skip


@dataclass(frozen=True)
class OnePeerExponential(Topology):
    """In round t every node sends to one other, 2^t places further around the circle, then again from 1 place."""

    directed = True
    static = False

    def period(self, nodes: int, seed: int) -> int:
        return max(1, (nodes - 1).bit_length())

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        return weights_of(self, nodes, seed, round % self.period(nodes, seed))

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        return pairs(np.arange(nodes), (np.arange(nodes) + 2**draw) % nodes)


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
        check(self.every >= 1, "every", "at least 1", self.every)

    @property
    def directed(self) -> bool:
        return self.graph.directed

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        return weights_of(self.graph, nodes, seed, round // self.every)


@dataclass(frozen=True)
class Cycle(Topology):
    """The given graphs in turn, each for so many rounds, then from the first again.

    A random graph's place in the cycle is its draw, so two of one family differ. A schedule within the cycle counts
    only the rounds that are its own.
    """

    graphs: tuple[Topology, ...]
    every: int = 1  # rounds

    def __post_init__(self) -> None:
        check(len(self.graphs) > 0, "graphs", "at least one topology", "none")
        check(self.every >= 1, "every", "at least 1", self.every)

    @property
    def directed(self) -> bool:
        return any(graph.directed for graph in self.graphs)

    @property
    def static(self) -> bool:
        return len(self.graphs) == 1 and self.graphs[0].static

    def representative_rounds(self, nodes: int, seed: int) -> tuple[int, ...]:
        found = []
        for place, graph in enumerate(self.graphs):
            for own in graph.representative_rounds(nodes, seed):
                lap, within = divmod(own, self.every)
                found.append((lap * len(self.graphs) + place) * self.every + within)
        return tuple(found)

    def period(self, nodes: int, seed: int) -> int:
        own = all(graph.static or graph.random for graph in self.graphs)  # a schedule within counts laps of its own
        return self.every * len(self.graphs) if own else 0

    def with_digests(self) -> "Cycle":
        return replace(self, graphs=tuple(graph.with_digests() for graph in self.graphs))

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        turn, within = divmod(round, self.every)
        lap, place = divmod(turn, len(self.graphs))
        graph = self.graphs[place]
        if graph.random:
            return weights_of(graph, nodes, seed, place)
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
    "base-graph": BaseGraph,
    "four-node-ring": FourNodeRing,
    "edge-list": EdgeList,
    "redrawn": Redrawn,
    "cycle": Cycle,
}
