"""EvoNorm-S0, x * sigmoid(v x) / std of the group * gamma + beta, with everything of a group read while it is in the
cache.

A sample's group is (channels of the group, pixels), one after the other in memory. Sums run in whatever order is
quickest on the machine; a sample's numbers depend on the sample alone.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]  # float32; float64 to check gradients by

_FREELY = {"reassoc", "contract"}


@njit(cache=True, fastmath=_FREELY)
def evonorm(x: Array, gates: Array, weight: Array, bias: Array, epsilon: float, out: Array, moments: Array) -> None:
    """x and gates = sigmoid(v x) are (samples, channels, pixels); moments (samples, groups, 2) get mean, 1 / std."""
    num_samples, channels, pixels = x.shape
    groups = moments.shape[1]
    size, zero = channels // groups, x.dtype.type(0)
    for n in range(num_samples):
        for g in range(groups):
            group = x[n, g * size : (g + 1) * size].reshape(size * pixels)
            total = zero
            for t in range(group.size):
                total += group[t]
            mean = x.dtype.type(total / group.size)
            total = zero
            for t in range(group.size):
                total += (group[t] - mean) * (group[t] - mean)
            moments[n, g, 0], moments[n, g, 1] = mean, 1 / np.sqrt(total / group.size + epsilon)
            for c in range(g * size, (g + 1) * size):
                factor, plus = moments[n, g, 1] * weight[c], bias[c]
                source, gate, target = x[n, c], gates[n, c], out[n, c]
                for t in range(pixels):
                    target[t] = source[t] * gate[t] * factor + plus


@njit(cache=True, fastmath=_FREELY)
def evonorm_back(
    slopes: Array, x: Array, gates: Array, weight: Array, v: Array, moments: Array, of_x: Array, found: Array
) -> None:
    """The gradient by x; and, added to `found` (3, channels), those by weight, bias and v."""
    num_samples, channels, pixels = x.shape
    groups = moments.shape[1]
    size, zero, one = channels // groups, x.dtype.type(0), x.dtype.type(1)
    for n in range(num_samples):
        for g in range(groups):
            mean, inverse = moments[n, g, 0], moments[n, g, 1]
            of_scale = 0.0
            for c in range(g * size, (g + 1) * size):
                slope, source, gate = slopes[n, c], x[n, c], gates[n, c]
                products = total = of_v = zero
                for t in range(pixels):
                    gated = slope[t] * source[t] * gate[t]
                    products += gated
                    total += slope[t]
                    of_v += gated * source[t] * (one - gate[t])
                found[0, c] += products * inverse
                found[1, c] += total
                found[2, c] += of_v * inverse * weight[c]
                of_scale += products * weight[c]
            slant = x.dtype.type(-of_scale * inverse * inverse * inverse / (size * pixels))
            for c in range(g * size, (g + 1) * size):
                slope, source, gate, target = slopes[n, c], x[n, c], gates[n, c], of_x[n, c]
                factor, steep = inverse * weight[c], v[c]
                for t in range(pixels):
                    rise = gate[t] * (one + source[t] * steep * (one - gate[t]))
                    target[t] = slope[t] * factor * rise + slant * (source[t] - mean)
