"""Compile kernels of the codec, or load them from numba's cache, once and before worker processes fork."""

from collections.abc import Iterable
from functools import cache

import numpy as np
import torch

from gossamer.core import Message, Part, PartSpec, Quantized
from gossamer.core.rng import philox, words
from gossamer.wire.codec import Codec
from gossamer.wire.kernels.bits import ones_in_all, pack

WIDTH = 4096
BUCKET = 128
INTEGERS = frozenset({"int4", "int8"})  # those of other bits take the same kernels
EVERYTHING = INTEGERS | {"float32", "bfloat16", "float16", "float64"}
# shares of ones along a mask: all, and those for which the shortest coders are Rice, block-Rice, and Elias-gamma
SHARES = ((1.0,), (0.05,), (0.9, 0.3), (0.2, 0.8) * 8)


def precompile(codec: Codec | None = None, counted: bool = False) -> None:
    """Make every kernel ready that messages of a codec need, or of any codec; `counted`: if only their sizes are asked.

    Each takes memory in every process, so that a run should not load those of all.
    """
    if codec is None:
        _precompile(EVERYTHING, counted)
    else:
        integers = INTEGERS if any(kind.startswith("int") for kind in codec.value_kinds) else frozenset()
        _precompile(integers | EVERYTHING.intersection(codec.value_kinds), counted)


@cache
def _precompile(values: Iterable[str], counted: bool) -> None:
    """Encode and decode a few small messages, and draw."""
    words(0, "warm", [0], [0], 1)
    ones_in_all(pack(np.ones(1, np.uint8)))  # what drawn parts need
    for indexed in (True, False):
        parts = {name: PartSpec(None, indexed, values=name, bucket=BUCKET * name.startswith("int")) for name in values}
        codec = Codec(parts, WIDTH, seed=0)
        for shares in SHARES if indexed else SHARES[:1]:
            message = _message(values, shares, indexed)
            codec.num_bytes(message)
            if not counted:
                codec.decode(codec.encode(message, sender=0, round=0))


def _message(values: Iterable[str], shares: tuple[float, ...], indexed: bool) -> Message:
    keys = philox(0, "warm").random_raw(WIDTH) * 2.0**-64
    sent = torch.from_numpy(keys < np.repeat(shares, WIDTH // len(shares)))[None]
    levels = torch.arange(WIDTH).remainder(7).to(torch.int16)[None] * sent
    scales = torch.ones(1, WIDTH // BUCKET + 1)
    numbers = {name: levels.double() if name == "float64" else levels.float() for name in values}
    return {
        name: Part(row, sent if indexed else None, Quantized(levels, scales, BUCKET) if name in INTEGERS else None)
        for name, row in numbers.items()
    }
