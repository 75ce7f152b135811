"""What every comparison needs: no sharing, all-reduce, one node with all the data, random parts, pairs, and epidemics.

Random sampling is the baseline of the JWINS paper: every node shares a random subset of its parameters. Both ends draw
it from the sender's stream of the round, so no indices travel. What a neighbour did not send counts as one's own:

    x_i <- x_i + sum_j w_ij m_j (x_j - x_i),   m_j in {0, 1}^D the random mask of sender j

AD-PSGD: Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018: nodes average with
one other at a time; here all are paired at random every round. Epidemic learning: De Vos et al., "Epidemic learning:
boosting decentralized learning with randomized communication", NeurIPS 2023 (EL-Local): every node sends its model to
a few random others and takes the plain mean of its own and of those that came. Whom it sends to is the topology's
matter: `directed-random` always has the next node of a random ring among them, where the paper has any.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gossamer.algorithms.dpsgd import Dpsgd, State
from gossamer.compressors import random_entries
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round, partial_average, sparse_part
from gossamer.core.rng import Streams
from gossamer.core.settings import check_types


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Every node trains alone; nothing is sent."""

    parts = dict[str, PartSpec]()

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state


@dataclass(frozen=True)
class Centralized(LocalOnly):
    """One node with all the data, and as many samples per step as all nodes together would take."""

    pools_data = True


@dataclass(frozen=True)
class AllReduce(Dpsgd):
    """Every node averages with all others; bytes are those of direct links, n - 1 messages per node."""

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "AllReduce":
        if len(mixing.senders) != mixing.nodes**2:
            raise ValueError("all-reduce needs a link between any two nodes; take topology fully-connected")
        return self


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


@dataclass(frozen=True)
class AdPsgd(Dpsgd):
    """Average with one random other node per round."""

    requires = frozenset({"symmetric", "changing"})

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "AdPsgd":
        if np.diff(mixing.indptr).max() > 2:
            raise ValueError("ad-psgd averages pairs of nodes; take topology random-matching, redrawn every round")
        return self


@dataclass(frozen=True)
class Epidemic(Algorithm):
    """Send the model to a few random nodes; take the plain mean of what comes."""

    parts = {"x": PartSpec()}
    on_missing = "lose_mass"  # no weight of a message goes to another: the mean is over those that came

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "Epidemic":
        if np.ptp(mixing.weights) > 1e-9:
            raise ValueError(
                "epidemic gives all messages the same weight, and this graph does not; "
                "take topology directed-random or random-regular, redrawn every round"
            )
        return self

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        return {"x": Part(state.x)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return State(inbox.sum("x") / inbox.coverage("x"))  # all weights are equal, so the quotient is the plain mean
