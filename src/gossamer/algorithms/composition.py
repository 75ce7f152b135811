"""Algorithms that are made of others: wrappers around one, and names for compositions of several."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from gossamer.core import Algorithm, Inbox, Message, OnMissing, PartSpec, Round, State
from gossamer.core.settings import check_types


class _Derived(Algorithm):
    """Declares all that another algorithm declares."""

    @property
    def _other(self) -> Algorithm:
        raise NotImplementedError

    @property
    def requires(self) -> frozenset[str]:
        return self._other.requires

    @property
    def parts(self) -> Mapping[str, PartSpec]:
        return self._other.parts

    @property
    def on_missing(self) -> OnMissing:
        return self._other.on_missing

    @property
    def final_rounds(self) -> int:
        return self._other.final_rounds

    @property
    def pools_data(self) -> bool:
        return self._other.pools_data

    @property
    def tries_models(self) -> bool:
        return self._other.tries_models

    @property
    def cross_gradients(self) -> bool:
        return self._other.cross_gradients

    @property
    def robust(self) -> bool:
        return self._other.robust

    @property
    def asynchronous(self) -> bool:
        return self._other.asynchronous

    @property
    def averages(self) -> bool:
        return self._other.averages

    def fraction(self, round: Round, num_parameters: int) -> Tensor | None:
        return self._other.fraction(round, num_parameters)


@dataclass(frozen=True)
class Wrapper(_Derived):
    """An algorithm around another, to which it passes everything that a subclass does not define.

    The subclass defines `init`, whose state has a field `inner`: the state of the inner algorithm.
    """

    inner: Algorithm

    def __post_init__(self) -> None:
        check_types(self)
        if self.inner.cross_gradients:
            raise ValueError(f"{type(self).__name__} cannot be around cross-gradient aggregation; take that alone")

    @property
    def _other(self) -> Algorithm:
        return self.inner

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> Self:
        return replace(self, inner=self.inner.prepare(mixing, layer_sizes))

    def model(self, state: State) -> Tensor:
        return self.inner.model(state.inner)

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(inner=self.inner.local_step(state.inner, gradient, round))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        message, inner = self.inner.send(state.inner, round)
        return message, state._replace(inner=inner)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state._replace(inner=self.inner.receive(state.inner, inbox, round))

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        return self.inner.neighbours_view(last, x0)

    def weights(self, state: State) -> Tensor | None:
        return self.inner.weights(state.inner)

    def averaging_rate(self, round: Round) -> float:
        return self.inner.averaging_rate(round)


class Alias(_Derived):
    """A paper's name for a composition, as in "SGP is push-sum over D-PSGD". `prepare` puts the composition in its
    place, so that runs never meet an alias. The subclass is a frozen dataclass that defines `composition` alone."""

    @property
    def composition(self) -> Algorithm:
        """What the name stands for."""
        raise NotImplementedError(f"{type(self).__name__} must define `composition`")

    def __post_init__(self) -> None:
        _ = self.composition  # checks the settings

    @property
    def _other(self) -> Algorithm:
        return self.composition

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> Algorithm:
        return self.composition.prepare(mixing, layer_sizes)


def expand(algorithm: Algorithm) -> Algorithm:
    """What an algorithm stands for, if it is an alias; else itself."""
    return expand(algorithm.composition) if isinstance(algorithm, Alias) else algorithm
