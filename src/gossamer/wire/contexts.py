"""What the range coder may know of a position beforehand."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def wavelet_contexts(layer_sizes: Sequence[int], levels: int) -> NDArray[np.uint16]:
    """A number for each pair of layer and wavelet band, for the coefficients of `transforms.Wavelet` with these levels.

    layer_sizes are the parameters of each tensor of the model, in order. levels = 0 gives the layers alone, for what
    is sent without a transform.
    """
    width = sum(layer_sizes)
    ends = np.cumsum(layer_sizes)
    length = width >> levels << levels  # the few entries behind it pass through the transform
    parameters = np.arange(width)  # where in the model a coefficient belongs
    bands = np.zeros(width, np.int64)
    bands[length:] = levels + 1
    parameters[: length >> levels] <<= levels
    for level in range(levels, 0, -1):
        start, stop = length >> level, length >> (level - 1)
        parameters[start:stop] = np.arange(stop - start) << level
        bands[start:stop] = levels + 1 - level
    layers = np.searchsorted(ends, parameters, side="right")
    _, numbers = np.unique(layers * (levels + 2) + bands, return_inverse=True)
    return np.asarray(numbers, np.uint16)
