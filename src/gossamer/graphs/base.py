"""What a topology is: a graph for every round, and the weights of its links."""

from functools import lru_cache

import numpy as np

from gossamer.graphs.generators import Links
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

    def representative_rounds(self, nodes: int, seed: int) -> tuple[int, ...]:
        """A round of each kind of graph that will come, for checking them all beforehand."""
        return (0,)

    def period(self, nodes: int, seed: int) -> int:
        """After so many exchanges the same graphs come again; 0: never."""
        return 1 if self.static else 0

    def with_digests(self) -> "Topology":
        """The same with the content of files that it reads noted; ValueError if it is not what was noted before."""
        return self

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        """The weights of a round; ValueError if the family has no graph of so many nodes."""
        return weights_of(self, nodes, seed, 0)

    def links(self, nodes: int, seed: int, draw: int) -> Links:
        """The links of the draw-th graph of the family; links to oneself and repeated ones do not count."""
        raise NotImplementedError


@lru_cache(maxsize=16)  # enough for one-peer-exponential on 65,536 nodes; a dense graph of thousands is large
def weights_of(topology: Topology, nodes: int, seed: int, draw: int) -> MixingMatrix:
    """The weights of the draw-th graph of a family, from its links."""
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1, {nodes} was given")
    if nodes == 1 and topology.random:  # a single node has no degree to respect
        return MixingMatrix.metropolis(np.empty((0, 2), np.int64), 1)
    links = topology.links(nodes, seed, draw)
    return MixingMatrix.uniform_out(links, nodes) if topology.directed else MixingMatrix.metropolis(links, nodes)


def check(holds: bool, field: str, must: str, given: object) -> None:
    """ValueError unless a field holds what it must."""
    if not holds:
        raise ValueError(f"{field} must be {must}, {given} was given")
