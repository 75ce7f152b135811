"""Handwritten digits of 8x8 pixels: real images that come with the package.

digits.npz holds the test set of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998; UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49, licence CC BY 4.0): images (1797, 64) from 0 to 16, and digits.
"""

from dataclasses import dataclass
from pathlib import Path

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
