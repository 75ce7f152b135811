"""JWINS with coarse coefficients: what rounding took from a coefficient is added the next time it is sent.

JWINS sends the coefficients T(x') themselves. Here they travel as integers of a few bits with a scale for every 512 of
them, so a receiver averages in values that are off by up to half a step. With error feedback, node i sends

    Q[T(x'_i)[k] + e_i[k]]   and keeps   e_i[k] = T(x'_i)[k] + e_i[k] - what was sent

for every coefficient k that it sends, so the errors of successive messages cancel. All else is JWINS.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms import jwins
from gossamer.algorithms.jwins import Jwins
from gossamer.compressors import Quantize
from gossamer.core import Algorithm, Inbox, Message, PartSpec, Round, where
from gossamer.transforms import Transform


class State(NamedTuple):
    inner: jwins.State
    error: Tensor  # e, what rounding has kept back of each coefficient (B, D)


@dataclass(frozen=True)
class QuantizedJwins(Algorithm):
    """JWINS with coefficients of a few bits and error feedback."""

    bits: int = 8
    bucket: int = 512  # coefficients per scale
    budget: float | None = None  # this and the following as of Jwins; a share of what it would send in float32
    family: str = "sym2"
    levels: int = 4
    wavelet: bool = True
    accumulate: bool = True
    randomize: bool = True

    def __post_init__(self) -> None:
        _ = self._jwins, self._quantize  # check the settings

    @property
    def requires(self) -> frozenset[str]:
        return self._jwins.requires

    @property
    def parts(self) -> dict[str, PartSpec]:
        spec = self._jwins.parts["coefficients"]
        return {"coefficients": replace(spec, values=self._quantize.spec.values, bucket=self.bucket)}

    @cached_property
    def _jwins(self) -> Jwins:
        return Jwins(self.budget, self.family, self.levels, self.wavelet, self.accumulate, self.randomize)

    @cached_property
    def _quantize(self) -> Quantize:
        return Quantize(self.bits, self.bucket)

    @property
    def transform(self) -> Transform:
        return self._jwins.transform

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "QuantizedJwins":
        self._jwins.prepare(mixing, layer_sizes)
        return self

    def init(self, x0: Tensor) -> State:
        return State(self._jwins.init(x0), torch.zeros_like(x0))

    def model(self, state: State) -> Tensor:
        return state.inner.x

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        return state._replace(inner=self._jwins.local_step(state.inner, gradient, round))

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        message, inner = self._jwins.send(state.inner, round)
        sent = message["coefficients"].sent
        assert sent is not None
        wanted = inner.coefficients + state.error
        part = self._quantize.coarsen(wanted, sent, round)
        return {"coefficients": part}, State(inner, where(sent, wanted - part.values, state.error))

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        return state._replace(inner=self._jwins.receive(state.inner, inbox, round))
