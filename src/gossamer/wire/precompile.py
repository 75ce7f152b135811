"""Compile kernels of the codec, or load them from numba's cache, once and before worker processes fork."""

from functools import cache

import numpy as np
import torch

from gossamer.core import PartSpec, sparse_part
from gossamer.core.rng import philox, words
from gossamer.wire.codec import Codec

WIDTH = 4096
SHARES = ((0.05,), (0.9, 0.3))  # shares of ones along a row for which Rice and block-Rice are shortest


@cache
def precompile(counted: bool = False) -> None:
    """Make every kernel ready that messages of any codec need; `counted`: if only their sizes are asked.

    Those that write and read take memory in every process, so a run that only counts should not load them.
    """
    words(0, "precompile", [0], [0], 1)  # what the entries of seeded parts are drawn by
    codec = Codec({"x": PartSpec(sparse=True)}, WIDTH, seed=0)
    keys = philox(0, "precompile").random_raw(WIDTH) * 2.0**-64
    for shares in SHARES:
        sent = torch.from_numpy(keys < np.repeat(shares, WIDTH // len(shares)))[None]
        message = {"x": sparse_part(torch.ones(1, WIDTH), sent)}
        codec.num_bytes(message)
        if not counted:
            codec.decode(codec.encode(message, sender=0, round=0))
