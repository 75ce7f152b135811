"""The kernels of fused layers: GroupNorm with 2x2 max-pooling and ReLU, EvoNorm-S0, and the last dense layer with
cross-entropy. Each has its backward pass beside it.

A sample's numbers depend on the sample alone, whatever else is in its minibatch.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.core.kernels import njit

Array = NDArray[Any]  # float32; float64 to check gradients by
Offsets = NDArray[np.int32]  # where in its 2x2 pixels the largest value stood, counted from the first; -1: ReLU gave 0

_REORDER = {"reassoc", "contract"}  # sums may run in the order that suits the processor, the same one every time
_STOPPED = np.int32(-1)


# GroupNorm, 2x2 max-pooling and ReLU. Images have the channels of a pixel side by side, (samples, height, width *
# channels), so that the innermost loops run over vectors of channels, or of a whole row of pixels.


@njit(cache=True)
def _fold(row: Array, totals: Array) -> None:
    """Sum a row of pixels by channel."""
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
    offsets: Offsets,
    sums: Array,
    moments: Array,
) -> None:
    """max(0, largest of 2x2 of GroupNorm(x)).

    x is (samples, height, width * channels), with an even height and width. Beside `out` it fills in what
    `norm_pool_backward` takes: `best`, the numbers of x that were largest, `offsets`, the sums of channels and the
    moments of groups.
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
                largest, offset = out[n, i, j : j + channels], offsets[n, i, j : j + channels]
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
                    offset[c] = _STOPPED if ahead <= 0 else at


@njit(cache=True)
def _coefficients(
    grad_output: Array,
    best: Array,
    offsets: Offsets,
    sums: Array,
    moments: Array,
    weight: Array,
    grad_channels: Array,
    by: Array,
) -> None:
    """What one sample adds to `grad_channels`; and `by` (3, channels), from which the gradient by its x follows:
    by[0] * grad + by[1] * x + by[2]."""
    channels, groups = weight.size, moments.shape[0]
    size, pixels = channels // groups, 4 * grad_output.size // channels
    row, other, zero = (
        np.zeros(grad_output.shape[1], grad_output.dtype),
        np.zeros(grad_output.shape[1], grad_output.dtype),
        grad_output.dtype.type(0),
    )
    totals, products = np.empty(channels), np.empty(channels)
    for i in range(grad_output.shape[0]):
        grad, offset, value = grad_output[i], offsets[i], best[i]
        for t in range(row.size):
            through = grad[t] if offset[t] >= 0 else zero
            row[t] += through
            other[t] += through * value[t]
    _fold(row, totals)
    _fold(other, products)
    for g in range(groups):
        mean, inverse = np.float64(moments[g, 0]), np.float64(moments[g, 1])
        a = b = 0.0
        for c in range(g * size, (g + 1) * size):
            product = (products[c] - mean * totals[c]) * inverse
            grad_channels[0, c] += product
            grad_channels[1, c] += totals[c]
            a += weight[c] * totals[c]
            b += weight[c] * product
        slope = -inverse * inverse * b / (size * pixels)
        level = -inverse * a / (size * pixels) - mean * slope
        for c in range(g * size, (g + 1) * size):
            by[0, c], by[1, c], by[2, c] = inverse * weight[c], slope, level
            grad_channels[2, c] += inverse * weight[c] * totals[c] + slope * sums[c] + level * pixels


@njit(cache=True)
def norm_pool_backward(
    grad_output: Array,
    x: Array,
    weight: Array,
    best: Array,
    offsets: Offsets,
    sums: Array,
    moments: Array,
    grad_x: Array,
    grad_channels: Array,
) -> None:
    """The gradient by x. Added to `grad_channels` (3, channels): those by weight, by bias, and by the bias of the
    convolution before, which is added to all pixels of a channel."""
    num_samples, height, length = x.shape
    channels, zero = weight.size, x.dtype.type(0)
    right, down = np.int32(channels), np.int32(length)
    by = np.empty((3, channels), x.dtype)
    for n in range(num_samples):
        _coefficients(grad_output[n], best[n], offsets[n], sums[n], moments[n], weight, grad_channels, by)
        factor, slope, level = by
        for i in range(height // 2):
            top, bottom, grad_top, grad_bottom = x[n, 2 * i], x[n, 2 * i + 1], grad_x[n, 2 * i], grad_x[n, 2 * i + 1]
            for j in range(0, length // 2, channels):
                k, m, end = 2 * j, 2 * j + channels, 2 * (j + channels)
                p, q, r, s = top[k:m], top[m:end], bottom[k:m], bottom[m:end]
                grad_p, grad_q, grad_r, grad_s = grad_top[k:m], grad_top[m:end], grad_bottom[k:m], grad_bottom[m:end]
                grad, offset = grad_output[n, i, j : j + channels], offsets[n, i, j : j + channels]
                for c in range(channels):
                    through, at = grad[c] * factor[c], offset[c]
                    grad_p[c] = (slope[c] * p[c] + level[c]) + (through if at == 0 else zero)
                    grad_q[c] = (slope[c] * q[c] + level[c]) + (through if at == right else zero)
                    grad_r[c] = (slope[c] * r[c] + level[c]) + (through if at == down else zero)
                    grad_s[c] = (slope[c] * s[c] + level[c]) + (through if at == right + down else zero)


# EvoNorm-S0. A group of a sample is (channels of the group, pixels), contiguous in memory, and is read while it is in
# the cache.


@njit(cache=True, fastmath=_REORDER)
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
                factor, shift = moments[n, g, 1] * weight[c], bias[c]
                source, gate, target = x[n, c], gates[n, c], out[n, c]
                for t in range(pixels):
                    target[t] = source[t] * gate[t] * factor + shift


@njit(cache=True, fastmath=_REORDER)
def evonorm_backward(
    grad_output: Array,
    x: Array,
    gates: Array,
    weight: Array,
    v: Array,
    moments: Array,
    grad_x: Array,
    grad_channels: Array,
) -> None:
    """The gradient by x. Added to `grad_channels` (3, channels): those by weight, bias and v."""
    num_samples, channels, pixels = x.shape
    groups = moments.shape[1]
    size, zero, one = channels // groups, x.dtype.type(0), x.dtype.type(1)
    for n in range(num_samples):
        for g in range(groups):
            mean, inverse = moments[n, g, 0], moments[n, g, 1]
            grad_scale = 0.0
            for c in range(g * size, (g + 1) * size):
                grad, source, gate = grad_output[n, c], x[n, c], gates[n, c]
                products = total = grad_v = zero
                for t in range(pixels):
                    gated = grad[t] * source[t] * gate[t]
                    products += gated
                    total += grad[t]
                    grad_v += gated * source[t] * (one - gate[t])
                grad_channels[0, c] += products * inverse
                grad_channels[1, c] += total
                grad_channels[2, c] += grad_v * inverse * weight[c]
                grad_scale += products * weight[c]
            slope = x.dtype.type(-grad_scale * inverse * inverse * inverse / (size * pixels))
            for c in range(g * size, (g + 1) * size):
                grad, source, gate, target = grad_output[n, c], x[n, c], gates[n, c], grad_x[n, c]
                factor, v_channel = inverse * weight[c], v[c]
                for t in range(pixels):
                    rise = gate[t] * (one + source[t] * v_channel * (one - gate[t]))
                    target[t] = grad[t] * factor * rise + slope * (source[t] - mean)


# The last dense layer with cross-entropy, forward and backward in one.


@njit(cache=True)
def transpose(given: Array, out: Array) -> None:
    """(n, a, b) transposed to (n, b, a)."""
    for n in range(given.shape[0]):
        one, other = given[n], out[n]
        for j in range(one.shape[1]):
            for i in range(one.shape[0]):
                other[j, i] = one[i, j]


@njit(cache=True, fastmath=_REORDER)
def _dot(a: Array, b: Array) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(cache=True, fastmath=_REORDER)
def classify(
    images: Array,
    weight: Array,
    bias: Array,
    targets: NDArray[np.int64],
    grad_images: Array,
    grad_weight: Array,
    grad_bias: Array,
) -> float:
    """The mean cross-entropy of a dense layer on images (samples, pixels, channels), and its gradients.

    weight is (classes, channels * pixels), the pixels of a channel side by side; bias may be empty.
    """
    num_samples, pixels, channels = images.shape
    classes, loss = weight.shape[0], 0.0
    inputs, grad_inputs = np.empty((1, channels, pixels), images.dtype), np.empty((1, channels, pixels), images.dtype)
    x, grad_x, logits = inputs.reshape(-1), grad_inputs.reshape(-1), np.empty(classes, images.dtype)
    grad_weight[:] = 0
    grad_bias[:] = 0
    for n in range(num_samples):
        target = targets[n]
        if not 0 <= target < classes:
            raise IndexError("a target is not one of the classes")
        transpose(images[n : n + 1], inputs)
        for k in range(classes):
            logits[k] = _dot(weight[k], x) + (bias[k] if bias.size else 0)
        largest, target_logit = logits.max(), logits[target]
        for k in range(classes):
            logits[k] = np.exp(logits[k] - largest)
        total = logits.sum()
        loss += (np.log(total) + largest - target_logit) / num_samples
        grad_x[:] = 0
        for k in range(classes):
            grad = (logits[k] / total - (1 if k == target else 0)) / num_samples
            row, grad_row = weight[k], grad_weight[k]
            factor = images.dtype.type(grad)
            for i in range(x.size):
                grad_row[i] += factor * x[i]
                grad_x[i] += factor * row[i]
            if bias.size:
                grad_bias[k] += factor
        transpose(grad_inputs, grad_images[n : n + 1])
    return loss
