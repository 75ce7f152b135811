"""ClippedGossip: full sharing in which no neighbour moves a node further than a radius allows.

He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022, Algorithm 1:

    x_i <- x_i + sum_j w_ij clip(x_j - x_i, tau_i),   clip(z, tau) = min(1, tau / |z|) z

x_i being the model after the local steps. The paper's theory sets tau_i from distances between honest nodes, which no
node knows. Without a radius, tau_i is here the median of the distances to the neighbours that were heard: as long as
fewer than half of them lie, it is at most the distance of an honest one.
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from gossamer.algorithms.dpsgd import State
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round
from gossamer.core.settings import check_types


@dataclass(frozen=True)
class ClippedGossip(Algorithm):
    """Full sharing that bounds how far one neighbour can pull, against poison."""

    radius: float = 0.0  # tau; 0: the median of the distances to the neighbours

    requires = frozenset({"symmetric"})
    robust = True
    parts = {"x": PartSpec()}

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.radius < inf:
            raise ValueError(f"radius must be at least 0 and finite, {self.radius} was given")

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x)}, state

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
