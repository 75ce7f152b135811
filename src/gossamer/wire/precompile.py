"""Compile kernels of the codec, or load them from numba's cache, once and before worker processes fork."""

from functools import cache

import numpy as np
import torch

from gossamer.core import PartSpec, Quantized, sparse_part
from gossamer.core.rng import philox, words
from gossamer.wire.bits import positions_of
from gossamer.wire.codec import Codec

WIDTH = 4096
SHARES = ((0.05,), (0.9, 0.3), (0.3, 0.02) * 8)  # of ones along a row, for Rice, block-Rice and adaptive coding


@cache
def precompile(counted: bool = False) -> None:
    """Make every kernel ready that messages of any codec need; `counted`: if only their sizes are asked.

    Those that write and read take memory in every process, so a run that only counts should not load them.
    """
    words(0, "precompile", [0], [0], 1)  # what the entries of seeded parts are drawn by
    positions_of(np.ones(1, np.uint8))  # and found
    parts = {
        "x": PartSpec(sparse=True),
        "y": PartSpec(sparse=True, values="float64"),
        "z": PartSpec(sparse=True, values="int4", bucket=WIDTH),  # whose scales are floats of a plan of their own
        "w": PartSpec(sparse=True, values="int8"),
    }
    codec = Codec(parts, WIDTH, seed=0)
    keys = philox(0, "precompile").random_raw(WIDTH) * 2.0**-64
    few = torch.from_numpy(1 + (2**12 * keys % 7).astype(np.int16) // 5)  # levels of 1, and some of 2
    for shares in SHARES:
        sent = torch.from_numpy(keys < np.repeat(shares, WIDTH // len(shares)))[None]
        ones = sparse_part(torch.ones(1, WIDTH), sent)
        levels, scales = ones.values.to(torch.int16), torch.ones(1, 1)
        message = {
            "x": ones,
            "y": ones._replace(values=ones.values.double()),
            "z": ones._replace(quantized=Quantized(levels, scales, WIDTH)),
            "w": ones._replace(quantized=Quantized(levels * few, scales, 0)),
        }
        codec.num_bytes(message)
        if not counted:
            codec.decode(codec.encode(message, sender=0, round=0))
