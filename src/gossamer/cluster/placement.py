"""Which rank hosts which nodes: equal shares, in the order of nodes, or so that few links are between ranks."""

from collections.abc import Callable

import numpy as np

from gossamer.experiments.experiment import ExperimentError
from gossamer.simulator.ranks import Integers

Links = Callable[[], tuple[Integers, Integers]]  # senders and receivers


def contiguous(links: Links, nodes: int, chunk: int, number: int) -> list[Integers]:
    """The first nodes in the first rank, and so on; whole chunks, as even as can be."""
    chunks = np.array_split(np.arange(-(-nodes // chunk)), number)
    return [np.arange(own[0] * chunk, min(nodes, (own[-1] + 1) * chunk)) for own in chunks]


def min_cut(links: Links, nodes: int, chunk: int, number: int) -> list[Integers]:
    """By METIS, so that few links are between ranks, which host nearly equal numbers of nodes; whole chunks."""
    try:
        import pymetis
    except ImportError:
        raise ExperimentError(
            "--placement min-cut needs pymetis; pip install 'gossamer[cluster]', or take contiguous"
        ) from None
    senders, receivers = (of // chunk for of in links())
    between = senders != receivers
    ends = np.concatenate([[senders[between], receivers[between]], [receivers[between], senders[between]]], axis=1)
    units = -(-nodes // chunk)
    keys, counts = np.unique(ends[0] * units + ends[1], return_counts=True)
    starts = np.searchsorted(keys // units, np.arange(units + 1))
    sizes = np.diff(np.minimum(np.arange(units + 1) * chunk, nodes))
    graph = pymetis.CSRAdjacency(starts.tolist(), (keys % units).tolist())
    options = pymetis.Options(seed=0)
    _, ranks = pymetis.part_graph(
        number, graph, vweights=sizes.tolist(), eweights=counts.tolist(), options=options, recursive=number <= 8
    )
    rank_of = np.repeat(np.array(ranks), sizes)
    found = [np.flatnonzero(rank_of == rank) for rank in range(number)]
    if not all(map(len, found)):  # METIS may leave one empty if there are few nodes
        return contiguous(links, nodes, chunk, number)
    return sorted(found, key=lambda own: int(own[0]))


PLACEMENTS: dict[str, Callable[[Links, int, int, int], list[Integers]]] = {
    "contiguous": contiguous,
    "min-cut": min_cut,
}
