"""A task: model, data, loss and metric."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Samples = NDArray[np.int64]  # indices into a data set


class MetricError(ValueError):
    """A metric of the user's own could not be computed."""


class Task:
    """Model, data, loss and metric. It knows nothing of nodes: rows of models and lists of samples come in.

    Inherit from it for a task of your own. Define everything up to `evaluate`; what follows has defaults.
    """

    @property
    def metric(self) -> str:
        """What `evaluate` measures beside the loss, such as "accuracy"."""
        raise NotImplementedError(f"{type(self).__name__} must define metric")

    @property
    def layer_sizes(self) -> Sequence[int]:
        """The numbers of parameters of the model's tensors, in the order in which they stand in the flat vector."""
        raise NotImplementedError(f"{type(self).__name__} must define layer_sizes")

    @property
    def layer_shapes(self) -> Sequence[tuple[int, ...]]:
        """The shapes of these tensors, for what treats a matrix as one; unless defined, vectors."""
        return [(size,) for size in self.layer_sizes]

    @property
    def num_samples(self) -> int:
        """Training samples."""
        raise NotImplementedError(f"{type(self).__name__} must define num_samples")

    @property
    def num_test_samples(self) -> int:
        """Test samples."""
        raise NotImplementedError(f"{type(self).__name__} must define num_test_samples")

    def initial_model(self, seed: int) -> Tensor:
        """(D,): where every node starts."""
        raise NotImplementedError(f"{type(self).__name__} must define initial_model")

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D) of each row's model on its own minibatch of training samples, (B, b).

        Whatever is random in it (dropout, augmentation) is drawn from the row's seed. `buffers`, (B, K), are changed.
        """
        raise NotImplementedError(f"{type(self).__name__} must define gradient")

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor) -> tuple[float, float]:
        """Loss and metric of one model (D,) with its buffers (K,) on these test samples."""
        raise NotImplementedError(f"{type(self).__name__} must define evaluate")

    @property
    def more_metrics(self) -> Sequence[str]:
        """What `measure` tells beside loss and metric, such as ["f1"]."""
        return ()

    @property
    def scores_samples(self) -> bool:
        """Is the metric a mean over samples, so that those of some and of others can be averaged?"""
        return True

    @property
    def collects_outputs(self) -> bool:
        """Is something measured of all outputs of a test together, so that its samples must not be divided?"""
        return False

    def measure(self, model: Tensor, samples: Samples, buffers: Tensor) -> Sequence[float]:
        """Loss and metric, as `evaluate` has them, and then `more_metrics`."""
        return self.evaluate(model, samples, buffers)

    def reading_ahead(self, upcoming: Iterator[Samples]) -> AbstractContextManager[None]:
        """While in it, gradients are asked for on these minibatches, (b,), in this order, for the most part: whoever
        reads slowly may read the next one meanwhile."""
        return nullcontext()

    @property
    def given_shards(self) -> Sequence[Samples] | None:
        """The training samples of each node, where they come divided; None: the experiment's partition divides them."""
        return None

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Of every training sample, for partitions by label."""
        return None

    @property
    def clients(self) -> NDArray[np.int64] | None:
        """Who every training sample came from, for partitions by client."""
        return None

    @property
    def test_labels(self) -> NDArray[np.int64] | None:
        """Of every test sample, for `evaluation.personal`."""
        return None

    @property
    def test_clients(self) -> NDArray[np.int64] | None:
        """Who every test sample came from, as in `clients`, for `evaluation.personal`; -1: from nobody there."""
        return None

    @property
    def higher_is_better(self) -> bool:
        """Is a larger metric a better one, as an accuracy is and an error is not?"""
        return True

    @property
    def buffers(self) -> Tensor:
        """(K,): what a model carries beside its parameters at the start, such as the running statistics of batch
        normalization. Each node keeps its own, and shares them with nobody. Usually empty."""
        return torch.empty(0)

    def fingerprint_arrays(self) -> Iterable[NDArray[np.generic]]:
        """The data, so that processes can compare theirs; what no array holds is left out."""
        return ()

    def module_with(self, model: Tensor, buffers: Tensor) -> nn.Module:
        """A new module with copies of this model (D,) and these buffers (K,), ready to predict; ValueError if the task
        has none."""
        raise ValueError(f"{type(self).__name__} has no module; Run.models has its models")

    def state_dict(self, model: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        """The named tensors of such a module; if there is none, the model."""
        return {"model": model.clone()}

    # The same task otherwise; ValueError if it cannot be.

    def with_nodes(self, nodes: int) -> "Task":
        """With the data of so many nodes, where these are given by a function of the node."""
        return self

    def with_data(self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor] | None) -> "Task":
        """With other training data, (inputs, targets), and other test data if there are any."""
        raise ValueError(f"other data need a task of inputs and targets, such as digits; {type(self).__name__} is none")

    def with_validation_split(self, share: float) -> "Task":
        """Tested on a share of its training samples, which are then not trained on: to choose settings by."""
        raise ValueError(f"{share} was given, and task {type(self).__name__} has no choice of it")

    def on(self, device: str) -> "Task":
        """Computed elsewhere, on a device as torch names it."""
        raise ValueError(f"{device} was given, and task {type(self).__name__} has no choice of it")

    def with_fused_layers(self) -> "Task":
        """With quicker layers, whose sums run in another order, where there are any."""
        raise ValueError(f"True was given, and task {type(self).__name__} has no choice of it")
