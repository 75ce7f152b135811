"""What is worth knowing of a topology before a run: degrees, distances, and how fast it mixes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.graphs.generators import connected, pairs
from gossamer.graphs.mixing_matrix import MANY, MixingMatrix
from gossamer.graphs.topologies import Topology

LOOKED_AT = 10  # graphs of a topology that never returns


@dataclass(frozen=True)
class GraphFacts:
    """Of the graphs of one period together, or of the first ten if they never return."""

    period: int  # exchanges after which the graphs return; 0: never
    degree_min: int  # receivers of a node in an exchange
    degree_mean: float
    degree_max: int
    strongly_connected: bool  # over a period: does what any node says reach every other?
    diameter: int | None  # links from any node to any other, over a period; None: not connected, or too many nodes
    spectral_gap: float | None  # of an exchange, mean over a period; None: too many graphs of many nodes
    spectral_gap_of_period: float | None  # 1: after a period all nodes have the average


def facts(topology: Topology, nodes: int, seed: int) -> GraphFacts:
    """Of a topology of so many nodes."""
    period = topology.period(nodes, seed)
    mixings = [topology.at(nodes, seed, exchange) for exchange in range(period or LOOKED_AT)]
    degrees = np.stack([mixing.num_receivers for mixing in mixings])
    links = np.concatenate([pairs(mixing.senders, mixing.receivers) for mixing in mixings])
    is_connected = connected(links, nodes, directed=True)
    return GraphFacts(
        period=period,
        degree_min=int(degrees.min()),
        degree_mean=float(degrees.mean()),
        degree_max=int(degrees.max()),
        strongly_connected=is_connected,
        diameter=_diameter(links, nodes) if is_connected and nodes <= 2000 else None,
        spectral_gap=_mean_gap(mixings),
        spectral_gap_of_period=_gap_of_product(mixings) if period > 1 and nodes <= MANY else None,
    )


def _diameter(links: NDArray[np.int64], nodes: int) -> int:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    graph = csr_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(nodes, nodes))
    return int(shortest_path(graph, unweighted=True).max())


def _mean_gap(mixings: list[MixingMatrix]) -> float | None:
    stochastic = all(mixing.row_stochastic or mixing.column_stochastic for mixing in mixings)
    if not stochastic or (len(mixings) > 1 and mixings[0].nodes > MANY) or mixings[0].nodes < 2:
        return None
    return max(0.0, float(np.mean([mixing.spectral_gap() for mixing in mixings])))


def _gap_of_product(mixings: list[MixingMatrix]) -> float:
    """1 - the largest share of the nodes' differences that can be left after all these exchanges."""
    product = np.eye(mixings[0].nodes)
    for mixing in mixings:
        product = mixing.dense() @ product
    rest = np.linalg.norm(product - 1 / mixings[0].nodes, 2)
    return max(0.0, 1 - float(rest))
