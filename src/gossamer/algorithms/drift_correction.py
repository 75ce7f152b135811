"""Drift correction: local steps that learn, from what exchanges undo, where a node's own data pull it.

Data that differ push nodes apart in every round, and exchanges pull them together again. In the long run the two
cancel, so what exchanges have moved a node by tells how its own gradient differs from that of the group:

    local steps along  g_i + d_i
    in an exchange     d_i <- d_i - strength * (x_i after it - x_i before it) / (local steps * learning rate)

d_i starts at 0, and no byte more is sent. Where exchanges conserve the mean of the models, the sum of all d_i stays 0,
so the mean model follows the mean gradient as before. Nodes that agree at the optimum stay there, which under plain
averaging of differing data they do not, however small the learning rate.

With `strength` 1, one local step and full sharing this is exact diffusion (Yuan et al., 2019, there with (I + W) / 2);
with CHOCO's replicas, in essence, LEAD (Liu et al., ICLR 2021), where d is the dual variable; with several local steps
ProxSkip and Scaffnew (Mishchenko et al., ICML 2022), where it is a control variate. Like D2, strength 1 is stable if
the eigenvalues of W are over -1/3. Gradients are noisy and replicas lag behind here, so the default is far smaller.

On the digits this pays under full sharing, Silk and Lace; on CIFAR-10 no gain was seen yet (docs/algorithms.md).

All exchanges of a round count. In rounds that settle nodes have not drifted, and exchanges teach nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms.composition import Wrapper
from gossamer.core import Inbox, Round


class State(NamedTuple):
    inner: core.State  # the wrapped algorithm's
    correction: Tensor  # d, what local steps add to the gradient (B, D)


@dataclass(frozen=True)
class DriftCorrection(Wrapper):
    """Correct local steps by what exchanges undo, around an algorithm."""

    strength: float = 0.05  # how much of what exchanges move is learned; 1 is that of the papers

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.strength <= 1:
            raise ValueError(f"strength must be between 0 and 1, {self.strength} was given")
        if "symmetric" not in self.inner.requires or "one_local_step" in self.inner.requires:
            raise ValueError(
                "inner must be an algorithm for symmetric graphs that steps before it exchanges, such as dpsgd, choco, "
                f"silk or lace, {type(self.inner).__name__} was given"
            )

    def init(self, x0: Tensor) -> State:
        return State(self.inner.init(x0), torch.zeros_like(x0))

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(inner=self.inner.local_step(state.inner, gradient + state.correction, round))

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        before, inner = self.inner.model(state.inner), self.inner.receive(state.inner, inbox, round)
        if round.settling or round.learning_rate == 0:
            return state._replace(inner=inner)
        moved = (self.inner.model(inner) - before) / (round.local_steps * round.learning_rate)
        return State(inner, state.correction - self.strength * moved)
