"""States as flat dictionaries of tensors, and tensors that processes share."""

import mmap
import os
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import torch
from torch import Tensor

from gossamer.core import State


def tensors_of(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a state with its path, such as "inner.x"."""
    for name, value in state._asdict().items():
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
        for name, value in state._asdict().items()
    }
    return state._replace(**changed)


def rows_of(state: State, rows: slice) -> State:
    """Some nodes' part of a state: views, nothing is copied."""
    return map_tensors(state, lambda _, tensor: tensor[rows])


def settle(state: State, home: State) -> State:
    """Move a state's tensors to where those of `home` lie, which become it; what is there already stays."""
    places = dict(tensors_of(home))
    memory = {place.untyped_storage().data_ptr() for place in places.values()}
    moving = {name: tensor for name, tensor in tensors_of(state) if not _same_place(tensor, places[name])}
    for name, tensor in moving.items():  # before anything is written: it may lie where another one is to go
        if tensor.untyped_storage().data_ptr() in memory:
            moving[name] = tensor.clone()
    for name, tensor in moving.items():
        places[name].copy_(tensor)
    return home


def _same_place(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride()


def shared(*shape: int, dtype: torch.dtype = torch.float32, scratch: Path | None = None) -> Tensor:
    """Zeros that forked processes see and write together: in memory, or in a file of the scratch directory.

    Anonymous memory, because /dev/shm is 64 MB in many containers and torch's own sharing takes a file descriptor a
    tensor. A file has no name, so it is gone when the processes are, whatever way they end; and its room is taken at
    once, because a disk that is found full later kills the process that writes.
    """
    num_bytes = max(1, prod(shape) * dtype.itemsize)
    if scratch is None:
        memory = mmap.mmap(-1, num_bytes)
    else:
        with TemporaryFile(dir=scratch) as file:
            _take_room(file, num_bytes)
            memory = mmap.mmap(file.fileno(), num_bytes)
    return torch.frombuffer(memory, dtype=torch.uint8)[: prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _take_room(file: IO[bytes], num_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, num_bytes)
        return
    for start in range(0, num_bytes, 1 << 20):
        file.write(bytes(min(1 << 20, num_bytes - start)))
    file.flush()
