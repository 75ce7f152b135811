"""Samples in whatever form a PyTorch user has them: tensors, arrays, tables, dictionaries of columns, datasets.

(inputs, targets)                    two tensors, NumPy arrays, or pandas objects
{"input_ids": ..., "labels": ...}    columns: tensors or arrays of the same length; batches are dictionaries
a DataFrame                          its target column, and the others as inputs
a map-style dataset                  anything with __len__ and __getitem__, such as torch's, torchvision's, or
                                     Hugging Face's `datasets`; samples are pairs or dictionaries
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from gossamer.core import Samples

Data = Any  # tuple[Tensor, Tensor], dict[str, Tensor] or a map-style dataset, once `as_data` has seen it
Batch = Any  # (inputs, targets), or a dictionary of tensors
Collate = Callable[[list[Any]], Batch]


def as_data(name: str, given: Any, target: str) -> Data:
    """What was given as `name`, with tensors in place of arrays and tables; ValueError if it holds no samples."""
    if isinstance(given, DataLoader):
        raise ValueError(f"{name} is a DataLoader; give its dataset, and the batch size as the experiment's batch_size")
    if isinstance(given, IterableDataset):
        raise ValueError(
            f"{name} is an iterable dataset, whose samples have no numbers; give a map-style one, "
            "with __len__ and __getitem__"
        )
    data = _as_tensors(name, given, target)
    if isinstance(data, tuple) and len(data[0]) != len(data[1]):
        raise ValueError(
            f"{name} must be two tensors of the same length, inputs and targets, or a dataset; "
            f"{_shapes(data)} were given"
        )
    if isinstance(data, dict) and len({len(column) for column in data.values()}) > 1:
        raise ValueError(f"the columns of {name} must be of the same length; {_shapes(data.values())} were given")
    if not isinstance(data, tuple | dict) and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise ValueError(
            f"{name} must be (inputs, targets), a dictionary of columns or a dataset with __len__ and __getitem__, "
            f"{type(given).__name__} was given"
        )
    if length(data) == 0:
        raise ValueError(f"{name} has no samples")
    return data


def _as_tensors(name: str, given: Any, target: str) -> Any:
    if isinstance(given, tuple):
        if len(given) != 2 or not all(hasattr(one, "__array__") for one in given):
            raise ValueError(
                f"{name} must be two tensors of the same length, inputs and targets, or a dataset; "
                f"{_shapes(given)} were given"
            )
        return tuple(_tensor(name, one) for one in given)
    if _is_table(given):
        if target not in given.columns:
            raise ValueError(f"{name} has no column {target!r}; name the one to predict with target=")
        inputs = given.drop(columns=target)
        for column in inputs.columns:
            _check_numbers(f"column {column!r} of {name}", np.asarray(inputs[column]))
        return _tensor(name, inputs), _tensor(f"column {target!r} of {name}", given[target])
    if isinstance(given, Mapping):
        return {key: _tensor(f"{name}[{key!r}]", column) for key, column in given.items()}
    return given


def _is_table(given: Any) -> bool:
    """Is it a DataFrame of pandas? Asked without importing pandas."""
    return type(given).__module__.startswith("pandas") and hasattr(given, "columns")


def _tensor(name: str, given: Any) -> Tensor:
    if isinstance(given, Tensor):
        return given
    array = np.asarray(given)
    _check_numbers(name, array)
    kind = {"f": np.float32, "b": np.int64, "i": np.int64, "u": np.int64}[array.dtype.kind]
    keep = array.dtype == np.uint8  # bytes of images
    return torch.from_numpy(np.array(array, copy=True) if keep else array.astype(kind))


def _check_numbers(name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {array.dtype} values; turn them into numbers first")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"{name} has missing values (NaN); fill them in, or leave their samples out, first")


def _shapes(given: Any) -> str:
    return " and ".join(f"{type(one).__name__} {tuple(getattr(one, 'shape', ()))}" for one in given)


def is_sample(given: Any) -> bool:
    """Is it one sample, (input, class) or a dictionary with a class, rather than a data set?"""
    values = given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple) else ()
    return any(np.ndim(value) == 0 for value in values if not isinstance(value, str))


def length(data: Data) -> int:
    if isinstance(data, tuple):
        return len(data[0])
    if isinstance(data, dict):
        return len(next(iter(data.values()))) if data else 0
    return len(data)


def is_in_tensors(data: Data) -> bool:
    """Are all samples in tensors, so that nothing is random in them?"""
    return isinstance(data, tuple | dict)


def fetch(data: Data, samples: Samples, collate: Collate | None) -> Batch:
    """A minibatch."""
    if isinstance(data, tuple | dict):
        index = torch.from_numpy(samples)
        flat = index.flatten()
        columns = data if isinstance(data, tuple) else data.values()
        found = [one.index_select(0, flat).view(*index.shape, *one.shape[1:]) for one in columns]
        return tuple(found) if isinstance(data, tuple) else dict(zip(data, found, strict=True))
    return (collate or default_collate)([data[int(i)] for i in samples])


def map_batch(change: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """A batch with every tensor in it changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: map_batch(change, value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(map_batch(change, value) for value in batch)
    return batch


def part(data: Data, samples: Samples) -> Data:
    """Some of the samples."""
    index = torch.from_numpy(samples)
    if isinstance(data, tuple):
        return data[0][index], data[1][index]
    if isinstance(data, dict):
        return {key: column[index] for key, column in data.items()}
    return Subset(data, samples.tolist())


def joined(parts: Sequence[Data]) -> Data:
    """The samples of all, one after the other."""
    if all(isinstance(one, tuple) for one in parts):
        inputs, targets = zip(*parts, strict=True)
        return torch.cat(inputs), torch.cat(targets)
    if all(isinstance(one, dict) for one in parts):
        return {key: torch.cat([one[key] for one in parts]) for key in parts[0]}
    if any(isinstance(one, tuple | dict) for one in parts):
        raise ValueError("train has tensors for some nodes and datasets for others; give all of one kind")
    return ConcatDataset(parts)


def targets_at_hand(data: Data, target: str) -> Tensor | None:
    """All targets as the loss will see them, if no sample has to be read for them."""
    whole: Any = data
    while isinstance(whole, Subset):
        whole = whole.dataset
    kept = hasattr(whole, "targets") and getattr(whole, "target_transform", None) is None
    if not (kept or isinstance(whole, tuple | dict | TensorDataset)):
        return None
    try:
        return _targets(data, target)
    except (TypeError, ValueError, KeyError):
        return None  # not numbers


def labels(data: Data, target: str) -> NDArray[np.int64] | None:
    """The targets, if they are classes."""
    try:
        targets = _targets(data, target)
    except (TypeError, ValueError, KeyError):
        return None  # not numbers, so only partitions that need no labels will do
    return None if targets.is_floating_point() or targets.ndim != 1 else targets.numpy().astype(np.int64)


def _targets(data: Data, target: str) -> Tensor:
    if isinstance(data, tuple | dict):
        targets: Tensor = data[1] if isinstance(data, tuple) else data[target]
        return targets
    if isinstance(data, TensorDataset):
        return data.tensors[1]
    if isinstance(data, Subset):
        return _targets(data.dataset, target)[torch.as_tensor(data.indices)]
    if isinstance(data, ConcatDataset):
        return torch.cat([_targets(one, target) for one in data.datasets])
    if hasattr(data, "targets"):  # as torchvision's data sets have it
        return torch.as_tensor(data.targets)
    return torch.as_tensor([_target_of(data[i], target) for i in range(length(data))])


def _target_of(sample: Any, target: str) -> Any:
    """Of one sample; Hugging Face's data sets call it label, and their collators labels."""
    if isinstance(sample, Mapping):
        return sample[target] if target in sample else sample["label"]
    return sample[1]
