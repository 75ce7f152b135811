"""The inbox: weighted sums over messages, the only place where nodes meet.

Every engine fills the same inbox. In a simulation the messages of all nodes lie in one matrix; a peer stacks those it
received. Only the order of the senders and the kernel matter to the result, and they are the same.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core.kernels import njit
from gossamer.core.message import Message, Part, stack


class Inbox(Protocol):
    """The messages that reached the block's nodes in an exchange, each node's own included.

    The values of a *cumulative* part are sums: of all that the sender has sent from the first exchange to this message.
    Who missed some of it is resent it, at a cost in bytes that is counted (wire/resync.py).

    w_ij is the weight of sender j at receiver i. Sums run over senders in ascending order in every engine, so that
    they are the same to the last bit.
    """

    def sum(self, part: str) -> Tensor:
        """(B, width): sum over j of w_ij * values_j; a tensor of the caller's own."""

    def coverage(self, part: str) -> Tensor:
        """(B, width), or (B, 1) if everything is sent: sum over j of w_ij * sent_j, the weight that arrived."""

    def own(self, part: str) -> Tensor:
        """(B, width): the values that the node itself sent."""

    def edges(self, part: str) -> Iterator[tuple[int, int, float, Part]]:
        """(row, sender, w_ij, one-row part) of every message, for rules that are not linear in their neighbours."""

    def heard(self) -> Tensor:
        """(B, 1) bool: did the message of any other node come?"""


def partial_average(own: Tensor, inbox: Inbox, part: str) -> Tensor:
    """Weighted average in which what a neighbour did not send counts as one's own.

    own + sum_j w_ij * sent_j * (values_j - own), for weights that sum to 1 over the senders.
    """
    return inbox.sum(part).add_(own).sub_(inbox.coverage(part) * own)


class Edges(NamedTuple):
    """Who reaches each node of a block: for row i the entries indptr[i] .. indptr[i + 1], senders ascending."""

    indptr: NDArray[np.int64]  # (B + 1,)
    positions: NDArray[np.int64]  # where each sender's row lies among the messages
    senders: NDArray[np.int64]  # the senders' node numbers
    weights: NDArray[np.float64]  # w_ij


class Arrival(NamedTuple):
    """A one-row message that a node takes in."""

    sender: int
    weight: float  # w_ij
    message: Message
    is_own: bool = False  # the node's own message of this exchange


class BlockInbox:
    """An `Inbox` over messages that lie as rows of one matrix per part."""

    def __init__(self, messages: Message, edges: Edges, own_positions: Sequence[int]):
        self._messages = messages
        self._edges = edges
        self._num_rows = len(own_positions)
        first = int(own_positions[0])
        together = all(position == first + row for row, position in enumerate(own_positions))
        self._own = slice(first, first + self._num_rows) if together else torch.as_tensor(own_positions)

    @classmethod
    def of_arrivals(cls, arrivals: Sequence[Sequence[Arrival]]) -> "BlockInbox":
        """From the messages that each node takes in, senders ascending, its own among them."""
        rows = [arrival for each in arrivals for arrival in each]
        edges = Edges(
            indptr=np.cumsum([0, *map(len, arrivals)]),
            positions=np.arange(len(rows)),
            senders=np.array([arrival.sender for arrival in rows]),
            weights=np.array([arrival.weight for arrival in rows]),
        )
        own = [position for position, arrival in enumerate(rows) if arrival.is_own]
        return cls(stack([arrival.message for arrival in rows]), edges, own)

    def sum(self, part: str) -> Tensor:
        return self._weighted(self._part(part).values)

    def coverage(self, part: str) -> Tensor:
        values, sent, _ = self._part(part)
        if sent is None:
            sent = torch.ones(len(values), 1)
        return self._weighted(sent.float() if sent.shape[-1] == 1 else sent, torch.float32)

    def own(self, part: str) -> Tensor:
        return self._part(part).values[self._own]

    def edges(self, part: str) -> Iterator[tuple[int, int, float, Part]]:
        values, sent, _ = self._part(part)
        for row in range(self._num_rows):
            for e in range(self._edges.indptr[row], self._edges.indptr[row + 1]):
                at = slice(self._edges.positions[e], self._edges.positions[e] + 1)
                weight = float(self._edges.weights[e])
                yield row, int(self._edges.senders[e]), weight, Part(values[at], None if sent is None else sent[at])

    def heard(self) -> Tensor:
        return torch.from_numpy(np.diff(self._edges.indptr) > 1)[:, None]

    def _part(self, name: str) -> Part:
        if name not in self._messages:
            raise ValueError(f"there is no part {name!r}, only {', '.join(self._messages) or 'empty messages'}")
        return self._messages[name]

    def _weighted(self, rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        out = torch.empty(self._num_rows, rows.shape[-1], dtype=dtype or rows.dtype)
        weighted_sums(self._edges.indptr, self._edges.positions, self._edges.weights, rows.numpy(), out.numpy())
        return out


COLUMNS = 1024  # that are summed at a time, so that they stay in cache


@njit(cache=True)
def weighted_sums(
    indptr: NDArray[np.int64],
    positions: NDArray[np.int64],
    weights: NDArray[np.float64],
    rows: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """out[i] = sum over e in indptr[i] .. indptr[i + 1] of weights[e] * rows[positions[e]].

    Messages are added in the order in which the list names them, one product and one addition at a time, in float64,
    and rounded once. The result is the same to the last bit whether the rows lie in one matrix, in a worker's share of
    it, or came over a network; a matrix product promises nothing of the kind.
    """
    num_columns = rows.shape[1]
    block = np.empty(COLUMNS, np.float64)
    for i in range(out.shape[0]):
        for start in range(0, num_columns, COLUMNS):
            target = out[i, start : start + COLUMNS]
            sums = block[: target.size]
            sums[:] = 0
            for e in range(indptr[i], indptr[i + 1]):
                weight, row = weights[e], rows[positions[e], start : start + COLUMNS]
                for c in range(sums.size):
                    sums[c] += weight * row[c]
            for c in range(sums.size):
                target[c] = sums[c]
