"""States as flat dictionaries of tensors, and tensors that processes share."""

import mmap
from collections.abc import Callable, Iterator

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


def shared(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros that forked processes see and write together.

    Anonymous memory, because /dev/shm is 64 MB in many containers and torch's own sharing takes a file descriptor a
    tensor.
    """
    num_bytes = dtype.itemsize
    for length in shape:
        num_bytes *= length
    return torch.frombuffer(mmap.mmap(-1, max(1, num_bytes)), dtype=torch.uint8)[:num_bytes].view(dtype).view(shape)
