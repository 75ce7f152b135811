"""Which node holds which samples.

A partition is a frozen dataclass whose fields are its settings. `split` is a pure function that places every sample
on exactly one node, and at least one on every node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.core.rng import permutation, philox

Indices = NDArray[np.int64]
MAX_DRAWS = 100  # of Dirichlet proportions, in search of some that leave no node empty


class Samples(NamedTuple):
    """What a partition may know of the samples."""

    number: int
    labels: NDArray[np.int64] | None  # (number,)
    clients: NDArray[np.generic] | None  # (number,): whose sample it is, in numbers or names


class Partition:
    """A way to place samples on nodes. A kind of partition gives `place`; users call `split`."""

    keeps_clients: ClassVar[bool] = False  # is all of a client's data on one node?

    def split(
        self,
        labels: NDArray[np.int64] | None,
        clients: NDArray[np.generic] | None,
        num_samples: int,
        nodes: int,
        seed: int,
    ) -> list[Indices]:
        """The samples of each node, ascending; `labels` and `clients`, if there are any, have one entry per sample."""
        assert labels is None or labels.shape == (num_samples,)
        assert clients is None or clients.shape == (num_samples,)
        check_enough(num_samples, nodes)
        parts = self.place(Samples(num_samples, labels, clients), nodes, philox(seed, "partition"))
        return [np.sort(part) for part in parts]

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> Iterable[Indices]:
        """The samples of each node, in any order; never empty."""
        raise NotImplementedError


def check_enough(num_samples: int, nodes: int) -> None:
    """ValueError unless every node can have a sample."""
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1, {nodes} was given")
    if num_samples < nodes:
        share = f"{nodes} nodes cannot share {_count(num_samples, 'sample')}"
        raise ValueError(f"{share}: some would have none; {_at_most(num_samples)}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _at_most(nodes: int) -> str:
    return f"take at most {_count(nodes, 'node')}, or more data"


def _by_label(labels: NDArray[np.int64] | None, name: str, bits: np.random.Philox) -> tuple[Indices, Indices]:
    """The samples sorted by label, those of a label in random order, and how many each label has."""
    if labels is None:
        raise ValueError(f"the partition {name} needs a label for every sample, and this task has none; take iid")
    shuffled = permutation(bits, len(labels))
    counts = np.unique(labels, return_counts=True)[1]
    return shuffled[np.argsort(labels[shuffled], kind="stable")], counts


@dataclass(frozen=True)
class Iid(Partition):
    """Samples are spread at random, as equally as possible."""

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> Iterable[Indices]:
        return np.array_split(permutation(bits, data.number), nodes)


@dataclass(frozen=True)
class LabelShards(Partition):
    """Samples are sorted by label and cut into equal shards, and every node gets some shards at random."""

    per_node: int = 2  # shards per node

    name: ClassVar[str] = "label-shards"

    def __post_init__(self) -> None:
        if self.per_node < 1:
            raise ValueError(f"per_node must be at least 1, {self.per_node} was given")

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> Iterable[Indices]:
        samples, _ = _by_label(data.labels, self.name, bits)
        num_shards = nodes * self.per_node
        if data.number < num_shards:
            raise ValueError(
                f"{data.number} samples cannot be cut into {num_shards} shards, {self.per_node} for each of {nodes} "
                f"nodes; take per_node at most {data.number // nodes}, or fewer nodes"
            )
        shards = self.shards(samples, num_shards, bits)
        return [np.concatenate(shards[at : at + self.per_node]) for at in range(0, num_shards, self.per_node)]

    def shards(self, samples: Indices, number: int, bits: np.random.Philox) -> list[Indices]:
        """Equal shards of sorted samples, in the order in which nodes get them."""
        pieces = np.array_split(samples, number)
        return [pieces[piece] for piece in permutation(bits, number)]


@dataclass(frozen=True)
class LabelCuts(LabelShards):
    """Samples are sorted by label, and one node after the other cuts shards out of what is left, at random places.

    What is left closes up after a cut, so later shards have more labels than those of label-shards. The JWINS authors'
    implementation does this.
    """

    name: ClassVar[str] = "label-cuts"

    def shards(self, samples: Indices, number: int, bits: np.random.Philox) -> list[Indices]:
        sizes = [len(piece) for piece in np.array_split(samples, number)]
        num_left = np.cumsum(sizes[::-1])[::-1].tolist()  # before each cut
        starts = [int(word) % length for word, length in zip(bits.random_raw(number), num_left, strict=True)]
        return cut_out(samples, starts, sizes)


def cut_out(samples: Indices, starts: Sequence[int], sizes: Sequence[int]) -> list[Indices]:
    """Shards of these sizes, each cut out of what the ones before it have left, from a start on."""
    found, left = [], [samples]  # in stretches, and the first follows the last
    for start, size in zip(starts, sizes, strict=True):
        before, behind = _split(left, start)
        taken, behind = _split(behind, size)
        more, before = _split(before, size - sum(map(len, taken)))
        found.append(np.concatenate([*taken, *more]))
        left = [*before, *behind]
    return found


def _split(stretches: list[Indices], at: int) -> tuple[list[Indices], list[Indices]]:
    """The first samples, at most so many, and the others."""
    for i, stretch in enumerate(stretches):
        if at < len(stretch):
            return [*stretches[:i], stretch[:at]], [stretch[at:], *stretches[i + 1 :]]
        at -= len(stretch)
    return stretches, []


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Every class is divided among the nodes in proportions drawn from a Dirichlet distribution.

    Proportions that would leave a node without data are drawn again, all of them.
    """

    alpha: float = 0.5  # small: a class on few nodes; large: like iid

    def __post_init__(self) -> None:
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha must be a number above 0, {self.alpha} was given")
        if self.alpha > 1e9:  # nearly the largest float, draws break down
            raise ValueError(f"alpha must be at most 1e9, {self.alpha} was given; the partition iid is the limit")

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> Iterable[Indices]:
        samples, counts = _by_label(data.labels, "dirichlet", bits)
        classes = np.split(samples, np.cumsum(counts)[:-1])
        # Unlike raw words, NumPy's distributions may change with its version, and with them this partition.
        generator = np.random.Generator(bits)
        for _ in range(MAX_DRAWS):
            shares = generator.dirichlet(np.full(nodes, self.alpha), len(counts))
            cuts = np.rint(np.cumsum(shares, axis=1)[:, :-1] * counts[:, None]).astype(np.int64)
            sizes = np.diff(cuts, axis=1, prepend=0, append=counts[:, None]).sum(axis=0)
            if sizes.min() > 0:
                pieces = [np.split(samples, cut) for samples, cut in zip(classes, cuts, strict=True)]
                return [np.concatenate(piece) for piece in zip(*pieces, strict=True)]
        better = "a larger alpha or fewer nodes" if self.alpha < 10 else "fewer nodes, or iid"  # all alike already
        raise ValueError(
            f"alpha {self.alpha} left node {sizes.argmin()} of {nodes} without data in the last of {MAX_DRAWS} draws, "
            f"and some node in each; take {better}"
        )


@dataclass(frozen=True)
class Skew(Partition):
    """A fraction of every class is sorted by label and cut into one part per node; the rest is spread at random."""

    fraction: float  # 0: like iid; 1: a node has few labels

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"fraction must be between 0 and 1, {self.fraction} was given")

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> Iterable[Indices]:
        samples, counts = _by_label(data.labels, "skew", bits)
        rank = np.arange(data.number) - np.repeat(np.cumsum(counts) - counts, counts)  # within the label
        chosen = rank < np.repeat(np.rint(self.fraction * counts), counts)
        parts = np.array_split(samples[chosen], nodes)
        rest = samples[~chosen][permutation(bits, int(np.count_nonzero(~chosen)))]
        # What a part still lacks of an equal share, so that sizes differ by one sample at most.
        lacks = [len(whole) - len(part) for whole, part in zip(np.array_split(samples, nodes), parts, strict=True)]
        spread = np.split(rest, np.cumsum(lacks)[:-1])
        return [np.concatenate(both) for both in zip(parts, spread, strict=True)]


@dataclass(frozen=True)
class ByClient(Partition):
    """Each client's data (a writer's, a user's) stays whole, and clients are grouped onto nodes of like size."""

    keeps_clients: ClassVar[bool] = True

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> Iterable[Indices]:
        if data.clients is None:
            raise ValueError(
                "the partition by-client needs a client for every sample, and this task has none; take iid"
            )
        _, client, counts = np.unique(data.clients, return_inverse=True, return_counts=True)
        if len(counts) < nodes:
            raise ValueError(
                f"{nodes} nodes cannot share {_count(len(counts), 'client')} whole; {_at_most(len(counts))}"
            )
        shuffled = permutation(bits, len(counts))
        home = np.empty(len(counts), np.int64)
        loads = [(0, node) for node in range(nodes)]
        heapify(loads)
        for one in shuffled[np.argsort(-counts[shuffled], kind="stable")]:  # the largest first, on the emptiest node
            load, node = loads[0]
            home[one] = node
            heapreplace(loads, (load + int(counts[one]), node))
        order = np.argsort(home[client], kind="stable")
        return np.split(order, np.cumsum(np.bincount(home[client], minlength=nodes))[:-1])


PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "label-shards": LabelShards,
    "label-cuts": LabelCuts,
    "dirichlet": Dirichlet,
    "skew": Skew,
    "by-client": ByClient,
}
