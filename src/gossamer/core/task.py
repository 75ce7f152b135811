"""A task: model, data, loss and metric."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Samples = NDArray[np.int64]  # indices into a data set


class Task(Protocol):
    """Model, data, loss and metric. It knows nothing of nodes: rows of models and lists of samples come in."""

    @property
    def metric(self) -> str:
        """What `evaluate` measures beside the loss, such as "accuracy"."""

    @property
    def layer_sizes(self) -> Sequence[int]:
        """The numbers of parameters of the model's tensors, in the order in which they stand in the flat vector."""

    @property
    def num_samples(self) -> int: ...

    @property
    def num_test_samples(self) -> int: ...

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Of every training sample, for partitions by label."""

    @property
    def clients(self) -> NDArray[np.int64] | None:
        """Who every training sample came from, for partitions by client."""

    def initial_model(self, seed: int) -> Tensor:
        """(D,): where every node starts."""

    @property
    def buffers(self) -> Tensor:
        """(K,): what a model carries beside its parameters at the start, such as the running statistics of batch
        normalization. Each node keeps its own, and shares them with nobody. Usually empty."""

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D) of each row's model on its own minibatch of training samples, (B, b).

        Whatever is random in it (dropout, augmentation) is drawn from the row's seed. `buffers`, (B, K), are changed.
        """

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor) -> tuple[float, float]:
        """Loss and metric of one model (D,) with its buffers (K,) on these test samples."""
