"""What every node does with its own gradients: learning rate and its schedule, momentum, weight decay."""

from dataclasses import dataclass, field
from math import cos, inf, pi

from gossamer.algorithms.momentum import Momentum, QuasiGlobalMomentum
from gossamer.core import Algorithm


class Schedule:
    """How the learning rate goes over the run."""

    def factor(self, round: int, rounds: int) -> float:
        """What the learning rate is multiplied by in a round of a run of so many."""
        raise NotImplementedError


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
        if self.warmup < 0:
            raise ValueError(f"warmup must be at least 0, {self.warmup} was given")

    def factor(self, round: int, rounds: int) -> float:
        factor = float(self.by ** sum(round >= milestone for milestone in self.at))
        return factor / 10 if round < self.warmup else factor


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to `final`, after an optional linear warm-up."""

    final: float = 0.0
    warmup: int = 0  # rounds

    def __post_init__(self) -> None:
        if not 0 <= self.final <= 1:
            raise ValueError(f"final must be between 0 and 1, {self.final} was given")
        if self.warmup < 0:
            raise ValueError(f"warmup must be at least 0, {self.warmup} was given")

    def factor(self, round: int, rounds: int) -> float:
        if round < self.warmup:
            return (round + 1) / self.warmup
        passed = (round - self.warmup) / max(1, rounds - self.warmup)
        return self.final + (1 - self.final) * (1 + cos(pi * passed)) / 2


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "steps": Steps, "cosine": Cosine}


@dataclass(frozen=True)
class Optimizer:
    """SGD on every node, as in torch.optim.SGD."""

    learning_rate: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    quasi_global: bool = False  # momentum along the group's movement instead of the node's own gradients
    schedule: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < inf:
            raise ValueError(f"learning_rate must be over 0 and finite, {self.learning_rate} was given")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and under 1, {self.momentum} was given")
        if not 0 <= self.weight_decay < inf:
            raise ValueError(f"weight_decay must be at least 0 and finite, {self.weight_decay} was given")
        for name in ("nesterov", "quasi_global"):
            if getattr(self, name) and self.momentum == 0:
                raise ValueError(f"{name} needs a momentum over 0, 0 was given")
        if not isinstance(self.schedule, Schedule):
            raise ValueError(f"schedule must be an instance such as Cosine(), {self.schedule!r} was given")

    def learning_rate_at(self, round: int, rounds: int) -> float:
        return self.learning_rate * self.schedule.factor(round, rounds)

    def wrap(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm with this momentum and weight decay."""
        if self.momentum == 0 and self.weight_decay == 0:
            return algorithm
        kind = QuasiGlobalMomentum if self.quasi_global else Momentum
        return kind(algorithm, self.momentum, self.nesterov, self.weight_decay)
