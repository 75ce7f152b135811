"""Least squares with a known answer: the first thing to run a new algorithm on.

Sample k is a point c_k and costs f_k(x) = 1/2 * sum_d a_d (x_d - c_kd)^2. Whatever the curvatures a, the sum over all
samples is least at the mean of the points. The points lie in ten clusters, whose numbers are the labels: a partition
by label gives nodes that pull in different directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Samples
from gossamer.core.rng import philox


@dataclass(frozen=True)
class Quadratic:
    """Least squares with a known optimum; the metric is the distance to it."""

    dimension: int = 50
    num_samples: int = 960
    condition: float = 10.0  # largest over smallest curvature
    spread: float = 1.0  # distance of points from their cluster's centre, against that of the centres from 0

    metric = "distance"
    clients = None
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
