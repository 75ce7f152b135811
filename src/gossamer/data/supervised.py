"""A task from any torch module and any data: minibatches in, one loss out, one score per test sample."""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from gossamer.core import Samples, Task
from gossamer.core.rng import permutation, philox
from gossamer.models.fused.layers import to_fast

Data = tuple[Tensor, Tensor] | Dataset[Any]
_EVALUATION_BATCH = 50, 250  # samples at a time: of large ones fewer, what is computed of them should stay in the cache
_EVALUATION_NUMBERS = 1 << 17  # of their inputs, between these limits


_NO_TARGET = -100  # what cross-entropy passes over


def correct(output: Tensor, target: Tensor) -> Tensor:
    """1 where the largest output is the target's, else 0; its mean is the accuracy."""
    return (output.argmax(-1) == target).float()


@dataclass(frozen=True, eq=False)
class Supervised(Task):
    """Your own model and data.

    `model` is a module, whose weights every node then starts from, or something that makes one when called, such as
    its class, which is called under the experiment's seed. `train` and `test` are (inputs, targets) tensors or
    map-style datasets of such pairs. Only parameters that require a gradient are trained and shared; what else
    changes in training, such as the running statistics of batch normalization, stays with its node.
    """

    model: nn.Module | Callable[[], nn.Module]
    train: Data
    test: Data
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy  # mean over the minibatch
    score: Callable[[Tensor, Tensor], Tensor] = correct  # one number per sample; its mean is the metric
    metric: str = "accuracy"
    clients: NDArray[np.int64] | None = None  # whose each training sample is
    augment: Callable[[Tensor], Tensor] | None = None  # of a minibatch in training; may draw from torch's generator
    prepare: Callable[[Tensor], Tensor] | None = None  # of every minibatch, such as bytes to numbers
    device: str = "cpu"  # where gradients and tests are computed
    fused: bool = False  # in quicker layers, whose sums run in another order, where there are any
    test_clients: NDArray[np.int64] | None = None  # whose each test sample is, in the numbers of `clients`
    higher_is_better: bool = True  # of the metric

    def load(self) -> "Supervised":
        """The task itself, once model and data are known to fit."""
        for name, data in (("train", self.train), ("test", self.test)):
            if isinstance(data, tuple) and not (
                len(data) == 2 and all(isinstance(t, Tensor) for t in data) and len(data[0]) == len(data[1])
            ):
                given = " and ".join(f"{type(t).__name__} {tuple(getattr(t, 'shape', ()))}" for t in data)
                must = f"{name} must be two tensors of the same length, inputs and targets, or a dataset"
                raise ValueError(f"{must}; {given} were given")
            if _length(data) == 0:
                raise ValueError(f"{name} has no samples")
        if self.clients is not None and len(self.clients) != self.num_samples:
            raise ValueError(f"clients has {len(self.clients)} entries and train {self.num_samples} samples")
        number = self.num_test_samples
        if self.test_clients is not None and len(self.test_clients) != number:
            raise ValueError(f"test_clients has {len(self.test_clients)} entries and test {number} samples")
        self._try_out()
        return self

    def with_data(self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor] | None) -> "Supervised":
        tested = self.test if test is None else test
        return replace(self, train=train, test=tested, clients=None, test_clients=None).load()

    def with_validation_split(self, share: float) -> "Supervised":
        """Which samples are held out is fixed, so that they stay unseen whatever the seed."""
        order = permutation(philox(0, "held out"), self.num_samples)
        held, kept = np.split(order, [max(1, round(share * self.num_samples))])
        held.sort()
        kept.sort()
        whose = [None if self.clients is None else self.clients[part] for part in (kept, held)]
        train, test = (_part(self.train, part) for part in (kept, held))
        return replace(self, train=train, test=test, clients=whose[0], test_clients=whose[1])

    def on(self, device: str) -> "Supervised":
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f'{device!r} was given, which torch cannot use here ({reason}); take "cpu"') from error
        return replace(self, device=device)

    def with_fused_layers(self) -> "Supervised":
        return replace(self, fused=True).load()

    def fingerprint_arrays(self) -> Iterator[NDArray[Any]]:
        for data in (self.train, self.test):
            if isinstance(data, tuple):  # of another kind of data set, sizes and labels must do
                yield from (tensor.numpy() for tensor in data)

    def _try_out(self) -> None:
        """Train and test once on a few samples, so that what does not fit is known before a run begins."""
        if not self._parameters:
            raise ValueError("the model has no parameter that requires a gradient, so there is nothing to train")
        self._check_targets()
        few = np.arange(min(2, self.num_samples))
        before = {name: (buffer, buffer.clone()) for name, buffer in self.module.named_buffers()}
        with torch.random.fork_rng(devices=[]):
            try:
                buffers = self.buffers[None].clone()
                self.gradient(self.initial_model(0)[None], few[None], [0], buffers)
                inputs, targets = self._fetch(self.test, few[: self.num_test_samples])
                with torch.no_grad():
                    shape = self.score(self.module.eval()(inputs), targets).shape
            except Exception as error:
                raise ValueError(f"the model does not take the data: {type(error).__name__}: {error}") from error
        if shape != (len(targets),):
            raise ValueError(f"score must give one number per sample, of {len(targets)} samples it gave {tuple(shape)}")
        for name, buffer in self.module.named_buffers():
            same, value = before[name]
            counts = name.endswith("num_batches_tracked") or buffer.is_floating_point()
            if buffer is not same or not (counts or torch.equal(buffer, value)):
                raise ValueError(
                    f"the model's buffer {name!r} changes in training in a way that cannot be kept per node; "
                    "make it a tensor of floating-point numbers that is changed in place, or leave its layer out"
                )

    def _check_targets(self) -> None:
        """ValueError if cross-entropy would look for an output that is not there, perhaps in some later round."""
        if self.loss is not nn.functional.cross_entropy:
            return
        for name, data in (("train", self.train), ("test", self.test)):
            targets = _targets_at_hand(data)
            if targets is None or targets.is_floating_point():
                continue
            try:
                with torch.random.fork_rng(devices=[]), torch.no_grad():
                    num_outputs = self.module.eval()(self._fetch(data, np.arange(1))[0]).shape[1]
            except Exception:
                return  # the model does not take the data, which `_try_out` tells
            outputs = f"the model has {num_outputs} outputs, 0 to {num_outputs - 1}"
            if (largest := int(targets.max())) >= num_outputs:
                raise ValueError(f"{name} targets go up to {largest} and {outputs}")
            if ((targets < 0) & (targets != _NO_TARGET)).any():
                raise ValueError(f"{name} targets go down to {int(targets.min())} and {outputs}")

    @cached_property
    def module(self) -> nn.Module:
        """Where rows are put to be trained and tested; the user's own module is left alone."""
        module = self._new_module()
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and parameter.dtype != torch.float32:
                raise ValueError(f"parameter {name!r} is {parameter.dtype}; call .float() on the model")
        return (to_fast(module) if self.fused else module).to(self.device).train()

    def _new_module(self) -> nn.Module:
        # Seeded, because what is not trained must be the same in every process.
        return copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else _seeded(self.model, 0)

    def module_with(self, model: Tensor, buffers: Tensor) -> nn.Module:
        module = self._new_module()
        trained = [p for p in module.parameters() if p.requires_grad]
        changing = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        with torch.no_grad():
            for tensors, row in ((trained, model), (changing, buffers)):
                for tensor, values in zip(tensors, torch.split(row, [t.numel() for t in tensors]), strict=True):
                    tensor.copy_(values.view(tensor.shape))
        return module.eval()

    def state_dict(self, model: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        return self.module_with(model, buffers).state_dict()

    @cached_property
    def _parameters(self) -> list[nn.Parameter]:
        return [p for p in self.module.parameters() if p.requires_grad]

    @cached_property
    def _changing(self) -> list[Tensor]:
        """The module's buffers of numbers. Counts are not among them: torch's layers count batches only to average
        over all of them, which none does unless told to, and then there is no answer for several nodes."""
        for name, module in self.module.named_modules():
            if getattr(module, "track_running_stats", False) and getattr(module, "momentum", 0.1) is None:
                raise ValueError(f"layer {name!r} has momentum=None, which is not kept per node; give it a number")
        return [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]

    @cached_property
    def buffers(self) -> Tensor:
        return torch.cat([torch.empty(0), *(buffer.detach().cpu().reshape(-1) for buffer in self._changing)])

    @cached_property
    def layer_sizes(self) -> list[int]:
        return [p.numel() for p in self._parameters]

    @property
    def num_samples(self) -> int:
        return _length(self.train)

    @property
    def num_test_samples(self) -> int:
        return _length(self.test)

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        return _labels(self.train)

    @cached_property
    def test_labels(self) -> NDArray[np.int64] | None:
        return _labels(self.test)

    def initial_model(self, seed: int) -> Tensor:
        module = self.model if isinstance(self.model, nn.Module) else _seeded(self.model, seed)
        return torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.requires_grad])

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        models = models.to(self.device)  # on the CPU this is no copy, nor are those below
        kept = self.buffers.repeat(len(models), 1) if buffers is None else buffers.to(self.device)
        gradients = torch.empty_like(models)
        losses = torch.zeros(len(models), device=self.device)
        for row, (batch, seed) in enumerate(zip(samples, seeds, strict=True)):
            inputs, targets = self.minibatch(batch, seed)
            losses[row] = self.gradient_of_row(models[row], kept[row], inputs, targets, gradients[row])
        if buffers is not None and kept is not buffers:
            buffers.copy_(kept)
        return losses.cpu(), gradients.cpu()

    def gradient_of_row(self, model: Tensor, buffers: Tensor, inputs: Tensor, targets: Tensor, out: Tensor) -> Tensor:
        """The loss of a model (D,) on a minibatch; its gradient goes into `out`."""
        if not self.module.training:  # saying so to every layer takes as long as a layer
            self.module.train()
        self._bind(model, buffers)
        loss = self.loss(self.module(inputs), targets)
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=out)
        return loss.detach()

    def minibatch(self, samples: Samples, seed: int) -> tuple[Tensor, Tensor]:
        """Training samples as the model takes them, (b, ...) or, of tensors, (B, b, ...) for (B, b) of them. Whatever
        is random in them, and in what the model then does with them, is drawn from the seed."""
        _seed_all(seed, self.train)
        return self._fetch(self.train, samples, self.augment)

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor | None = None) -> tuple[float, float]:
        self.module.eval()
        self._bind(model.to(self.device), (self.buffers if buffers is None else buffers).to(self.device))
        size = self._evaluation_batch
        _seed_all(0, self.test)
        loss = score = 0.0
        with torch.no_grad():
            for start in range(0, len(samples), size):
                inputs, targets = self._fetch(self.test, samples[start : start + size])
                output = self.module(inputs)
                loss += self.loss(output, targets).item() * len(targets)
                score += self.score(output, targets).sum().item()
        return loss / len(samples), score / len(samples)

    @cached_property
    def _evaluation_batch(self) -> int:
        least, most = _EVALUATION_BATCH
        inputs, _ = self._fetch(self.test, np.arange(1))
        return min(max(_EVALUATION_NUMBERS // inputs.numel(), least), most)

    def _bind(self, model: Tensor, buffers: Tensor) -> None:
        """Make the module's parameters and its buffers views of these rows: nothing is copied."""
        for bound, row in ((self._parameters, model), (self._changing, buffers)):
            for tensor, values in zip(bound, torch.split(row, [tensor.numel() for tensor in bound]), strict=True):
                tensor.data = values.view(tensor.shape)

    def _fetch(
        self, data: Data, samples: Samples, augment: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """A minibatch, where and as the model takes it."""
        if isinstance(data, tuple):
            index = torch.from_numpy(samples)
            inputs, targets = (  # what tensor[index] is, in a quarter of its time
                tensor.index_select(0, index.flatten()).view(*index.shape, *tensor.shape[1:]) for tensor in data
            )
        else:
            inputs, targets = default_collate([data[int(i)] for i in samples])
        if augment is not None:
            inputs = augment(inputs)
        if self.prepare is not None:
            inputs = self.prepare(inputs)
        return inputs.to(self.device), targets.to(self.device)


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def _seed_all(seed: int, data: Data) -> None:
    """Seed whatever a model or the transforms of a dataset may draw from."""
    torch.default_generator.manual_seed(seed)
    if not isinstance(data, tuple):
        np.random.seed(seed % 2**32)
        random.seed(seed)


def _length(data: Data) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)  # type: ignore[arg-type]


def _part(data: Data, samples: Samples) -> Data:
    """Some of the samples."""
    if isinstance(data, tuple):
        return data[0][torch.from_numpy(samples)], data[1][torch.from_numpy(samples)]
    return Subset(data, samples.tolist())


def _targets_at_hand(data: Data) -> Tensor | None:
    """All targets as the loss will see them, if no sample has to be read for them."""
    whole: Any = data
    while isinstance(whole, Subset):
        whole = whole.dataset
    kept = hasattr(whole, "targets") and getattr(whole, "target_transform", None) is None
    if not (kept or isinstance(whole, tuple | TensorDataset)):
        return None
    try:
        return _targets(data)
    except (TypeError, ValueError):
        return None  # not numbers


def _labels(data: Data) -> NDArray[np.int64] | None:
    """The targets, if they are classes."""
    try:
        targets = _targets(data)
    except (TypeError, ValueError):
        return None  # not numbers, so only partitions that need no labels will do
    return None if targets.is_floating_point() or targets.ndim != 1 else targets.numpy().astype(np.int64)


def _targets(data: Data) -> Tensor:
    if isinstance(data, tuple):
        return data[1]
    if isinstance(data, TensorDataset):
        return data.tensors[1]
    if isinstance(data, Subset):
        return _targets(data.dataset)[torch.as_tensor(data.indices)]
    if hasattr(data, "targets"):  # as torchvision's data sets have it
        return torch.as_tensor(data.targets)
    return torch.as_tensor([data[i][1] for i in range(_length(data))])
