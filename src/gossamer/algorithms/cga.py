"""Cross-gradient aggregation: step along a direction that is good on the neighbours' data, too.

Esfandiari et al., "Cross-gradient aggregation for decentralized learning from non-IID data", ICML 2021. g_ij is the
gradient of node i's model on node j's minibatch. Models go out to all neighbours, and each of them answers with a
gradient that is for node i alone; CompCGA compresses it, with an error of its own for every neighbour:

    g   = w_ii g_ii + sum_j v_j w_ij g_ij,   v = argmin |g|^2 over v_j >= margin
    m_i <- momentum m_i - lr g,   x_i <- sum_j w_ij x_j + m_i
    answer with C[g_ij + e_ij],   e_ij <- g_ij + e_ij - C[g_ij + e_ij]

With margin 0 this is the dual of the projection of gradient episodic memory (Lopez-Paz and Ranzato, NeurIPS 2017): g
is the direction nearest to w_ii g_ii that has no negative product with any w_ij g_ij. It comes to rest wherever none
is good for all, which need not be where the mean loss is least. The authors' code weights gradients by W and has a
margin of 0.5, so that every neighbour always has a say; so has this. It differs from that code in what
docs/faithfulness.md says.

A round is an exchange of models over the graph and one exchange of answers for each pairing of an edge colouring, in
which a node has at most one partner, so that a message for all neighbours is a message for that one.
"""

from collections import namedtuple
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.algorithms.composition import Alias
from gossamer.compressors import Compressor, NoCompression, Sign
from gossamer.core import Algorithm, Inbox, Message, Part, PartSpec, Round
from gossamer.core.kernels import njit
from gossamer.core.message import all_or_nothing
from gossamer.core.settings import check_types
from gossamer.graphs.edge_colouring import NOBODY
from gossamer.graphs.matchings import pairings
from gossamer.graphs.mixing_matrix import MixingMatrix

SWEEPS = 10_000  # over the variables of the quadratic program; far fewer are needed
TOLERANCE = 1e-12


class Neighbours(NamedTuple):
    """Whom each node of the graph meets in the pairings of its links, and what they weigh."""

    partners: NDArray[np.int64]  # (n, pairings), or NOBODY
    weights: NDArray[np.float64]  # (n, 1 + pairings): w_ii, and w_ij of each partner; 0 of nobody

    @classmethod
    def of(cls, mixing: MixingMatrix) -> "Neighbours":
        each = pairings(mixing)
        partners = np.full((mixing.nodes, len(each)), NOBODY)
        weights = np.zeros((mixing.nodes, 1 + len(each)))
        weights[:, 0] = [mixing.weight(node, node) for node in range(mixing.nodes)]
        for number, links in enumerate(each):
            for one, other in (*links.tolist(), *links[:, ::-1].tolist()):
                partners[one, number], weights[one, 1 + number] = other, mixing.weight(one, other)
        return cls(partners, weights)


class State(NamedTuple):
    x: Tensor  # model; from the first exchange to the last, the average of models (B, D)
    gradient: Tensor  # g_ii (B, D)
    velocity: Tensor  # m (B, D)
    cross: Any  # a NamedTuple, per pairing the gradient of the partner's model until it is sent, then of ours (B, D)
    error: Any  # a NamedTuple of e, one per pairing, if answers are compressed (B, D)


@dataclass(frozen=True)
class CrossGradientAggregation(Algorithm):
    """Combine gradients of one's own model that neighbours have computed on their data."""

    compressor: Compressor = NoCompression()  # C, of the answers
    momentum: float = 0.9  # beta
    margin: float = 0.5  # the least that v may be; 0: the projection alone
    neighbours: Neighbours | None = field(default=None, compare=False, repr=False)  # set by prepare

    requires = frozenset({"symmetric", "static", "reliable", "one_local_step", "one_exchange"})
    cross_gradients = True

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and under 1, {self.momentum} was given")
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin must be between 0 and 1, {self.margin} was given")
        if self.compressor.spec.seeded:
            raise ValueError("compressor cannot be random-k, which sends in every exchange; take another, such as sign")

    @property
    def parts(self) -> dict[str, PartSpec]:
        return {"x": PartSpec(sparse=True), "gradient": replace(self.compressor.spec, sparse=True)}

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "CrossGradientAggregation":
        return replace(self, neighbours=Neighbours.of(mixing))

    def init(self, x0: Tensor) -> State:
        number = 1 if self.neighbours is None else self.neighbours.partners.shape[1]
        compressed = number if not isinstance(self.compressor, NoCompression) else 0
        zeros = torch.zeros_like(x0)
        cross, error = (_per_pairing([zeros.clone() for _ in range(count)]) for count in (number, compressed))
        return State(x0, zeros, zeros.clone(), cross, error)

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(gradient=gradient)  # the step comes when all have answered

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        answers, pairing = round.exchange > 0 and not round.settling, round.exchange - 1
        answer = state.cross[max(0, pairing)]
        if answers and state.error:
            answer = answer + state.error[pairing]
        compressed = self.compressor(answer, round)
        if answers and state.error:
            state = state._replace(error=_with(state.error, pairing, answer - compressed.values))
        models = all_or_nothing(Part(state.x), round.exchange == 0)
        return {"x": models, "gradient": all_or_nothing(compressed, answers)}, state

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        if round.exchange == 0:
            cross = state.cross if round.settling else self._gradients_of_neighbours(state.x, inbox, round)
            return state._replace(x=inbox.sum("x"), cross=cross)
        if round.settling:
            return state
        pairing = round.exchange - 1
        answer = torch.zeros_like(state.x)
        for row, sender, _, part in inbox.edges("gradient"):
            if sender == self._partners(round)[row, pairing]:
                answer[row] = part.values[0]
        state = state._replace(cross=_with(state.cross, pairing, answer))
        return self._step(state, round) if round.exchange == round.exchanges - 1 else state

    def _gradients_of_neighbours(self, own: Tensor, inbox: Inbox, round: Round) -> Any:
        """The gradient of each partner's model, on this node's minibatch; without a partner, of its own model."""
        partners = self._partners(round)
        models = [own.clone() for _ in range(partners.shape[1])]
        for row, sender, _, part in inbox.edges("x"):
            for pairing in np.flatnonzero(partners[row] == sender):
                models[pairing][row] = part.values[0]
        return _per_pairing([round.gradient(each) for each in models])

    def _step(self, state: State, round: Round) -> State:
        assert self.neighbours is not None, "set by prepare"
        weights, cross = self.neighbours.weights[list(round.rng.nodes)], torch.stack(list(state.cross), dim=1)
        combined = torch.empty_like(state.x)
        for row in range(len(combined)):
            combine(state.gradient[row].numpy(), cross[row].numpy(), weights[row], self.margin, combined[row].numpy())
        velocity = self.momentum * state.velocity - round.learning_rate * combined
        return state._replace(x=state.x + velocity, velocity=velocity)

    def _partners(self, round: Round) -> NDArray[np.int64]:
        """(B, pairings): of the block's nodes."""
        assert self.neighbours is not None, "set by prepare"
        return self.neighbours.partners[list(round.rng.nodes)]


@cache
def _tuple_of(number: int) -> Any:
    return namedtuple("Pairings", [f"pairing_{pairing}" for pairing in range(number)])


def _per_pairing(tensors: list[Tensor]) -> Any:
    return _tuple_of(len(tensors))(*tensors)


def _with(tensors: Any, pairing: int, tensor: Tensor) -> Any:
    return tensors._replace(**{f"pairing_{pairing}": tensor})


Floats = NDArray[np.float32]


@njit(cache=True)
def combine(own: Floats, cross: Floats, weights: NDArray[np.float64], margin: float, out: Floats) -> None:
    """out = w_0 own + sum_j v_j w_j cross_j, v the minimizer of its square norm over v_j >= margin.

    By coordinate descent on ½ v'Hv + b'v, where H holds the products of the w_j cross_j, and b those with w_0 own. All
    is added up in float64, in the order of the entries, so that it is the same to the last bit on every machine.
    """
    number = cross.shape[0]
    products, with_own = np.zeros((number, number)), np.zeros(number)
    for j in range(number):
        for k in range(j + 1):
            total = 0.0
            for d in range(own.size):
                total += np.float64(cross[j, d]) * np.float64(cross[k, d])
            products[j, k] = products[k, j] = weights[1 + j] * weights[1 + k] * total
        total = 0.0
        for d in range(own.size):
            total += np.float64(cross[j, d]) * np.float64(own[d])
        with_own[j] = weights[1 + j] * weights[0] * total
    v = minimizer(products, with_own, margin)
    for d in range(own.size):
        total = weights[0] * np.float64(own[d])
        for j in range(number):
            total += v[j] * weights[1 + j] * np.float64(cross[j, d])
        out[d] = np.float32(total)


@njit(cache=True)
def minimizer(products: NDArray[np.float64], with_own: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Of ½ v'Hv + b'v over v_j >= margin; where a gradient is 0, v is the margin."""
    v = np.full(with_own.size, margin)
    for _ in range(SWEEPS):
        moved = 0.0
        for j in range(v.size):
            if products[j, j] > 0:
                slope = with_own[j]
                for k in range(v.size):
                    slope += products[j, k] * v[k]
                best = max(margin, v[j] - slope / products[j, j])
                moved = max(moved, abs(best - v[j]) / (1 + abs(best)))
                v[j] = best
        if moved < TOLERANCE:
            break
    return v


@dataclass(frozen=True)
class Cga(Alias):
    """Steps that neighbours' data agree with: every neighbour answers a model with its gradient on its own data."""

    momentum: float = 0.9  # beta
    margin: float = 0.5  # the least weight of an answer, beside that of its link; 0: the projection alone

    @property
    def composition(self) -> CrossGradientAggregation:
        return CrossGradientAggregation(momentum=self.momentum, margin=self.margin)


@dataclass(frozen=True)
class CompCga(Alias):
    """CGA whose answers are compressed, with error feedback for every neighbour."""

    compressor: Compressor = Sign()
    momentum: float = 0.9  # beta
    margin: float = 0.5  # the least weight of an answer, beside that of its link; 0: the projection alone

    @property
    def composition(self) -> CrossGradientAggregation:
        return CrossGradientAggregation(self.compressor, self.momentum, self.margin)
