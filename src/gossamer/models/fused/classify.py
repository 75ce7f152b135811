"""The end of a fast model, a dense layer and cross-entropy, forward and backward in one; and layouts around it."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]  # float32; float64 to check gradients by

_FREELY = {"reassoc", "contract"}  # sums may run in the order that suits the processor, the same one every time


@njit(cache=True)
def swap(given: Array, out: Array) -> None:
    """(n, a, b) as (n, b, a)."""
    for n in range(given.shape[0]):
        one, other = given[n], out[n]
        for j in range(one.shape[1]):
            for i in range(one.shape[0]):
                other[j, i] = one[i, j]


@njit(cache=True)
def look_up(numbers: NDArray[np.uint8], table: Array, out: Array) -> None:
    for i in range(numbers.size):
        out[i] = table[numbers[i]]


@njit(cache=True, fastmath=_FREELY)
def _dot(a: Array, b: Array) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(cache=True, fastmath=_FREELY)
def classify(
    images: Array,
    weight: Array,
    bias: Array,
    targets: NDArray[np.int64],
    of_images: Array,
    of_weight: Array,
    of_bias: Array,
) -> float:
    """The mean cross-entropy of images (samples, pixels, channels) that pass a dense layer, whose weights (classes,
    channels * pixels) have the pixels of a channel side by side; and its gradients. bias may be empty."""
    num_samples, pixels, channels = images.shape
    classes, loss = weight.shape[0], 0.0
    inputs, of_inputs = np.empty((1, channels, pixels), images.dtype), np.empty((1, channels, pixels), images.dtype)
    x, of_x, slopes = inputs.reshape(-1), of_inputs.reshape(-1), np.empty(classes, images.dtype)
    of_weight[:] = 0
    of_bias[:] = 0
    for n in range(num_samples):
        target = targets[n]
        if not 0 <= target < classes:
            raise IndexError("a target is not one of the classes")
        swap(images[n : n + 1], inputs)
        for k in range(classes):
            slopes[k] = _dot(weight[k], x) + (bias[k] if bias.size else 0)
        largest, of_target = slopes.max(), slopes[target]
        for k in range(classes):
            slopes[k] = np.exp(slopes[k] - largest)
        total = slopes.sum()
        loss += (np.log(total) + largest - of_target) / num_samples
        of_x[:] = 0
        for k in range(classes):
            slope = (slopes[k] / total - (1 if k == target else 0)) / num_samples
            row, of_row = weight[k], of_weight[k]
            factor = images.dtype.type(slope)
            for i in range(x.size):
                of_row[i] += factor * x[i]
                of_x[i] += factor * row[i]
            if bias.size:
                of_bias[k] += factor
        swap(of_inputs, of_images[n : n + 1])
    return loss
