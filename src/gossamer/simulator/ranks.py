"""The processes that host an experiment's nodes together: one on one machine, several in a cluster.

Each *rank* hosts a block of nodes and runs it as the simulator does. Small tables (losses, sizes of messages, scores)
are the same in all ranks after each stage, so that every rank keeps the same accounts; models, states and messages are
only where they are needed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ELSEWHERE = "this happened in another rank, which says so"  # a note on errors
COLUMNS = 64  # numbers of several vector registers

Integers = NDArray[np.int64]
Rows = slice | Integers  # of a table with one row per node


@dataclass(frozen=True, eq=False)
class Placement:
    """Which rank hosts which nodes, and which rank this process is."""

    nodes: Sequence[Integers]  # of each rank, ascending
    rank: int = 0

    @property
    def hosted(self) -> Integers:
        """The nodes of this rank."""
        return self.nodes[self.rank]

    @property
    def num_ranks(self) -> int:
        return len(self.nodes)

    @cached_property
    def rank_of(self) -> Integers:
        """(n,): the rank that hosts each node."""
        ranks = np.empty(sum(map(len, self.nodes)), np.int64)
        for rank, nodes in enumerate(self.nodes):
            ranks[nodes] = rank
        return ranks

    def position(self, node: int) -> int:
        """Of a hosted node among those of its rank."""
        return int(np.searchsorted(self.hosted, node))

    def items(self, rows: Sequence[int]) -> list[Integers]:
        """Which of these things each rank has, where each is of the node in its row; what is of none is spread."""
        owners = np.array([self.rank_of[row] if row < len(self.rank_of) else -1 for row in rows], np.int64)
        free = np.flatnonzero(owners < 0)
        owners[free] = np.arange(len(free)) % self.num_ranks
        return [np.flatnonzero(owners == rank) for rank in range(self.num_ranks)]


def rows_of_nodes(nodes: Integers) -> Rows:
    """Where these nodes, ascending, lie in a table of all: a slice, if they are consecutive, which copies nothing."""
    first, last = int(nodes[0]), int(nodes[-1])
    return slice(first, last + 1) if last - first + 1 == len(nodes) else nodes


class Ranks(Protocol):
    """How ranks speak to each other. All of them call the same methods in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def number(self) -> int: ...

    def placement(self, mixing: Callable[[], tuple[Integers, Integers]], nodes: int, chunk: int) -> Placement:
        """Of so many nodes, of which chunks must stay together; `mixing` gives the links, if they matter."""

    def begin(self, fingerprint: Mapping[str, str]) -> None:
        """Meet the others, who must have the same fingerprint under each name."""

    def together(self) -> AbstractContextManager[None]:
        """What is done within is done by all ranks, or else an error is raised in all: that of the lowest rank."""

    def any(self, flag: bool) -> bool:
        """Is it so in any rank?"""

    def share(self, tables: Sequence[Tensor], rows: Sequence[Integers]) -> None:
        """Give all ranks the rows that each has of these tables, and take theirs; `rows` are those of each rank."""

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Callable[[], None]:
        """Begin to send bytes to ranks, and to receive bytes from ranks; to be called until all is done."""


def mean_of_rows(rows: Tensor, placement: Placement, ranks: Ranks) -> Tensor:
    """(width,): the mean over the rows of all nodes, (b, width) of which are here, to the last bit as on one machine.

    Each rank takes some of the columns of all rows, in the order of nodes, and tells the others their means.
    """
    if placement.num_ranks == 1:
        return rows.mean(0)
    rank, columns = placement.rank, _pieces(rows.shape[1], placement.num_ranks)
    outgoing = {r: rows[:, own].contiguous() for r, own in enumerate(columns) if len(own)}
    shapes = [(len(nodes), len(columns[rank])) for nodes in placement.nodes]
    incoming = {r: torch.empty(shape, dtype=rows.dtype) for r, shape in enumerate(shapes) if shape[1]}
    others = ({r: _bytes_of(piece) for r, piece in of.items() if r != rank} for of in (outgoing, incoming))
    ranks.exchange(*others)()
    mean = torch.zeros(rows.shape[1], dtype=rows.dtype)
    if incoming:
        incoming[rank] = outgoing[rank]
        every = torch.empty(len(placement.rank_of), len(columns[rank]), dtype=rows.dtype)
        for r, piece in incoming.items():
            every[placement.nodes[r]] = piece
        mean[columns[rank]] = every.mean(0)
    ranks.share([mean], columns)
    return mean


def _pieces(width: int, number: int) -> list[Integers]:
    """So many columns, for each rank some, or none. No piece is smaller than some vector registers, or begins within
    one: then sums of columns run as they do over all of them."""
    step = max(COLUMNS, width // number // COLUMNS * COLUMNS)
    starts = [start for start in range(0, number * step, step) if start == 0 or width - start >= COLUMNS]
    ends = [*starts[1:], width]
    pieces = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
    return pieces + [np.arange(0)] * (number - len(pieces))


def _bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor as bytes, (number,)."""
    return tensor.view(-1).view(torch.uint8)


class OneRank:
    """All nodes are here, and nobody has to be told anything."""

    rank, number = 0, 1

    def placement(self, mixing: Callable[[], tuple[Integers, Integers]], nodes: int, chunk: int) -> Placement:
        return Placement([np.arange(nodes)])

    def begin(self, fingerprint: Mapping[str, str]) -> None:
        pass

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def any(self, flag: bool) -> bool:
        return flag

    def share(self, tables: Sequence[Tensor], rows: Sequence[Integers]) -> None:
        pass

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Callable[[], None]:
        return lambda: None
