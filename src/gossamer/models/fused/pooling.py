"""GroupNorm, the largest of each 2x2 pixels, and ReLU, in one: what follows each convolution of GN-LeNet.

Images have a pixel's channels side by side, (samples, height, width * channels), so that the innermost loops run over
vectors of channels, or of a whole row of pixels. A sample's numbers depend on the sample alone.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]  # float32; float64 to check gradients by
Places = NDArray[np.int32]  # where in its 2x2 pixels a number stood, counted from the first; -1: ReLU stopped it

_STOPPED = np.int32(-1)


@njit(cache=True)
def _fold(row: Array, totals: Array) -> None:
    """Sums by channel of what is as long as a row."""
    totals[:] = 0
    for j in range(0, row.size, totals.size):
        pixel = row[j : j + totals.size]
        for c in range(totals.size):
            totals[c] += pixel[c]


@njit(cache=True)
def _moments(sample: Array, epsilon: float, sums: Array, moments: Array) -> None:
    """Sums of every channel, and (groups, 2) mean and 1 / standard deviation of every group of channels."""
    channels, groups = sums.size, moments.shape[0]
    size, count = channels // groups, sample.size // groups
    row, centre, totals = np.zeros(sample.shape[1], sample.dtype), np.empty_like(sample[0]), np.empty(channels)
    for i in range(0, sample.shape[0], 2):
        top, bottom = sample[i], sample[i + 1]
        for t in range(row.size):
            row[t] += top[t] + bottom[t]
    _fold(row, totals)
    for g in range(groups):
        moments[g, 0] = totals[g * size : (g + 1) * size].sum() / count
    for j in range(0, row.size, channels):
        for c in range(channels):
            centre[j + c] = moments[c // size, 0]
    sums[:] = totals
    row[:] = 0
    for i in range(0, sample.shape[0], 2):
        top, bottom = sample[i], sample[i + 1]
        for t in range(row.size):
            a, b = top[t] - centre[t], bottom[t] - centre[t]
            row[t] += a * a + b * b
    _fold(row, totals)
    for g in range(groups):
        moments[g, 1] = 1 / np.sqrt(totals[g * size : (g + 1) * size].sum() / count + epsilon)


@njit(cache=True)
def norm_pool(
    x: Array,
    weight: Array,
    bias: Array,
    epsilon: float,
    out: Array,
    best: Array,
    places: Places,
    sums: Array,
    moments: Array,
) -> None:
    """max(0, largest of 2x2 of GroupNorm(x)).

    x is (samples, height, width * channels), with an even height and width. Beside `out` it gives what `norm_pool_back`
    takes: the numbers of x that were largest, `places`, the channels' sums, and the groups' moments.
    """
    num_samples, height, length = x.shape
    channels, groups = weight.size, moments.shape[1]
    size, zero = channels // groups, x.dtype.type(0)
    right, down = np.int32(channels), np.int32(length)
    factor, shift = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    for n in range(num_samples):
        _moments(x[n], epsilon, sums[n], moments[n])
        for c in range(channels):
            factor[c] = moments[n, c // size, 1] * weight[c]
            shift[c] = bias[c] - moments[n, c // size, 0] * factor[c]
        for i in range(height // 2):
            top, bottom = x[n, 2 * i], x[n, 2 * i + 1]
            for j in range(0, length // 2, channels):
                k, m, end = 2 * j, 2 * j + channels, 2 * (j + channels)
                p, q, r, s = top[k:m], top[m:end], bottom[k:m], bottom[m:end]
                largest, place = out[n, i, j : j + channels], places[n, i, j : j + channels]
                chosen = best[n, i, j : j + channels]
                for c in range(channels):
                    value, ahead, at = p[c], p[c] * factor[c], np.int32(0)
                    other = q[c] * factor[c]
                    over = other > ahead
                    value, ahead, at = q[c] if over else value, other if over else ahead, right if over else at
                    other = r[c] * factor[c]
                    over = other > ahead
                    value, ahead, at = r[c] if over else value, other if over else ahead, down if over else at
                    other = s[c] * factor[c]
                    over = other > ahead
                    value, ahead, at = s[c] if over else value, other if over else ahead, right + down if over else at
                    ahead += shift[c]
                    chosen[c] = value
                    largest[c] = zero if ahead <= 0 else ahead  # so that NaN stays
                    place[c] = _STOPPED if ahead <= 0 else at


@njit(cache=True)
def _coefficients(
    slopes: Array, best: Array, places: Places, sums: Array, moments: Array, weight: Array, found: Array, by: Array
) -> None:
    """Of a sample: what it adds to the gradients (3, channels) by weight, bias, and anything that is added to x before;
    and `by` (3, channels), from which its own follow: by[0] * slope + by[1] * x + by[2]."""
    channels, groups = weight.size, moments.shape[0]
    size, pixels = channels // groups, 4 * slopes.size // channels
    row, other, zero = (
        np.zeros(slopes.shape[1], slopes.dtype),
        np.zeros(slopes.shape[1], slopes.dtype),
        slopes.dtype.type(0),
    )
    totals, products = np.empty(channels), np.empty(channels)
    for i in range(slopes.shape[0]):
        slope, place, value = slopes[i], places[i], best[i]
        for t in range(row.size):
            through = slope[t] if place[t] >= 0 else zero
            row[t] += through
            other[t] += through * value[t]
    _fold(row, totals)
    _fold(other, products)
    for g in range(groups):
        mean, inverse = np.float64(moments[g, 0]), np.float64(moments[g, 1])
        a = b = 0.0
        for c in range(g * size, (g + 1) * size):
            product = (products[c] - mean * totals[c]) * inverse
            found[0, c] += product
            found[1, c] += totals[c]
            a += weight[c] * totals[c]
            b += weight[c] * product
        slant = -inverse * inverse * b / (size * pixels)
        level = -inverse * a / (size * pixels) - mean * slant
        for c in range(g * size, (g + 1) * size):
            by[0, c], by[1, c], by[2, c] = inverse * weight[c], slant, level
            found[2, c] += inverse * weight[c] * totals[c] + slant * sums[c] + level * pixels


@njit(cache=True)
def norm_pool_back(
    slopes: Array,
    x: Array,
    weight: Array,
    best: Array,
    places: Places,
    sums: Array,
    moments: Array,
    of_x: Array,
    found: Array,
) -> None:
    """The gradient by x; and, added to `found` (3, channels), those by weight, by bias, and by whatever is added to all
    of a channel before: the bias of a convolution."""
    num_samples, height, length = x.shape
    channels, zero = weight.size, x.dtype.type(0)
    right, down = np.int32(channels), np.int32(length)
    by = np.empty((3, channels), x.dtype)
    for n in range(num_samples):
        _coefficients(slopes[n], best[n], places[n], sums[n], moments[n], weight, found, by)
        factor, slant, level = by
        for i in range(height // 2):
            top, bottom, of_top, of_bottom = x[n, 2 * i], x[n, 2 * i + 1], of_x[n, 2 * i], of_x[n, 2 * i + 1]
            for j in range(0, length // 2, channels):
                k, m, end = 2 * j, 2 * j + channels, 2 * (j + channels)
                p, q, r, s = top[k:m], top[m:end], bottom[k:m], bottom[m:end]
                of_p, of_q, of_r, of_s = of_top[k:m], of_top[m:end], of_bottom[k:m], of_bottom[m:end]
                slope, place = slopes[n, i, j : j + channels], places[n, i, j : j + channels]
                for c in range(channels):
                    through, at = slope[c] * factor[c], place[c]
                    of_p[c] = (slant[c] * p[c] + level[c]) + (through if at == 0 else zero)
                    of_q[c] = (slant[c] * q[c] + level[c]) + (through if at == right else zero)
                    of_r[c] = (slant[c] * r[c] + level[c]) + (through if at == down else zero)
                    of_s[c] = (slant[c] * s[c] + level[c]) + (through if at == right + down else zero)
