"""Share what has changed since the start: any algorithm, on the difference to the common initial model.

Every node starts at the same model x0, so x0 need not be sent. Exchanges are linear in the models and leave equal
models as they are, so an algorithm may as well run on y = x - x0, with y = 0 at the start. With exact messages nothing
changes; with compressed ones the numbers to be compressed are small from the first round on. Under push-sum too:
z = x / u = x0 + y / u.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper
from gossamer.algorithms.momentum import Momentum
from gossamer.algorithms.quasi_global_momentum import QuasiGlobalMomentum


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's; its model is y
    x0: Tensor  # the common initial model (B, D)


@dataclass(frozen=True)
class RelativeToInit(Wrapper):
    """Any algorithm on the change since the common initial model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.inner, (Momentum, QuasiGlobalMomentum)) and self.inner.weight_decay:
            raise ValueError(
                f"{type(self.inner).__name__} inside RelativeToInit would decay the weights towards the initial model; "
                "put RelativeToInit inside it, or set the optimizer's weight_decay"
            )

    def init(self, x0: Tensor) -> State:
        return State(self.inner.init(torch.zeros_like(x0)), x0)

    def model(self, state: State) -> Tensor:
        return state.x0 + self.inner.model(state.inner)
