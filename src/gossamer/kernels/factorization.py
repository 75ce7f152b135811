"""Matrix factorization: the gradients of many nodes' models, of which a minibatch touches only a few rows."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@njit(cache=True)
def add_gradients(
    models: Floats, pairs: Integers, ratings: Floats, users: int, items: int, scale: float, out: Floats
) -> Floats:
    """Add scale * gradient of each row's mean square error to `out`, which may be the models; returns the errors' mean
    squares.

    A row of models holds the users' vectors, the items' vectors, the users' biases and the items' biases. pairs is
    (B, b, 2), a user and an item, and ratings (B, b).
    """
    num_rows, batch, _ = pairs.shape
    factors = models.shape[1] // (users + items) - 1
    of_items = users * factors
    biases = (users + items) * factors
    losses = np.empty(num_rows, np.float32)
    vectors = np.empty((batch, 2, factors), np.float32)  # as they are before the first is changed
    steps = np.empty(batch, np.float32)
    for row in range(num_rows):
        model, changed = models[row], out[row]
        total = np.float32(0)
        for s in range(batch):
            user, item = pairs[row, s, 0], pairs[row, s, 1]
            rating = model[biases + user] + model[biases + users + item]
            for f in range(factors):
                vectors[s, 0, f] = model[user * factors + f]
                vectors[s, 1, f] = model[of_items + item * factors + f]
                rating += vectors[s, 0, f] * vectors[s, 1, f]
            error = rating - ratings[row, s]
            total += error * error
            steps[s] = np.float32(2 * scale / batch) * error
        losses[row] = total / np.float32(batch)
        for s in range(batch):
            user, item, step = pairs[row, s, 0], pairs[row, s, 1], steps[s]
            changed[biases + user] += step
            changed[biases + users + item] += step
            for f in range(factors):
                changed[user * factors + f] += step * vectors[s, 1, f]
                changed[of_items + item * factors + f] += step * vectors[s, 0, f]
    return losses
