"""The inbox of a block: weighted sums over the messages that reached its nodes.

Every engine fills the same inbox. In a simulation the messages of all nodes lie in one matrix; a peer stacks those it
received. Only the order of the senders and the kernel matter to the result, and they are the same.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Message, Part
from gossamer.kernels.mixing import weighted_sums


class Edges(NamedTuple):
    """Who reaches each node of a block: for row i the entries indptr[i] .. indptr[i + 1], senders ascending."""

    indptr: NDArray[np.int64]  # (B + 1,)
    positions: NDArray[np.int64]  # where each sender's row lies among the messages
    senders: NDArray[np.int64]  # the senders' node numbers
    weights: NDArray[np.float64]  # w_ij


class BlockInbox:
    """An `Inbox` over messages that lie as rows in one matrix a part."""

    def __init__(self, messages: Message, edges: Edges, own_positions: Sequence[int]):
        self._messages = messages
        self._edges = edges
        self._num_rows = len(own_positions)
        first = int(own_positions[0])
        together = all(position == first + row for row, position in enumerate(own_positions))
        self._own = slice(first, first + self._num_rows) if together else torch.as_tensor(own_positions)

    def sum(self, part: str) -> Tensor:
        return self._weighted(self._messages[part].values)

    def coverage(self, part: str) -> Tensor:
        sent = self._messages[part].sent
        if sent is None:
            sent = torch.ones(len(self._messages[part].values), 1)
        return self._weighted(sent.float() if sent.shape[-1] == 1 else sent, torch.float32)

    def own(self, part: str) -> Tensor:
        return self._messages[part].values[self._own]

    def edges(self, part: str) -> Iterator[tuple[int, int, float, Part]]:
        values, sent, _ = self._messages[part]
        for row in range(self._num_rows):
            for e in range(self._edges.indptr[row], self._edges.indptr[row + 1]):
                at = slice(self._edges.positions[e], self._edges.positions[e] + 1)
                weight = float(self._edges.weights[e])
                yield row, int(self._edges.senders[e]), weight, Part(values[at], None if sent is None else sent[at])

    def _weighted(self, rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        out = torch.empty(self._num_rows, rows.shape[-1], dtype=dtype or rows.dtype)
        weighted_sums(self._edges.indptr, self._edges.positions, self._edges.weights, rows.numpy(), out.numpy())
        return out
