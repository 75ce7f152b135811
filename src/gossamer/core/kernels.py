"""Kernels, the hot loops that numba compiles: where compiled ones are kept, and that a user is told when it takes long.

Numba keeps them beside the source or, if that cannot be written, in the user's cache directory; NUMBA_CACHE_DIR names
another place. A service has neither. Then they go to a directory under the system's temporary one that only this user
can write, and if there is none they are compiled in every process anew. Whoever can write a cache can run code as its
user: a directory that is not safe is not used.
"""

import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

log = logging.getLogger(__name__)
config: Any = numba.config
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[Kernel], Kernel]:
    """`numba.njit`, with a place for its cache wherever this process runs."""

    def compiled(function: Kernel) -> Kernel:
        try:
            found: Any = numba.njit(**options)(function)
        except RuntimeError:  # numba has no place, and no other name for it
            if not config.CACHE_DIR or not _is_writable(Path(config.CACHE_DIR)):
                _keep_in(_private_directory())
            found = numba.njit(**options | {"cache": bool(config.CACHE_DIR)})(function)
        return cast(Kernel, found)

    return compiled


def cache_directory(kernel: Any) -> str | None:
    """Where a kernel is kept; None: nowhere."""
    found: str | None = kernel.stats.cache_path
    return found


def _keep_in(directory: str | None) -> None:
    """Tell numba, and processes that this one starts."""
    config.CACHE_DIR = directory or ""
    if directory is None:
        os.environ.pop("NUMBA_CACHE_DIR", None)
    else:
        os.environ["NUMBA_CACHE_DIR"] = directory


def _private_directory() -> str | None:
    """This user's own under the temporary directory, made if need be; None if it cannot be had, or is not safe."""
    with suppress(OSError):
        path = Path(tempfile.gettempdir()).resolve() / f"gossamer-kernels-{os.getuid()}"
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if is_private(path) and _is_writable(path):
            return str(path)
    return None


def is_private(path: Path) -> bool:
    """Is this a directory, and no link, that nobody but this user and root can write or put another in place of?"""
    found = path.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return own and all(_keeps_entries(parent.lstat()) for parent in path.parents)


def _keeps_entries(parent: os.stat_result) -> bool:
    """Can others not rename or remove what this user has in a directory?"""
    shared = parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(parent.st_mode) and parent.st_uid in (0, os.getuid()) and not shared


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


class Compilation(event.Listener):
    """Tells a user when this process begins to compile, because that takes long, and afterwards how long it took."""

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = log.warning  # on standard error, unless a program has set up its logging
        self.seconds = 0.0  # spent so far
        self._depth, self._began = 0, 0.0

    def on_start(self, started: event.Event) -> None:
        if self._depth == 0:
            self._began = time.monotonic()
            if self.seconds == 0:
                self.tell(_KEPT if cache_directory(started.data["dispatcher"]) else _NOT_KEPT)
        self._depth += 1

    def on_end(self, ended: event.Event) -> None:
        self._depth -= 1  # kernels compile those that they call
        if self._depth == 0:
            self.seconds += time.monotonic() - self._began

    def done(self) -> None:
        """Tell how long it took, if anything was compiled since the last time."""
        if self.seconds:
            self.tell(f"compiled kernels in {self.seconds:.0f} s")
            self.seconds = 0.0


_KEPT = "compiling kernels, once; this takes about a minute"
_NOT_KEPT = (
    "compiling kernels, for about a minute; they cannot be kept for the next start, since no directory for them is "
    "writable: NUMBA_CACHE_DIR names one"
)


compilation = Compilation()
cast(Any, event).register("numba:compile", compilation)
