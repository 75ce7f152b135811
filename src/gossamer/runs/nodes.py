"""The graph of a run and the data of its nodes, as its report draws them: nodes.json, written when a run begins.

A run can be reported where its data are not, so what a picture of them takes is kept with it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gossamer.core import Samples
from gossamer.experiments.experiment import Experiment

NAME = "nodes.json"
MOST_NODES, MOST_LINKS, MOST_LABELS, MOST_EXCHANGES = 1000, 20_000, 100, 16  # more than these nobody can see


@dataclass(frozen=True)
class Nodes:
    """Who is linked to whom, and how much of what each node has."""

    links: tuple[tuple[int, int], ...] = ()  # sender, receiver; of an undirected graph once, the smaller number first
    directed: bool = False
    exchanges: int = 1  # over so many of the first ones; the graph may change from one to the next
    samples: tuple[int, ...] = ()  # of each node
    labels: tuple[int, ...] = ()  # that samples have; none: there are none, or too many to show
    counts: tuple[tuple[int, ...], ...] = ()  # of each node, by label

    @classmethod
    def of(cls, experiment: Experiment, shards: Sequence[Samples], labels: NDArray[np.int64] | None) -> "Nodes":
        nodes = replace(cls.linked(experiment), samples=tuple(map(len, shards)))
        known = np.unique(labels) if labels is not None and labels.ndim == 1 else np.empty(0, np.int64)
        if labels is None or not 1 < len(known) <= MOST_LABELS or len(shards) > MOST_NODES:
            return nodes
        found = [np.searchsorted(known, labels[shard]) for shard in shards]
        counts = tuple(tuple(np.bincount(of, minlength=len(known)).tolist()) for of in found)
        return replace(nodes, labels=tuple(known.tolist()), counts=counts)

    @classmethod
    def linked(cls, experiment: Experiment) -> "Nodes":
        """The graph alone, which needs no data."""
        if experiment.nodes > MOST_NODES:
            return cls()
        topology, of = experiment.topology, (experiment.nodes, experiment.seed)
        exchanges, links = 0, set()
        with suppress(ValueError, OSError):  # a later random graph that cannot be had, a file that is not here
            for exchange in range(min(topology.period(*of) or MOST_EXCHANGES, MOST_EXCHANGES, experiment.rounds)):
                mixing = topology.at(*of, exchange)
                pairs = zip(mixing.senders.tolist(), mixing.receivers.tolist(), strict=True)
                links |= {(sender, receiver) for sender, receiver in pairs if sender != receiver}
                exchanges += 1
        directed = any((b, a) not in links for a, b in links)
        kept = tuple(sorted(links if directed else {(a, b) for a, b in links if a < b}))
        return cls(kept if len(kept) <= MOST_LINKS else (), directed, exchanges)

    @property
    def _is_sound(self) -> bool:
        """Could it be that of a run? Files may hold anything."""
        ends, counts = [node for link in self.links for node in link], [n for of in self.counts for n in of]
        whole = all(len(of) == len(self.labels) for of in self.counts)
        return whole and min([0, *ends, *counts, *self.samples]) == 0 and max(ends, default=0) < MOST_NODES

    def dumps(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


def load(directory: Path | None, experiment: Experiment | None) -> Nodes:
    """Those of a run; of one that has no such file, such as a peer, the graph alone, if the experiment is known."""
    try:
        if directory is not None and (directory / NAME).exists():
            found = msgspec.json.decode((directory / NAME).read_bytes(), type=Nodes)
            if found._is_sound:
                return found
    except (OSError, ValueError):
        pass  # a picture less is no reason to show nothing
    return Nodes() if experiment is None else Nodes.linked(experiment)
