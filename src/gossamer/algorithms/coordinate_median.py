"""Coordinate-wise median: every entry becomes the median of what the neighbours and the node itself have there.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018,
Algorithm 1, with a node's neighbourhood in place of the server's workers, and models in place of gradients:

    x_i[d] <- median of x_j[d] over the neighbours j and i itself

Of an even number it is the mean of the two in the middle. The weights of the graph play no part. It does not preserve
the mean, so that nodes whose data differ much learn worse than by averaging: what it costs to believe no one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.algorithms.dpsgd import State
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round


@dataclass(frozen=True)
class CoordinateMedian(Algorithm):
    """Full sharing with the median of every entry instead of the mean, against poison."""

    requires = frozenset({"symmetric"})
    robust = True
    parts = {"x": PartSpec()}

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        heard: list[list[Tensor]] = [[] for _ in state.x]
        for row, _, _, part in inbox.edges("x"):
            heard[row].append(part.values[0])
        return State(torch.stack([_median(torch.stack(values)) for values in heard]))


def _median(rows: Tensor) -> Tensor:
    """Of each column."""
    ordered, middle = rows.sort(0).values, len(rows) // 2
    return ordered[middle] if len(rows) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
