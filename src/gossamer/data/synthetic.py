"""Clients that differ as much as two numbers say: a task whose non-IIDness is a dial.

After synthetic(alpha, beta) of FedProx (Li et al., "Federated optimization in heterogeneous networks", 2020). Every
client k labels its samples with a linear model of its own, y = argmax(W_k x + b_k), and draws them around a place of
its own, x ~ N(v_k, diag(j^-1.2)), where

    W_k = W + alpha * N(0, 1),  b_k = b + alpha * N(0, 1)      alpha: how much clients disagree on the answers
    v_k = beta * N(0, 1)                                       beta: how different their questions are

and W and b, common to all, are N(0, 1). With 0 and 0 the clients are alike, which they never quite are in FedProx'
form. Larger alpha leaves less for one common model to learn.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.core.rng import philox
from gossamer.data.arrays import Arrays, Precision, task_of
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, LogisticRegression


@dataclass(frozen=True)
class Synthetic:
    """Points in classes, with clients whose answers (alpha) and questions (beta) differ as much as you like."""

    alpha: float = 1.0  # 0: all clients have the same right answers
    beta: float = 1.0  # 0: all clients draw from the same distribution
    num_clients: int = 96
    samples_per_client: int = 100  # a fifth of them for tests
    dimension: int = 60
    num_classes: int = 10
    model: Architecture = LogisticRegression()
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name, least in (("num_clients", 1), ("samples_per_client", 5), ("dimension", 1), ("num_classes", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, {getattr(self, name)} was given")
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0, {getattr(self, name)} was given")

    def arrays(self) -> Arrays:
        points, labels = self._draw()
        clients = np.arange(self.num_clients).repeat(self.samples_per_client)
        test = np.tile(np.arange(self.samples_per_client) % 5 == 0, self.num_clients)
        pairs = [(torch.from_numpy(points[part]), torch.from_numpy(labels[part])) for part in (~test, test)]
        return Arrays(pairs[0], pairs[1], (self.dimension,), self.num_classes, clients[~test])

    def load(self) -> Supervised:
        return task_of(self, self.arrays())

    def _draw(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        common = np.random.Generator(philox(0, "synthetic"))
        weights = common.standard_normal((self.num_classes, self.dimension + 1))  # the last are the biases
        deviations = np.arange(1, self.dimension + 1) ** -0.6
        points, labels = [], []
        for client in range(self.num_clients):
            rng = np.random.Generator(philox(0, "synthetic", node=client + 1))
            own_weights = weights + self.alpha * rng.standard_normal(weights.shape)
            place = self.beta * rng.standard_normal(self.dimension)
            x = place + deviations * rng.standard_normal((self.samples_per_client, self.dimension))
            points.append(x)
            labels.append((x @ own_weights[:, :-1].T + own_weights[:, -1]).argmax(1))
        return np.concatenate(points).astype(np.float32), np.concatenate(labels).astype(np.int64)
