"""Matrix factorization: what a user thinks of an item, from what is learnt of each."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gossamer.models.architecture import Architecture, check_at_least


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
    """The module. Its parameters stand in the order that `gossamer.kernels.factorization` knows."""

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
