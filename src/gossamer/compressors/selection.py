"""Which entries of a vector are worth sending."""

import numpy as np
import torch
from torch import Tensor

from gossamer.kernels.selection import mark_largest
from gossamer.rng import Streams


def count(fraction: float, width: int) -> int:
    """How many of `width` entries a kept fraction means: the nearest whole number, and at least one."""
    return min(width, max(1, int(fraction * width + 0.5)))


def largest(x: Tensor, fraction: Tensor) -> Tensor:
    """(B, D) bool: the `fraction` (B, 1) of each row's entries, float32, with the largest |x|; of equals the first."""
    assert x.dtype == torch.float32
    num_largest = np.array([count(kept, x.shape[-1]) for kept in fraction[:, 0].tolist()], np.int64)
    return torch.from_numpy(mark_largest(x.contiguous().numpy().view(np.uint32), num_largest))


def random_entries(rng: Streams, fraction: float, width: int) -> Tensor:
    """(B, width) bool: a uniformly random `fraction` of the entries of each row, that anyone can draw again."""
    keys = rng.raw("entries", width)
    last = count(fraction, width) - 1
    return torch.from_numpy(keys <= np.partition(keys, last, axis=-1)[:, last : last + 1])
