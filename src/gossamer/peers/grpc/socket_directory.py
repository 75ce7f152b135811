"""A directory for a local socket: nobody else on this machine can connect, and what killed processes left is removed.

It is under the temporary directory, because the path of a socket must be short. Its process holds a lock on it, which
the system takes away however the process ends.
"""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

try:
    import fcntl
except ImportError:  # pragma: no cover - on Windows, where no such sockets are used
    fcntl = None  # type: ignore[assignment]

PREFIX = "gossamer-socket-"
LEAST_AGE_SECONDS = 60.0  # by then whoever makes one has locked it


class SocketDirectory:
    """Of mode 700, for one socket."""

    def __init__(self) -> None:
        remove_stale()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        rmtree(self.path, ignore_errors=True)
        held, self._lock = self._lock, -1
        if held >= 0:  # a number that was closed may be something else's by now
            os.close(held)


def remove_stale() -> None:
    """Those of this user that no process holds."""
    with suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
            with suppress(OSError):  # another user's, gone meanwhile, or held
                _remove_if_stale(path)


def _remove_if_stale(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and time.time() - found.st_mtime > LEAST_AGE_SECONDS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(path)
    finally:
        os.close(descriptor)
