"""Matrix factorization: what a user thinks of an item, from what is learnt of each."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.core.kernels import njit
from gossamer.models.architecture import Architecture, check_at_least

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


@dataclass(frozen=True)
class MatrixFactorization(Architecture):
    """A vector and a bias for every user and item; a rating is the product of the vectors plus the biases."""

    factors: int = 20  # numbers in a vector, k

    def __post_init__(self) -> None:
        check_at_least(self, 1, "factors")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        if len(inputs) != 2 or min(inputs) < 1:
            raise ValueError(f"inputs must be the numbers of (users, items), {inputs} was given")
        if outputs != 1:
            raise ValueError(f"outputs must be 1, the rating, for matrix factorization, {outputs} was given")
        return Factorization(*inputs, self.factors)


class Factorization(nn.Module):
    """The module. Its parameters stand in the order that `add_gradients` expects."""

    def __init__(self, users: int, items: int, factors: int):
        super().__init__()
        self.users, self.items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_biases, self.item_biases = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for vectors in (self.users, self.items):  # so that first ratings are small, whatever the number of factors
            nn.init.normal_(vectors.weight, std=factors**-0.5)
        for biases in (self.user_biases, self.item_biases):
            nn.init.zeros_(biases.weight)

    def forward(self, pairs: Tensor) -> Tensor:
        """(B,) ratings of (B, 2) users and items."""
        users, items = pairs.unbind(-1)
        agreement = (self.users(users) * self.items(items)).sum(-1, keepdim=True)
        return torch.squeeze(agreement + self.user_biases(users) + self.item_biases(items), -1)
