"""Robust aggregation: full sharing against neighbours that send poison.

ClippedGossip lets no neighbour move a node further than a radius allows. He, Karimireddy, Jaggi, "Byzantine-robust
decentralized learning via ClippedGossip", 2022, Algorithm 1:

    x_i <- x_i + sum_j w_ij clip(x_j - x_i, tau_i),   clip(z, tau) = min(1, tau / |z|) z

x_i being the model after the local steps. The paper's theory sets tau_i from distances between honest nodes, which no
node knows. Without a radius, tau_i is here the median of the distances to the neighbours that were heard: as long as
fewer than half of them lie, it is at most the distance of an honest one.

Coordinate-wise median: every entry becomes the median of what the neighbours and the node itself have there. Yin, Chen,
Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018, Algorithm
1, with a node's neighbourhood in place of the server's workers, and models in place of gradients:

    x_i[d] <- median of x_j[d] over the neighbours j and i itself

Of an even number it is the mean of the two in the middle. The weights of the graph play no part. It does not preserve
the mean, so that nodes whose data differ much learn worse than by averaging: what it costs to believe no one.
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from gossamer.algorithms.dpsgd import Dpsgd, State
from gossamer.core import Inbox, Round
from gossamer.core.settings import check_types


@dataclass(frozen=True)
class ClippedGossip(Dpsgd):
    """Full sharing that bounds how far one neighbour can pull, against poison."""

    radius: float = 0.0  # tau; 0: the median of the distances to the neighbours

    robust = True
    averages = False  # clipping is not linear

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.radius < inf:
            raise ValueError(f"radius must be at least 0 and finite, {self.radius} was given")

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        own = inbox.own("x").double()
        pulls: list[list[tuple[float, Tensor]]] = [[] for _ in own]  # of each row: weight and x_j - x_i
        for row, _, weight, part in inbox.edges("x"):
            pulls[row].append((weight, part.values[0].double() - own[row]))
        return State(torch.stack([own[row] + self._moved(pulls[row]) for row in range(len(own))]).float())

    def _moved(self, pulls: list[tuple[float, Tensor]]) -> Tensor:
        lengths = [torch.linalg.vector_norm(pull).item() for _, pull in pulls]
        others = sorted(length for length in lengths if length > 0)
        radius = self.radius or (others[(len(others) - 1) // 2] if others else 0.0)
        moved = torch.zeros_like(pulls[0][1])
        for (weight, pull), length in zip(pulls, lengths, strict=True):
            if length > 0:
                moved = moved + (weight * min(1.0, radius / length)) * pull
        return moved


@dataclass(frozen=True)
class CoordinateMedian(Dpsgd):
    """Full sharing with the median of every entry instead of the mean, against poison."""

    robust = True
    averages = False  # nor is the median

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        heard: list[list[Tensor]] = [[] for _ in state.x]
        for row, _, _, part in inbox.edges("x"):
            heard[row].append(part.values[0])
        return State(torch.stack([_median(torch.stack(values)) for values in heard]))


def _median(rows: Tensor) -> Tensor:
    """Of each column."""
    ordered, middle = rows.sort(0).values, len(rows) // 2
    return ordered[middle] if len(rows) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
