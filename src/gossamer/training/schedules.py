"""How the learning rate goes over a run."""

from dataclasses import dataclass
from math import cos, inf, pi
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper
from gossamer.core import Algorithm, Message, Round

_NO_LOSS_YET = 3e38  # more than any loss, and finite


class Schedule:
    """How the learning rate goes over the run. What is counted is rounds, or local steps if the optimizer says so."""

    def factor(self, round: int, rounds: int) -> float:
        """What the learning rate is multiplied by in a round of a run of so many."""
        raise NotImplementedError

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm with whatever of the schedule follows a node's own training."""
        return algorithm


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate throughout."""

    def factor(self, round: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Steps(Schedule):
    """Multiplied by a factor at given rounds, and by a tenth in the first ones, if there is a warm-up."""

    at: tuple[int, ...]  # rounds, counted from 0
    by: float = 0.1
    warmup: int = 0  # rounds

    def __post_init__(self) -> None:
        if not all(milestone >= 0 for milestone in self.at):
            raise ValueError(f"at must be rounds of at least 0, {list(self.at)} was given")
        if not 0 < self.by < inf:
            raise ValueError(f"by must be a number over 0, {self.by} was given")
        _check_warmup(self.warmup)

    def factor(self, round: int, rounds: int) -> float:
        factor = float(self.by ** sum(round >= milestone for milestone in self.at))
        return factor / 10 if round < self.warmup else factor


@dataclass(frozen=True)
class Falling(Schedule):
    """From 1 down to `final` until the last round, after an optional linear warm-up."""

    final: float = 0.0
    warmup: int = 0  # rounds

    def __post_init__(self) -> None:
        if not 0 <= self.final <= 1:
            raise ValueError(f"final must be between 0 and 1, {self.final} was given")
        _check_warmup(self.warmup)

    def factor(self, round: int, rounds: int) -> float:
        if round < self.warmup:
            return (round + 1) / self.warmup
        return self.after((round - self.warmup) / max(1, rounds - self.warmup))

    def after(self, passed: float) -> float:
        """The factor when this share of the rounds that follow the warm-up has passed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Cosine(Falling):
    """Half a cosine from 1 down to `final`, after an optional linear warm-up."""

    def after(self, passed: float) -> float:
        return self.final + (1 - self.final) * (1 + cos(pi * passed)) / 2


@dataclass(frozen=True)
class Linear(Falling):
    """A straight line from 1 down to `final`, after an optional linear warm-up; with `final` 1, only the warm-up."""

    def after(self, passed: float) -> float:
        return 1 + (self.final - 1) * passed


@dataclass(frozen=True)
class Plateau(Schedule):
    """Each node multiplies its own learning rate when its own training loss has not fallen for some rounds, as
    torch's ReduceLROnPlateau does. Nothing is sent for it, so nodes with other data may go on with another rate."""

    by: float = 0.1
    patience: int = 10  # rounds without a new lowest training loss that are borne
    threshold: float = 1e-4  # a loss counts as lower if it is by this share
    least: float = 0.0  # the smallest factor

    def __post_init__(self) -> None:
        if not 0 < self.by < 1:
            raise ValueError(f"by must be between 0 and 1, {self.by} was given")
        if self.patience < 0:
            raise ValueError(f"patience must be at least 0, {self.patience} was given")
        for name in ("threshold", "least"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and under 1, {getattr(self, name)} was given")

    def factor(self, round: int, rounds: int) -> float:
        return 1.0

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        return ReduceOnPlateau(algorithm, self)


class PlateauState(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    factor: Tensor  # of the node's learning rate (B, 1)
    best: Tensor  # lowest mean training loss of a round (B, 1)
    waited: Tensor  # rounds since (B, 1)
    total: Tensor  # training losses of this round's steps so far (B, 1)


@dataclass(frozen=True)
class ReduceOnPlateau(Wrapper):
    """Local steps shrink where the node's own training loss has stopped falling, around an algorithm."""

    schedule: Plateau = Plateau()

    def init(self, x0: Tensor) -> PlateauState:
        one = torch.ones_like(x0[:, :1])
        return PlateauState(self.inner.init(x0), one, one * _NO_LOSS_YET, 0 * one, 0 * one)

    def local_step(self, state: PlateauState, gradient: Tensor, round: Round) -> PlateauState:
        assert round.step_loss is not None, "a local step tells its loss"
        inner = self.inner.local_step(state.inner, state.factor * gradient, round)
        return state._replace(inner=inner, total=state.total + round.step_loss)

    def send(self, state: PlateauState, round: Round) -> tuple[Message, PlateauState]:
        message, inner = self.inner.send(state.inner, round)
        state = state._replace(inner=inner)
        return message, state if round.settling or round.exchange else self._after_the_steps(state, round)

    def _after_the_steps(self, state: PlateauState, round: Round) -> PlateauState:
        loss = state.total / round.local_steps
        lower = loss < state.best * (1 - self.schedule.threshold)
        waited = torch.where(lower, 0, state.waited + 1)
        due = waited > self.schedule.patience
        factor = torch.where(due, (self.schedule.by * state.factor).clamp(min=self.schedule.least), state.factor)
        return PlateauState(
            state.inner,
            factor,
            torch.where(lower, loss, state.best),
            torch.where(due, 0, waited),
            torch.zeros_like(loss),
        )


def _check_warmup(warmup: int) -> None:
    if warmup < 0:
        raise ValueError(f"warmup must be at least 0, {warmup} was given")


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "steps": Steps,
    "cosine": Cosine,
    "linear": Linear,
    "plateau": Plateau,
}
