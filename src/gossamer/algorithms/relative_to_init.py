"""Share what has changed since the start: any algorithm, on the difference to the common initial model.

Every node starts at the same model x0, so x0 need not be told. Exchanges are linear in the models and leave equal
models as they are, so an algorithm may as well run on y = x - x0, with y = 0 at the start. With exact messages nothing
changes; with compressed ones the numbers to be compressed are small from the first round on. Under push-sum too:
z = x / u = x0 + y / u.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's; its model is y
    x0: Tensor  # the common initial model (B, D)


@dataclass(frozen=True)
class RelativeToInit(Algorithm):
    """Any algorithm on the change since the common initial model."""

    inner: Algorithm

    def __post_init__(self) -> None:
        if getattr(self.inner, "weight_decay", 0):
            raise ValueError(
                f"{type(self.inner).__name__} inside RelativeToInit would decay the weights towards the initial model; "
                "put RelativeToInit inside it, or set the optimizer's weight_decay"
            )

    @property
    def requires(self) -> frozenset[str]:
        return self.inner.requires

    @property
    def pools_data(self) -> bool:
        return self.inner.pools_data

    @property
    def parts(self) -> dict[str, PartSpec]:
        return dict(self.inner.parts)

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "RelativeToInit":
        return replace(self, inner=self.inner.prepare(mixing, layer_sizes))

    def init(self, x0: Tensor) -> State:
        return State(self.inner.init(torch.zeros_like(x0)), x0)

    def model(self, state: State) -> Tensor:
        return state.x0 + self.inner.model(state.inner)

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(inner=self.inner.local_step(state.inner, gradient, round))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        message, inner = self.inner.send(state.inner, round)
        return message, state._replace(inner=inner)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state._replace(inner=self.inner.receive(state.inner, inbox, round))

    def averaging_rate(self, round: Round) -> float:
        return self.inner.averaging_rate(round)

    def weights(self, state: State) -> Tensor | None:
        return self.inner.weights(state.inner)
