"""Toy data sets, which need no files of yours: digits, quadratic and synthetic.

digits: handwritten digits of 8x8 pixels. digits.npz holds the test set of "Optical Recognition of Handwritten Digits"
(Alpaydin and Kaynak, 1998; UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licence CC BY 4.0): images
(1797, 64) from 0 to 16, and digits.

quadratic: least squares with a known answer, the first thing to run a new algorithm on. Sample k is a point c_k and
costs f_k(x) = 1/2 * sum_d a_d (x_d - c_kd)^2. Whatever the curvatures a, the sum over all samples is least at the mean
of the points. The points lie in ten clusters, whose numbers are the labels: a partition by label gives nodes that pull
in different directions.

synthetic: clients that differ as much as two numbers say, after synthetic(alpha, beta) of FedProx (Li et al.,
"Federated optimization in heterogeneous networks", 2020). Every client k labels its samples with a linear model of its
own, y = argmax(W_k x + b_k), and draws them around a centre of its own, x ~ N(v_k, diag(j^-1.2)), where

    W_k = W + alpha * N(0, 1),  b_k = b + alpha * N(0, 1)      alpha: how much clients disagree on the answers
    v_k = beta * N(0, 1)                                       beta: how different their questions are

and W and b, common to all, are N(0, 1). With 0 and 0 the clients are alike, which they never quite are in FedProx'
form. Larger alpha leaves less for one common model to learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.core import Samples, Task
from gossamer.core.rng import permutation, philox
from gossamer.data.arrays import Arrays, Precision, task_of
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, LogisticRegression

_NUM_TEST = 360  # a fifth of 1,797; which ones is fixed, so that runs with different seeds have one test set


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten digits of 8x8 pixels, 10 classes, and a multilayer perceptron."""

    hidden: int = 64  # units of the one hidden layer; 0: logistic regression

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise ValueError(f"hidden must be at least 0, {self.hidden} was given")

    def load(self) -> Supervised:
        with np.load(Path(__file__).with_name("digits.npz")) as arrays:
            images, digits = arrays["images"], arrays["digits"]
        order = permutation(philox(0, "digits"), len(digits))
        inputs = torch.from_numpy((images[order] / 16).astype(np.float32))
        targets = torch.from_numpy(digits[order].astype(np.int64))
        return Supervised(
            model=self._model,
            train=(inputs[_NUM_TEST:], targets[_NUM_TEST:]),
            test=(inputs[:_NUM_TEST], targets[:_NUM_TEST]),
        )

    def _model(self) -> nn.Module:
        if self.hidden == 0:
            return nn.Linear(64, 10)
        return nn.Sequential(nn.Linear(64, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 10))


@dataclass(frozen=True)
class Quadratic(Task):
    """Least squares with a known optimum; the metric is the distance to it."""

    dimension: int = 50
    num_samples: int = 960
    condition: float = 10.0  # largest over smallest curvature
    spread: float = 1.0  # distance of points from their cluster's centre, against that of the centres from 0

    metric = "distance"
    higher_is_better = False
    buffers = torch.empty(0)

    def __post_init__(self) -> None:
        for name in ("dimension", "num_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, {getattr(self, name)} was given")
        if self.condition < 1:
            raise ValueError(f"condition must be at least 1, {self.condition} was given")

    def load(self) -> "Quadratic":
        return self

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        return np.arange(self.num_samples) % 10

    @property
    def test_labels(self) -> NDArray[np.int64]:
        return self.labels

    @cached_property
    def points(self) -> Tensor:
        rng = np.random.Generator(philox(0, "quadratic"))
        centres = rng.standard_normal((10, self.dimension))
        noise = rng.standard_normal((self.num_samples, self.dimension))
        return torch.from_numpy(centres[self.labels] + self.spread * noise).float()

    @cached_property
    def curvature(self) -> Tensor:
        return torch.logspace(0, -np.log10(self.condition), self.dimension)

    @cached_property
    def optimum(self) -> Tensor:
        return self.points.mean(0)

    @property
    def layer_sizes(self) -> list[int]:
        return [self.dimension]

    @property
    def num_test_samples(self) -> int:
        return self.num_samples

    def initial_model(self, seed: int) -> Tensor:
        return torch.zeros(self.dimension)

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor = buffers
    ) -> tuple[Tensor, Tensor]:
        losses, gradients = torch.zeros(len(models)), torch.zeros_like(models)
        for row, batch in enumerate(samples):
            distances = models[row] - self.points[batch]
            losses[row] = (self.curvature * distances**2).sum(-1).mean() / 2
            gradients[row] = self.curvature * distances.mean(0)
        return losses, gradients

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor = buffers) -> tuple[float, float]:
        loss = (self.curvature * (model - self.points[samples]) ** 2).sum(-1).mean() / 2
        return loss.item(), torch.linalg.vector_norm(model - self.optimum).item()


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
        return Arrays(pairs[0], pairs[1], (self.dimension,), self.num_classes, clients[~test], clients[test])

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
            centre = self.beta * rng.standard_normal(self.dimension)
            x = centre + deviations * rng.standard_normal((self.samples_per_client, self.dimension))
            points.append(x)
            labels.append((x @ own_weights[:, :-1].T + own_weights[:, -1]).argmax(1))
        return np.concatenate(points).astype(np.float32), np.concatenate(labels).astype(np.int64)
