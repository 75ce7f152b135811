"""Random sampling: every node shares a random subset of its parameters, the baseline of the JWINS paper.

Both ends draw the subset from the sender's stream of the round, so no indices travel. A parameter that a neighbour
did not send counts as one's own:

    x_i <- x_i + sum_j w_ij m_j (x_j - x_i),   m_j in {0, 1}^D the random mask of sender j
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gossamer.compressors import random_entries
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round, partial_average, sparse_part
from gossamer.core.rng import Streams
from gossamer.core.settings import check_types


class State(NamedTuple):
    x: Tensor  # model (B, D)


@dataclass(frozen=True)
class RandomSampling(Algorithm):
    """Share a random subset of the parameters; no indices on the wire."""

    budget: float = 0.37  # fraction of the parameters that is sent

    requires = frozenset({"symmetric"})

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.budget <= 1:
            raise ValueError(f"budget must be over 0 and at most 1, {self.budget} was given")

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"x": PartSpec(seeded=self.mask)}

    def mask(self, rng: Streams, width: int) -> Tensor:
        return random_entries(rng, self.budget, width)

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": sparse_part(state.x, self.mask(round.rng, state.x.shape[-1]))}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return State(partial_average(state.x, inbox, "x"))
