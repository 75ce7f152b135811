"""The 8x8 handwritten digits that come with scikit-learn: real images, on every machine, and small."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from gossamer.core.rng import permutation, philox
from gossamer.data.supervised import Supervised

_NUM_TEST = 360  # a fifth of 1,797; which ones is fixed, so that runs with different seeds have one test set


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten digits of 8x8 pixels, 10 classes, and a multilayer perceptron."""

    hidden: int = 64  # units of the one hidden layer; 0: logistic regression

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise ValueError(f"hidden must be at least 0, {self.hidden} was given")

    def load(self) -> Supervised:
        from sklearn.datasets import load_digits  # here, because it takes a second to import

        images, digits = load_digits(return_X_y=True)
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
