"""Silk: gossip the signs of the wavelet coefficients that neighbours know least well.

Gossamer's own combination of what the papers teach. From JWINS, the wavelet domain, where a change of the model is
concentrated in few coefficients. From CHOCO, replicas: neighbours keep xh, what they believe T(x) to be, and only the
difference to it is sent, so coarse messages are corrected by later ones. From sign compression with error feedback,
one bit per coefficient and one scale per message. And all nodes begin at the same model, so replicas can too:

    difference = T(x_i - x0) - xh_i;   q_i = mean |d| * sign(d) over the fraction `kept` of largest |d|, else 0
    xh_i <- xh_i + q_i;   x_i <- x_i + rate * T^-1(sum_j w_ij xh_j - xh_i)

A kept coefficient costs its index (about 3.5 bits at 20 %) and one bit. The mean of the models is conserved whatever is
sent. The compressor is a contraction, so CHOCO's theory covers it for a small enough rate; the default is what worked.

RelativeToInit, of which Silk is made, shares what has changed since the start, for any algorithm. Every node starts at
the same model x0, so x0 need not be sent. Exchanges are linear in the models and leave equal models as they are, so an
algorithm may as well run on y = x - x0, with y = 0 at the start. With exact messages nothing changes; with compressed
ones the numbers to be compressed are small from the first round on. Under push-sum too: z = x / u = x0 + y / u.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import core
from gossamer.algorithms import rates
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.composition import Alias, Wrapper
from gossamer.algorithms.momentum import Momentum, QuasiGlobalMomentum
from gossamer.compressors import Chain, Sign, TopK
from gossamer.transforms import Identity, Wavelet


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

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        change = self.inner.neighbours_view(last, torch.zeros_like(x0))
        return None if change is None else x0 + change


@dataclass(frozen=True)
class Silk(Alias):
    """Signs of the differences that neighbours know least well, in the wavelet domain."""

    kept: float = 0.2  # fraction of the coefficients whose sign is sent
    rate: rates.Rate = 1.0
    family: str = "sym2"  # the wavelet
    levels: int = 4
    wavelet: bool = True  # False: signs of the parameters' own differences

    @property
    def composition(self) -> RelativeToInit:
        transform = Wavelet(self.family, self.levels) if self.wavelet else Identity()
        return RelativeToInit(Choco(Chain(TopK(self.kept), Sign()), self.rate, transform))
