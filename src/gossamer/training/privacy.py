"""Differential privacy of what a node's data do to its messages.

An algorithm meets a node's data in one place: the gradient that `local_step` is given. Once per round it is given

    x_0 = the node's model;  x_k = x_k-1 - learning rate * gradient of x_k-1 on a minibatch     (the local steps)
    c = (x_last - x_0) * min(1, clip / |x_last - x_0|)                                         the change, clipped
    gradient = -(c + noise * clip * z) / learning rate,   z standard normal                    what the algorithm sees

so all that it keeps and sends, whatever its parts, momentum, compression or error memory, is made of Gaussian releases:
what is done to them afterwards costs no privacy. Whatever a node's data are, c stays in a ball of radius `clip`. Two
data sets of a node, different in as much as one likes, therefore move a release by at most 2 clip: a Gaussian mechanism
whose noise is noise / 2 times its sensitivity, composed over the rounds. Minibatches are drawn from a public seed, so
nothing is gained by their being a sample.

McMahan et al., "Learning differentially private recurrent language models", ICLR 2018, protect a user's update so, with
a server; Cyffers and Bellet, "Privacy amplification by decentralization", AISTATS 2022, discuss what more could be said
where nobody sees all messages. That is not claimed here: a neighbour is taken to see all that a node sends.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Round

Noise = Callable[[Round, int], Tensor]  # (B, width) standard normal numbers for the nodes of a round


@dataclass(frozen=True)
class Privacy:
    """Clip and noise what a node's data do to its model in a round, before anything leaves the node."""

    clip: float = 0.0  # the largest L2 norm of a round's change of a node's model; 0: nothing is clipped or noised
    noise: float = 0.0  # standard deviation of the noise on each parameter, as a multiple of clip
    delta: float = 1e-5  # for which epsilon is reported

    def __post_init__(self) -> None:
        if not 0 <= self.clip < 1e9:
            raise ValueError(f"clip must be at least 0 and under 10^9, {self.clip} was given")
        if not self.on and self.noise:
            raise ValueError(f"noise is a multiple of clip, and clip is 0; set clip over 0 ({self.noise} was given)")
        if self.on and not 0.01 <= self.noise < 1e9:
            raise ValueError(f"noise must be at least 0.01 and under 10^9, {self.noise} was given")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be between 0 and 1, {self.delta} was given")

    @property
    def on(self) -> bool:
        return self.clip > 0

    def protect(self, change: Tensor, noise: Tensor) -> Tensor:
        """(B, D) changes of models, clipped and with this standard normal noise, (B, D), scaled and added.

        A change that is not finite cannot be clipped, and counts as none.
        """
        norms = torch.stack([torch.linalg.vector_norm(row.double()) for row in change])[:, None]  # each row by itself
        finite = torch.isfinite(norms)
        change, norms = (torch.where(finite, of, torch.zeros_like(of)) for of in (change, norms))
        factors = torch.clamp(self.clip / norms.clamp(min=1e-300), max=1.0)
        return (change * factors + self.noise * self.clip * noise).to(change.dtype)

    def epsilon(self, releases: int) -> float:
        """Of a node after so many rounds, at `delta`, for any change of its data: an upper bound, by Renyi orders."""
        from dp_accounting import GaussianDpEvent
        from dp_accounting.rdp import RdpAccountant

        if releases == 0:
            return 0.0
        event = GaussianDpEvent(self.noise / 2)  # two data sets move a release by at most 2 clip
        return float(RdpAccountant().compose(event, releases).get_epsilon(self.delta))

    def spent(self, releases: int) -> dict[str, float]:
        """What to report; nothing where nothing is protected, or the accountant is not installed."""
        if not self.on or not is_installed():
            return {}
        return {"epsilon": round(self.epsilon(releases), 4), "delta": self.delta}


def is_installed() -> bool:
    """Is there the library that counts what is spent?"""
    return find_spec("dp_accounting") is not None


def seeded(round: Round, width: int) -> Tensor:
    """Noise from the nodes' streams: the same in every engine, and known to all who know the seed. For simulations."""
    words = round.rng.raw("privacy", 2 * ((width + 1) // 2))
    return torch.from_numpy(np.stack([_normal(row)[:width] for row in words]))


def secret(round: Round, width: int) -> Tensor:
    """Noise that nobody can know or draw again, straight from the operating system's entropy."""
    count = 2 * ((width + 1) // 2)
    rows = [np.frombuffer(os.urandom(8 * count), np.uint64) for _ in round.rng.nodes]
    return torch.from_numpy(np.stack([_normal(row)[:width] for row in rows]))


def _normal(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """As many standard normal numbers as there are words, an even number, by Box and Muller's method."""
    first, second = np.split(words >> np.uint64(11), 2)
    radius = np.sqrt(-2 * np.log((first + np.uint64(1)) * 2.0**-53))  # of numbers in (0, 1]
    angle = 2 * pi * (second * 2.0**-53)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
