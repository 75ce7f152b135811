"""D-PSGD: decentralized parallel SGD, every node shares its whole model ("full sharing").

Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017, Algorithm 1:

    x_i <- sum_j w_ij x_j,   after local steps x_j <- x_j - lr * gradient

The paper averages while it computes the gradient at the model before averaging; here, as in JWINS and the later
papers, a node first takes its local steps and then averages, which also allows more than one step per round.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round


class State(NamedTuple):
    x: Tensor  # model (B, D)


@dataclass(frozen=True)
class Dpsgd(Algorithm):
    """Full sharing: average whole models with the neighbours."""

    requires = frozenset({"symmetric"})
    averages = True
    parts = {"x": PartSpec()}

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return State(inbox.sum("x"))
