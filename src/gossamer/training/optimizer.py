"""What every node does with its own gradients: learning rate and its schedule, clipping, momentum, adaptive steps.

An optimizer's state belongs to the node: it is part of what a checkpoint keeps, and is never sent. Averages of models
leave it as it is; docs/optimizers.md says what is known about that.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper
from gossamer.algorithms.momentum import Momentum, QuasiGlobalMomentum
from gossamer.core import Algorithm, Round
from gossamer.training.schedules import Constant, Plateau, Schedule


@dataclass(frozen=True, kw_only=True)
class LocalOptimizer:
    """What all optimizers have. One of your own is a frozen dataclass that defines `init` and `direction`, both over
    rows: reduce over the last axis, never over the node axis."""

    learning_rate: float = 0.1
    schedule: Schedule = field(default_factory=Constant)
    schedule_per: Literal["round", "step"] = "round"  # what the schedule counts: rounds, or local steps
    clip: float = 0.0  # the largest L2 norm of a gradient, longer ones are scaled down; 0: any
    accumulate: int = 1  # minibatches whose mean gradient is one local step

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < inf:
            raise ValueError(f"learning_rate must be over 0 and finite, {self.learning_rate} was given")
        if not isinstance(self.schedule, Schedule):
            raise ValueError(f"schedule must be an instance such as Cosine(), {self.schedule!r} was given")
        if self.schedule_per not in ("round", "step"):
            raise ValueError(f'schedule_per must be "round" or "step", {self.schedule_per!r} was given')
        if not 0 <= self.clip < inf:
            raise ValueError(f"clip must be at least 0 and finite, {self.clip} was given")
        if type(self.accumulate) is not int or not 1 <= self.accumulate < 2**31:
            raise ValueError(f"accumulate must be a whole number, at least 1, {self.accumulate} was given")

    def init(self, x: Tensor) -> core.State:
        """The state of nodes with the models x, (B, D): a NamedTuple of tensors with one row per node."""
        raise NotImplementedError(f"{type(self).__name__} must define init")

    def direction(self, state: Any, gradient: Tensor, x: Tensor) -> tuple[Tensor, core.State]:
        """What a local step subtracts, (B, D), before it is multiplied by the learning rate; and the next state."""
        raise NotImplementedError(f"{type(self).__name__} must define direction")

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm with this optimizer's local steps."""
        return Optimized(self.schedule.wrap(algorithm), self)

    @property
    def takes_gradients_as_they_are(self) -> bool:
        """Is a local step's gradient that of one minibatch, unchanged?"""
        return self.clip == 0 and self.accumulate == 1

    def clipped(self, gradient: Tensor) -> Tensor:
        """(B, D), rows that are longer than `clip` scaled down to it, as torch's clip_grad_norm_ does."""
        if self.clip == 0:
            return gradient
        norms = torch.stack([torch.linalg.vector_norm(row) for row in gradient])[:, None]  # each row by itself
        return gradient * torch.clamp(self.clip / (norms + 1e-6), max=1.0)

    def learning_rates(self, round: int, rounds: int, local_steps: int) -> list[float]:
        """Of each local step of a round, in a run of so many."""
        if self.schedule_per == "round":
            return [self.learning_rate * self.schedule.factor(round, rounds)] * local_steps
        first, total = round * local_steps, rounds * local_steps
        return [self.learning_rate * self.schedule.factor(first + step, total) for step in range(local_steps)]

    def learning_rate_at(self, round: int, rounds: int, local_steps: int = 1) -> float:
        """Of a round: the mean of its local steps'."""
        rates = self.learning_rates(round, rounds, local_steps)
        return rates[0] if self.schedule_per == "round" else sum(rates) / local_steps


class OptimizedState(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    optimizer: core.State  # the optimizer's


@dataclass(frozen=True)
class Optimized(Wrapper):
    """Local steps along an optimizer's direction, around an algorithm."""

    optimizer: LocalOptimizer

    def init(self, x0: Tensor) -> OptimizedState:
        return OptimizedState(self.inner.init(x0), self.optimizer.init(x0))

    def local_step(self, state: OptimizedState, gradient: Tensor, round: Round) -> OptimizedState:
        step, kept = self.optimizer.direction(state.optimizer, gradient, self.model(state))
        return OptimizedState(self.inner.local_step(state.inner, step, round), kept)


@dataclass(frozen=True)
class SGD(LocalOptimizer):
    """SGD on every node, as in torch.optim.SGD."""

    learning_rate: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    quasi_global: bool = False  # momentum along the group's movement instead of the node's own gradients

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and under 1, {self.momentum} was given")
        _check_decay(self.weight_decay)
        for name in ("nesterov", "quasi_global"):
            if getattr(self, name) and self.momentum == 0:
                raise ValueError(f"{name} needs a momentum over 0, 0 was given")
        if self.quasi_global and isinstance(self.schedule, Plateau):
            raise ValueError(
                "quasi_global divides what the group moved by the learning rate, and on a plateau every node has its "
                "own; take another schedule, such as cosine"
            )

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        algorithm = self.schedule.wrap(algorithm)
        if self.momentum == 0 and self.weight_decay == 0:
            return algorithm
        kind = QuasiGlobalMomentum if self.quasi_global else Momentum
        return kind(algorithm, self.momentum, self.nesterov, self.weight_decay)


Optimizer = SGD  # its name when there was no other


class AdamState(NamedTuple):
    mean: Tensor  # of gradients, not yet divided by its weights' sum, m (B, D)
    square: Tensor  # of their squares, v (B, D)
    mean_weight: Tensor  # sum of the weights in `mean`, 1 - beta1^t (B, 1)
    square_weight: Tensor  # and in `square`, 1 - beta2^t (B, 1)


@dataclass(frozen=True)
class Adam(LocalOptimizer):
    """Adam on every node, as in torch.optim.Adam: weight decay is part of the gradient. Kingma and Ba, ICLR 2015."""

    learning_rate: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers of at least 0 and under 1, {list(self.betas)} was given")
        if not 0 < self.epsilon < inf:
            raise ValueError(f"epsilon must be over 0 and finite, {self.epsilon} was given")
        _check_decay(self.weight_decay)

    def init(self, x: Tensor) -> AdamState:
        nothing, no_weight = torch.zeros_like(x), torch.zeros_like(x[:, :1])
        return AdamState(nothing, nothing.clone(), no_weight, no_weight.clone())

    def direction(self, state: AdamState, gradient: Tensor, x: Tensor) -> tuple[Tensor, AdamState]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * x
        return self._along(state, gradient)

    def _along(self, state: AdamState, gradient: Tensor) -> tuple[Tensor, AdamState]:
        """The step of these moments and a gradient, and the moments after it. Sums of weights follow the same
        recursion: powers of a tensor would depend on where in a vector register a row lies."""
        first, second = self.betas
        state = AdamState(
            first * state.mean + (1 - first) * gradient,
            second * state.square + (1 - second) * (gradient * gradient),
            first * state.mean_weight + (1 - first),
            second * state.square_weight + (1 - second),
        )
        deviation = (state.square / state.square_weight).sqrt()
        return (state.mean / state.mean_weight) / (deviation + self.epsilon), state


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay on every node, as in torch.optim.AdamW. Loshchilov and Hutter, ICLR 2019."""

    weight_decay: float = 0.01

    def direction(self, state: AdamState, gradient: Tensor, x: Tensor) -> tuple[Tensor, AdamState]:
        step, state = self._along(state, gradient)
        return step + self.weight_decay * x, state


def _check_decay(weight_decay: float) -> None:
    if not 0 <= weight_decay < inf:
        raise ValueError(f"weight_decay must be at least 0 and finite, {weight_decay} was given")


OPTIMIZERS: dict[str, type[LocalOptimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
