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
    models: Floats,
    pairs: Integers,
    ratings: Floats,
    users: int,
    items: int,
    biased: bool,
    scale: float,
    out: Floats,
) -> Floats:
    """Add scale * gradient of each row's mean square error to `out`, which may be the models; returns the errors' mean
    squares.

    A row of models holds the users' vectors, the items' vectors and, if it is biased, the users' biases and the items'
    biases. pairs is (B, b, 2), a user and an item, and ratings (B, b).
    """
    num_rows, batch, _ = pairs.shape
    factors = models.shape[1] // (users + items) - (1 if biased else 0)
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
            rating = np.float32(0)
            if biased:
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
            if biased:
                changed[biases + user] += step
                changed[biases + users + item] += step
            for f in range(factors):
                changed[user * factors + f] += step * vectors[s, 1, f]
                changed[of_items + item * factors + f] += step * vectors[s, 0, f]
    return losses


@dataclass(frozen=True)
class MatrixFactorization(Architecture):
    """A vector and a bias for every user and item; a rating is the product of the vectors plus the biases.

    The JWINS authors' code has no biases, and vectors that start anywhere from -0.05 to 0.05: 206,680 parameters for
    MovieLens' 610 users and 9,724 films, where ours has 217,014.
    """

    factors: int = 20  # numbers in a vector, k
    biases: bool = True
    start: float = 0.0  # vectors start uniformly from -start to start; 0: normal, with deviation factors^-0.5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "factors")
        check_at_least(self, 0, "start")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        if len(inputs) != 2 or min(inputs) < 1:
            raise ValueError(f"inputs must be the numbers of (users, items), {inputs} was given")
        if outputs != 1:
            raise ValueError(f"outputs must be 1, the rating, for matrix factorization, {outputs} was given")
        return Factorization(*inputs, self.factors, self.biases, self.start)


class Factorization(nn.Module):
    """The module. Its parameters stand in the order that `add_gradients` expects."""

    def __init__(self, users: int, items: int, factors: int, biased: bool = True, start: float = 0.0):
        super().__init__()
        self.users, self.items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.biased = biased
        if biased:
            self.user_biases, self.item_biases = nn.Embedding(users, 1), nn.Embedding(items, 1)
            for biases in (self.user_biases, self.item_biases):
                nn.init.zeros_(biases.weight)
        for vectors in (self.users, self.items):
            if start:
                nn.init.uniform_(vectors.weight, -start, start)
            else:  # so that first ratings are small, whatever the number of factors
                nn.init.normal_(vectors.weight, std=factors**-0.5)

    def forward(self, pairs: Tensor) -> Tensor:
        """(B,) ratings of (B, 2) users and items."""
        users, items = pairs.unbind(-1)
        agreement = (self.users(users) * self.items(items)).sum(-1, keepdim=True)
        if self.biased:
            agreement = agreement + self.user_biases(users) + self.item_biases(items)
        return torch.squeeze(agreement, -1)
