"""Compile the codec's kernels, or load them from numba's cache, once and before worker processes fork."""

from functools import cache

import numpy as np
import torch

from gossamer.core import Message, Part, PartSpec, Quantized
from gossamer.kernels.bits import ones_in_all, pack
from gossamer.rng import philox, words
from gossamer.wire.codec import Codec

WIDTH = 4096
# shares of ones along a mask: all, and those for which the shortest coders are Rice, block-Rice, and Elias-gamma or the
# range coder
SHARES = ((1.0,), (0.05,), (0.9, 0.3), (0.2, 0.8) * 8)


@cache
def warm() -> None:
    """Encode and decode a few small messages, and draw, so that every kernel is ready."""
    words(0, "warm", [0], [0], 1)
    ones_in_all(pack(np.ones(1, np.uint8)))  # what drawn parts need
    for shares in SHARES:
        message = _message(*shares)
        parts = {
            name: PartSpec(indexed=True, values=name, bucket=128 if name.startswith("int") else 0) for name in message
        }
        for codec in (Codec(parts, WIDTH, seed=0), Codec(parts, WIDTH, seed=0, index_coding="range")):
            codec.decode(codec.encode(message, sender=0, round=0))
            codec.num_bytes(message)


def _message(*shares: float) -> Message:
    keys = philox(0, "warm").random_raw(WIDTH) * 2.0**-64
    sent = torch.from_numpy(keys < np.repeat(shares, WIDTH // len(shares)))[None]
    levels = torch.arange(WIDTH).remainder(7).to(torch.int16)[None] * sent
    scales = torch.ones(1, WIDTH // 128 + 1)
    message = {name: Part(levels.float(), sent) for name in ("float32", "float16")}
    message["float64"] = Part(levels.double(), sent)
    for name in ("int4", "int8"):
        message[name] = Part(levels.float(), sent, Quantized(levels, scales, 128))
    return message
