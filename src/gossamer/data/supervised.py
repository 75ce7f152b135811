"""A task from any torch module and any data: minibatches in, one loss out, one score per test sample."""

import copy
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.core import Samples, Task
from gossamer.core.rng import kept_generators, permutation, philox
from gossamer.data import datasets
from gossamer.data.bound_module import BoundModule, check_parameters, with_weights
from gossamer.data.datasets import Batch, Collate, Data
from gossamer.data.metrics import Metric, Score, check_metrics, computed, correct, first_line
from gossamer.data.prefetch import Prefetcher
from gossamer.models.fused.layers import to_fast
from gossamer.models.low_precision import LAYERS

_EVALUATION_BATCH = 50, 250  # samples at a time: of large ones fewer, what is computed of them should stay in the cache
_EVALUATION_NUMBERS = 1 << 17  # of their inputs, between these limits
_NO_TARGET = -100  # what cross-entropy passes over


@dataclass(frozen=True, eq=False)
class Supervised(Task):
    """Your own model and data.

    `model` is a module, whose weights every node then starts from, or something that makes one when called, such as
    its class, which is called under the experiment's seed. `train` and `test` are (inputs, targets), a dictionary of
    columns, or a map-style dataset (data/datasets.py has all forms); `train` may also be a list of these, one per node,
    or a function of the node's number. A model that returns its loss itself, as Hugging Face's do, is taken at its
    word; else `loss` is computed from its outputs and the targets. Only parameters that require a gradient are trained
    and shared; what else changes in training, such as the running statistics of batch normalization, stays with its
    node.
    """

    model: nn.Module | Callable[[], nn.Module]
    train: Any
    test: Any
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy  # mean over the minibatch
    score: Score | None = correct  # one number per sample; None: the first of `metrics`
    metric: str = "accuracy"  # what the mean of the scores is
    clients: NDArray[np.int64] | None = None  # whose each training sample is
    augment: Callable[[Any], Any] | None = None  # of a minibatch in training; may draw from torch's generator
    prepare: Callable[[Any], Any] | None = None  # of every minibatch, such as bytes to numbers
    device: str = "cpu"  # where gradients and tests are computed
    fused: bool = False  # in quicker layers, whose sums run in another order, where there are any
    test_clients: NDArray[np.int64] | None = None  # whose each test sample is, in the numbers of `clients`
    higher_is_better: bool = True  # of the metric
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # by name, each of all outputs and targets of a test
    collate_fn: Collate | None = None  # how a dataset's samples become a minibatch; None: torch's default_collate
    target: str = "labels"  # the key of the targets in a dictionary, or the column in a table
    given_shards: Sequence[Samples] | None = None  # of each node, if `train` came divided

    def load(self) -> "Supervised":
        """The task with tensors in place of arrays and tables, once model and data are known to fit."""
        if _is_function(self.train):
            return self  # which data there are is known once the number of nodes is
        if isinstance(self.train, list):
            return self._joined(self.train).load()
        data = {name: datasets.as_data(name, getattr(self, name), self.target) for name in ("train", "test")}
        if any(data[name] is not getattr(self, name) and not _same(data[name], getattr(self, name)) for name in data):
            return replace(self, train=data["train"], test=data["test"]).load()
        check_metrics(self.metrics, self.score, self.metric)
        if self.score is None and self.metric not in self.metrics:
            return replace(self, metric=next(iter(self.metrics))).load()
        if self.clients is not None and len(self.clients) != self.num_samples:
            raise ValueError(f"clients has {len(self.clients)} entries and train {self.num_samples} samples")
        number = self.num_test_samples
        if self.test_clients is not None and len(self.test_clients) != number:
            raise ValueError(f"test_clients has {len(self.test_clients)} entries and test {number} samples")
        self._try_out()
        return self

    def with_nodes(self, nodes: int) -> "Supervised":
        if not _is_function(self.train):
            return self
        return replace(self, train=[self.train(node) for node in range(nodes)]).load()

    def _joined(self, parts: list[Any]) -> "Supervised":
        """With the data of all nodes in one, and who has which."""
        if not parts:
            raise ValueError("train is an empty list; give one dataset per node")
        if all(isinstance(one, Tensor) for one in parts):
            raise ValueError("train is a list of tensors, and a list is one dataset per node; write (inputs, targets)")
        if all(datasets.is_sample(one) for one in parts):
            raise ValueError(
                "train is a list of samples, and a list is one dataset per node; write (inputs, targets), or give a "
                "dataset that has the samples"
            )
        found = [datasets.as_data(f"train of node {node}", one, self.target) for node, one in enumerate(parts)]
        ends = np.cumsum([0, *map(datasets.length, found)])
        shards = [np.arange(start, end) for start, end in pairwise(ends)]
        return replace(self, train=datasets.joined(found), given_shards=shards)

    def with_data(self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor] | None) -> "Supervised":
        tested = self.test if test is None else test
        return replace(self, train=train, test=tested, clients=None, test_clients=None, given_shards=None).load()

    def with_validation_split(self, share: float) -> "Supervised":
        """Which samples are held out is fixed, so that they stay unseen whatever the seed."""
        if self.given_shards is not None:
            raise ValueError(f"{share} was given, and train came divided by node; hold samples out of it yourself")
        order = permutation(philox(0, "held out"), self.num_samples)
        held, kept = np.split(order, [max(1, round(share * self.num_samples))])
        held.sort()
        kept.sort()
        whose = [None if self.clients is None else self.clients[part] for part in (kept, held)]
        train, test = (datasets.part(self.train, part) for part in (kept, held))
        return replace(self, train=train, test=test, clients=whose[0], test_clients=whose[1])

    def on(self, device: str) -> "Supervised":
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f'{device!r} was given, which torch cannot use here ({reason}); take "cpu"') from error
        if any(type(layer) in LAYERS.values() for layer in self.module.modules()):
            raise ValueError(f'{device!r} was given, and layers of eight bits are computed on the CPU; take "cpu"')
        return replace(self, device=device)

    def with_fused_layers(self) -> "Supervised":
        return replace(self, fused=True).load()

    def fingerprint_arrays(self) -> Iterator[NDArray[Any]]:
        for data in (self.train, self.test):
            if datasets.is_in_tensors(data):  # of another kind of data set, sizes and labels must do
                yield from (tensor.numpy() for tensor in (data if isinstance(data, tuple) else data.values()))

    def _try_out(self) -> None:
        """Train and test once on a few samples, so that what does not fit is known before a run begins."""
        if not self._bound.parameters:
            raise ValueError("the model has no parameter that requires a gradient, so there is nothing to train")
        self._check_targets()
        few = np.arange(min(2, self.num_samples))
        tested = few[: self.num_test_samples]
        before = {name: (buffer, buffer.clone()) for name, buffer in self.module.named_buffers()}
        with kept_generators():
            try:
                buffers = self.buffers[None].clone()
                self.gradient(self.initial_model(0)[None], few[None], [0], buffers)
                with torch.no_grad():
                    self.module.eval()
                    _, outputs, targets = self._bound(self._fetch(self.test, tested))
                    shape = None if self.score is None else self.score(outputs, targets).shape
            except Exception as error:
                raise ValueError(f"the model does not take the data: {first_line(error)}") from error
            self._try_metrics()
        if shape is not None and shape != (len(tested),):
            raise ValueError(
                f"score must give one number per sample, of {len(tested)} samples it gave {tuple(shape)}; the default "
                "is for classes, for others give score= a function of outputs and targets"
            )
        for name, buffer in self.module.named_buffers():
            same, value = before[name]
            counts = name.endswith("num_batches_tracked") or buffer.is_floating_point()
            if buffer is not same or not (counts or torch.equal(buffer, value)):
                raise ValueError(
                    f"the model's buffer {name!r} changes in training in a way that cannot be kept per node; "
                    "make it a tensor of floating-point numbers that is changed in place, or leave its layer out"
                )

    def _try_metrics(self) -> None:
        """On samples from all over the test data, so that classes that come one after the other are among them."""
        if self.metrics:
            some = np.unique(np.linspace(0, self.num_test_samples - 1, 64).astype(np.int64))
            self.measure(self.initial_model(0), some, self.buffers)

    def _check_targets(self) -> None:
        """ValueError if cross-entropy would look for an output that is not there, perhaps in some later round."""
        if self.loss is not nn.functional.cross_entropy:
            return
        for name, data in (("train", self.train), ("test", self.test)):
            targets = datasets.targets_at_hand(data, self.target)
            if targets is None or targets.is_floating_point() or targets.ndim != 1:
                continue
            try:
                with kept_generators(), torch.no_grad():
                    self.module.eval()
                    num_outputs = self._bound(self._fetch(data, np.arange(1)))[1].shape[1]
            except Exception:
                return  # the model does not take the data, which `_try_out` tells
            outputs = f"the model has {num_outputs} outputs, 0 to {num_outputs - 1}"
            if (largest := int(targets.max())) >= num_outputs:
                raise ValueError(f"{name} targets go up to {largest} and {outputs}")
            if ((targets < 0) & (targets != _NO_TARGET)).any():
                raise ValueError(f"{name} targets go down to {int(targets.min())} and {outputs}")

    @cached_property
    def _bound(self) -> BoundModule:
        """Where rows are put to be trained and tested; the user's own module is left alone."""
        module = self._new_module()
        if not isinstance(module, nn.Module):
            raise ValueError(f"model must be a torch module, or a function that makes one, {module!r} was given")
        check_parameters(module)
        return BoundModule((to_fast(module) if self.fused else module).to(self.device).train(), self.target)

    @property
    def module(self) -> nn.Module:
        """The module that trains; its weights are those of whichever node came last."""
        return self._bound.module

    def _new_module(self) -> nn.Module:
        # Seeded, because what is not trained must be the same in every process.
        return copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else _seeded(self.model, 0)

    def module_with(self, model: Tensor, buffers: Tensor) -> nn.Module:
        return with_weights(self._new_module(), model, buffers)

    def state_dict(self, model: Tensor, buffers: Tensor) -> dict[str, Tensor]:
        return self.module_with(model, buffers).state_dict()

    @cached_property
    def buffers(self) -> Tensor:
        return torch.cat([torch.empty(0), *(buffer.detach().cpu().reshape(-1) for buffer in self._bound.changing)])

    @cached_property
    def layer_sizes(self) -> list[int]:
        return [p.numel() for p in self._bound.parameters]

    @cached_property
    def layer_shapes(self) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for p in self._bound.parameters]

    @property
    def num_samples(self) -> int:
        return datasets.length(self.train)

    @property
    def num_test_samples(self) -> int:
        return datasets.length(self.test)

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        return datasets.labels(self.train, self.target)

    @cached_property
    def test_labels(self) -> NDArray[np.int64] | None:
        return datasets.labels(self.test, self.target)

    def initial_model(self, seed: int) -> Tensor:
        module = self.model if isinstance(self.model, nn.Module) else _seeded(self.model, seed)
        return torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.requires_grad])

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        home = models.device
        models = models.to(self.device)  # where they are there already this is no copy, nor are those below
        kept = self.buffers.repeat(len(models), 1) if buffers is None else buffers
        there = kept.to(self.device)
        gradients = torch.empty_like(models)
        losses = torch.zeros(len(models), device=self.device)
        for row, (batch, seed) in enumerate(zip(samples, seeds, strict=True)):
            losses[row] = self.gradient_of_row(models[row], there[row], self.minibatch(batch, seed), gradients[row])
        if there is not kept:
            kept.copy_(there)
        return losses.to(home), gradients.to(home)

    def gradient_of_row(self, model: Tensor, buffers: Tensor, batch: Batch, out: Tensor) -> Tensor:
        """The loss of a model (D,) on a minibatch; its gradient goes into `out`."""
        if not self.module.training:  # saying so to every layer takes as long as a layer
            self.module.train()
        self._bound.bind(model, buffers)
        loss = self._loss(*self._bound(batch))
        gradients = torch.autograd.grad(loss, self._bound.parameters, allow_unused=True, materialize_grads=True)
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=out)
        return loss.detach()

    def _loss(self, own: Tensor | None, outputs: Any, targets: Any) -> Tensor:
        if own is not None:
            return own
        if targets is None:
            raise ValueError(f"the model returned no loss, and a batch has no {self.target!r} to compute one with")
        return self.loss(outputs, targets)

    def minibatch(self, samples: Samples, seed: int) -> Batch:
        """Training samples as the model takes them, (b, ...) or, of tensors, (B, b, ...) for (B, b) of them. Whatever
        is random in them, and in what the model then does with them, is drawn from the seed."""
        if datasets.is_in_tensors(self.train):
            self._seed(seed, self.train)
            return self._fetch(self.train, samples, self.augment)
        with self._prefetcher.seeding():
            self._seed(seed, self.train)
        return self._as_taken(self._prefetcher.get(samples), self.augment)

    def reading_ahead(self, upcoming: Iterator[Samples]) -> AbstractContextManager[None]:
        """Samples of tensors are at hand; those of a dataset that is slow are fetched while the model computes."""
        return nullcontext() if datasets.is_in_tensors(self.train) else self._prefetcher.reading_ahead(upcoming)

    @cached_property
    def _prefetcher(self) -> Prefetcher:
        return Prefetcher(self.train, self.collate_fn)

    @property
    def gives_pairs(self) -> bool:
        """Are minibatches inputs and targets, and is a model's loss computed from its outputs?"""
        pairs = isinstance(self.train, tuple) or not isinstance(self._fetch(self.train, np.arange(1)), Mapping)
        return pairs and not self._bound.takes_targets

    @property
    def more_metrics(self) -> Sequence[str]:
        return [name for name in self.metrics if name != self.metric]

    @property
    def scores_samples(self) -> bool:
        return self.score is not None

    @property
    def collects_outputs(self) -> bool:
        return bool(self.metrics)

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor | None = None) -> tuple[float, float]:
        loss, metric, *_ = self._measured(model, samples, buffers, [self.metric] if self.score is None else [])
        return loss, metric

    def measure(self, model: Tensor, samples: Samples, buffers: Tensor | None = None) -> Sequence[float]:
        return self._measured(model, samples, buffers, list(self.metrics))

    def _measured(self, model: Tensor, samples: Samples, buffers: Tensor | None, names: Sequence[str]) -> list[float]:
        """The test loss, the mean score if there is one, and these of the metrics."""
        self.module.eval()
        self._bound.bind(model.to(self.device), (self.buffers if buffers is None else buffers).to(self.device))
        size = self._evaluation_batch
        self._seed(0, self.test)
        loss = score = 0.0
        collected: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for start in range(0, len(samples), size):
                some = samples[start : start + size]
                own, outputs, targets = self._bound(self._fetch(self.test, some))
                loss += self._loss(own, outputs, targets).item() * len(some)
                if self.score is not None:
                    score += self.score(outputs, targets).sum().item()
                if names:
                    collected.append((outputs.cpu(), targets.cpu()))
        found = [loss / len(samples)] if self.score is None else [loss / len(samples), score / len(samples)]
        return found + (computed({name: self.metrics[name] for name in names}, collected) if names else [])

    @cached_property
    def _evaluation_batch(self) -> int:
        least, most = _EVALUATION_BATCH
        batch = self._fetch(self.test, np.arange(1))
        columns = batch.values() if isinstance(batch, Mapping) else batch[:1]
        largest: int = max([1, *(one.numel() for one in columns if isinstance(one, Tensor))])
        return min(max(_EVALUATION_NUMBERS // largest, least), most)

    def _fetch(self, data: Data, samples: Samples, augment: Callable[[Any], Any] | None = None) -> Batch:
        return self._as_taken(datasets.fetch(data, samples, self.collate_fn), augment)

    def _as_taken(self, batch: Batch, augment: Callable[[Any], Any] | None) -> Batch:
        """A minibatch where and as the model takes it. What changes it is given the inputs of a pair, and all of a
        dictionary."""
        for change in (augment, self.prepare):
            if change is not None:
                batch = change(batch) if isinstance(batch, Mapping) else (change(batch[0]), *batch[1:])
        return datasets.map_batch(lambda tensor: tensor.to(self.device), batch)

    def _seed(self, seed: int, data: Data) -> None:
        """Seed whatever a model or the transforms of a dataset may draw from."""
        torch.default_generator.manual_seed(seed)
        if self.device != "cpu":
            torch.manual_seed(seed)  # the devices' own generators, too
        if not datasets.is_in_tensors(data):
            np.random.seed(seed % 2**32)
            random.seed(seed)


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    if not callable(make):
        raise ValueError(f"model must be a torch module, or a function that makes one, {make!r} was given")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def _is_function(data: Any) -> bool:
    return inspect.isroutine(data) or (callable(data) and not hasattr(data, "__getitem__"))


def _same(data: Data, given: Any) -> bool:
    """Are these the same tensors, in a container of their own at most?"""
    if isinstance(data, tuple):
        return isinstance(given, tuple) and all(a is b for a, b in zip(data, given, strict=True))
    return isinstance(given, dict) and isinstance(data, dict) and all(data[key] is given.get(key) for key in data)
