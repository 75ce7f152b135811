"""How far to move towards an average of compressed messages: the step size that compression allows."""

from functools import cache
from itertools import pairwise
from math import exp, log
from typing import Any, Literal, get_args

import numpy as np
import torch

from gossamer.compressors import Compressor, Qsgd
from gossamer.compressors.base import Kind
from gossamer.core import Round
from gossamer.core.rng import Streams, philox

Rate = float | Literal["table", "auto"]

# Sparse-Push, section 5: eta by the fraction that top-K keeps. In however many bits these travel: what few bits lose is
# little beside what is not sent.
_TABLE = ((0.001, 0.001), (0.01, 0.005), (0.1, 0.01), (0.5, 0.08), (1.0, 1.0))


def check(rate: Rate) -> None:
    if rate not in ("table", "auto") and not (isinstance(rate, (int, float)) and 0 < rate <= 1):
        raise ValueError(f'rate must be over 0 and at most 1, "table" or "auto", {rate!r} was given')


def resolve(rate: Rate, compressor: Compressor, mixing: Any, layer_sizes: tuple[int, ...], caution: float) -> float:
    """The number that a rate stands for, on this graph (a `MixingMatrix`) and for a model of these layers."""
    if not isinstance(rate, str):
        return float(rate)
    fraction, energy, _ = kept(compressor, layer_sizes)
    if rate == "auto":
        return automatic(energy, mixing, caution)
    if compressor.spec.values != "float32" and not (compressor.spec.sparse or compressor.spec.seeded):
        raise ValueError(
            f'rate = "table" is by the fraction of entries that is sent, and {type(compressor).__name__} sends all, '
            'in fewer bits; take "auto" or a number'
        )
    return from_table(fraction)


def check_contraction(compressor: Compressor, layer_sizes: tuple[int, ...]) -> None:
    """ValueError if what is lost would grow without end when it is added to the next message."""
    name = type(compressor).__name__
    if compressor.kind not in get_args(Kind):
        raise ValueError(f'kind of {name} must be "contraction" or "unbiased", {compressor.kind!r} was given')
    lost = kept(compressor, layer_sizes)[2]
    if lost >= 1:
        hint = ', norm = "max", or scaled around it' if isinstance(compressor, Qsgd) else ""
        raise ValueError(
            f"compressor {name} was measured to be off by {lost:.1f} times the square norm of a vector of this size, "
            f"and errors would add up; take more bits or smaller buckets{hint}"
        )


@cache
def kept(compressor: Compressor, layer_sizes: tuple[int, ...]) -> tuple[float, float, float]:
    """What a compressor does to a normally distributed vector: the fraction of entries that it keeps, the share of the
    square norm, and the square of its error against the square norm.

    The share is that after the best scaling, the square of the cosine between the two, so that it is 1 / (1 + omega)
    for an unbiased compressor. Measured on one vector: that needs no formula, and holds for a compressor of one's own.
    """
    width = sum(layer_sizes)
    normal = np.random.Generator(philox(0, "normal vector")).standard_normal((1, width), dtype=np.float32)
    x = torch.from_numpy(normal)
    as_vectors = tuple((size,) for size in layer_sizes)
    part = compressor(x, Round(0, 0.0, Streams(0, [0], 0), layer_sizes=layer_sizes, layer_shapes=as_vectors))
    fraction = 1.0 if part.sent is None else part.sent.double().mean().item()
    cosine = torch.nn.functional.cosine_similarity(x.double(), part.values.double()).item()
    error = (x - part.values).double().square().sum() / x.double().square().sum()
    return fraction, cosine**2, error.item()


def from_table(fraction: float) -> float:
    """The rate of the Sparse-Push paper for a kept fraction; between its entries, interpolated on logarithmic axes."""
    fraction = min(max(fraction, _TABLE[0][0]), 1.0)
    for (low, rate_low), (high, rate_high) in pairwise(_TABLE):
        if fraction <= high:
            share = (log(fraction) - log(low)) / (log(high) - log(low))
            return exp(log(rate_low) + share * (log(rate_high) - log(rate_low)))
    raise AssertionError("the table ends at 1")


def automatic(energy: float, mixing: Any, caution: float) -> float:
    """A rate for a compressor that keeps this share of a vector's square norm, on this graph.

    1 without compression. With it, what was lost comes back later, and the exchange must not have moved too far by
    then: gossip with CHOCO or with error feedback is stable up to a rate of about energy / |I - W|. A caution of 2
    stays under half of that. Error feedback, which never forgets what it lost, leaves a disagreement that grows with
    the rate, and wants more. Found by trying compressors on two graphs: docs/decisions/0002-averaging-rates.md.
    """
    rate = energy / (energy + caution * (1 - energy) * mixing.norm_of_identity_minus_w())
    return float(f"{rate:.12g}")  # the last bits of a norm differ between processors; those of a rate must not
