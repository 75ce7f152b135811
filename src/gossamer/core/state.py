"""States as flat dictionaries of tensors."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from gossamer.core.algorithm import State


def tensors_of(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a state with its path, such as "inner.x"."""
    for name, value in _fields(state, prefix).items():
        if isinstance(value, Tensor):
            yield prefix + name, value
        else:
            yield from tensors_of(value, f"{prefix}{name}.")


def map_tensors(state: State, change: Callable[[str, Tensor], Tensor], prefix: str = "") -> State:
    """The same state with every tensor replaced by change(path, tensor)."""
    changed = {
        name: change(prefix + name, value)
        if isinstance(value, Tensor)
        else map_tensors(value, change, f"{prefix}{name}.")
        for name, value in _fields(state, prefix).items()
    }
    return state._replace(**changed)


def _fields(state: State, prefix: str) -> dict[str, Any]:
    """What a state holds; ValueError if it is none."""
    if not hasattr(state, "_asdict"):
        given = f"{type(state).__name__} was given"
        if prefix:
            raise ValueError(f"{prefix[:-1]} of a state must be a tensor or another state, {given}")
        raise ValueError(f"init must return a NamedTuple, {given}")
    found: dict[str, Any] = state._asdict()
    return found


def rows_of(state: State, rows: slice) -> State:
    """Some nodes' part of a state: views, nothing is copied."""
    return map_tensors(state, lambda _, tensor: tensor[rows])


def write_back(state: State, rows: State) -> State:
    """Copy a state's tensors into those of `rows`, and return these; what lies there already is not copied."""
    targets = dict(tensors_of(rows))
    memory = {target.untyped_storage().data_ptr() for target in targets.values()}
    moving = {name: tensor for name, tensor in tensors_of(state) if not _same_memory(tensor, targets[name])}
    for name, tensor in moving.items():  # before anything is written: it may lie where another one is to go
        if tensor.untyped_storage().data_ptr() in memory:
            moving[name] = tensor.clone()
    for name, tensor in moving.items():
        targets[name].copy_(tensor)
    return rows


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride()
