"""Memory that processes share, for tensors."""

import mmap
import os
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import torch
from torch import Tensor


class Memory:
    """Where tensors lie that processes see and write together: in memory, in a file each, or all in one file.

    Anonymous memory, because /dev/shm is 64 MB in many containers; forked processes have it in common. Files have no
    names, so they are gone when the tensors and the processes are, whatever way they end; and their room is taken at
    once, because a disk that is found full later kills the process that writes. A process that was not forked is given
    the one open file, asks for the same tensors in the same order, and finds them; that file is there as long as any of
    them.
    """

    def __init__(self, file: IO[bytes] | None = None, is_new: bool = True, directory: Path | None = None):
        self.file = file
        self._is_new = is_new
        self._directory = directory
        self._end = 0

    @classmethod
    def in_a_file(cls, directory: str | os.PathLike[str]) -> "Memory":
        return cls(TemporaryFile(dir=Path(directory)))

    @classmethod
    def in_files(cls, directory: str | os.PathLike[str]) -> "Memory":
        return cls(directory=Path(directory))

    def close(self) -> None:
        """Take no more; the tensors stay."""
        if self.file is not None:
            self.file.close()

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor; zeros, unless the memory is another process's."""
        num_bytes = prod(shape) * dtype.itemsize
        return torch.frombuffer(self._mapped(max(1, num_bytes)), dtype=torch.uint8)[:num_bytes].view(dtype).view(shape)

    def rows(self, number: int, row: Tensor) -> Tensor:
        """So many rows like this one, (1, ...), unless the memory is another process's."""
        tensor = self.zeros(number, *row.shape[1:], dtype=row.dtype)
        return tensor.copy_(row) if self._is_new else tensor

    def _mapped(self, num_bytes: int) -> mmap.mmap:
        if self._directory is not None:
            with TemporaryFile(dir=self._directory) as file:
                _take_room(file, 0, num_bytes)
                return mmap.mmap(file.fileno(), num_bytes)
        if self.file is None:
            return mmap.mmap(-1, num_bytes)
        start, pages = self._end, -(-num_bytes // mmap.ALLOCATIONGRANULARITY)
        if self._is_new:
            _take_room(self.file, start, num_bytes)
        self._end = start + pages * mmap.ALLOCATIONGRANULARITY
        return mmap.mmap(self.file.fileno(), num_bytes, offset=start)


def _take_room(file: IO[bytes], start: int, num_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), start, num_bytes)
        return
    file.seek(start)
    for written in range(0, num_bytes, 1 << 20):
        file.write(bytes(min(1 << 20, num_bytes - written)))
    file.flush()
