"""The files of a run's directory: JSON lines that grow, files that are replaced as a whole, and the lock."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

Row = dict[str, Any]
LOCK = "lock"  # an empty file, which stays
_IN_USE = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # the last two on Windows
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_locks: set[int] = set()  # descriptors that this process holds


def read_document(directory: Path) -> toml.Document:
    """The experiment that a directory is of, as its file says it."""
    if not (directory / "experiment.toml").is_file():
        raise ExperimentError(f"{directory} is not a run: it has no experiment.toml; gossamer run makes one")
    return toml.with_old_groups(toml.load(directory / "experiment.toml"))


def experiment_of(document: toml.Document) -> Experiment | None:
    """The experiment that a document describes; None if it names classes of the user's own."""
    try:
        return toml.read(document, begun=True)
    except toml.UnknownNameError:
        return None


def lines(rows: list[Row]) -> bytes:
    return b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def append(path: Path, rows: list[Row]) -> None:
    """Write all of the rows or, where that fails, as on a full disk, none."""
    content = lines(rows)
    with _naming(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(before)
            raise


def read_lines(path: Path, through: float = inf, strict: bool = True) -> list[Row]:
    """The rows of a file of JSON lines, if there is one, as far as they are of rounds up to `through`.

    What a crash or a full disk has left after them is passed over. A line among them that is no row is damage; if not
    `strict`, it is passed over, too.
    """
    rows: list[Row] = []
    unreadable = False
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        row = row_of(line)
        if row is None:
            unreadable = True
        elif row["round"] <= through:
            if unreadable and strict:
                damaged(path, "a line is not that of a round")
            rows.append(row)
    return rows


def row_of(line: bytes) -> Row | None:
    """The row in a line; None if it is not whole, or none."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) and type(row.get("round")) is int else None


def damaged(path: Path, reason: object, advice: str = "start the run again") -> NoReturn:
    raise ExperimentError(f"{path} is damaged ({reason}); {advice}")


def replace(path: Path, content: bytes, private: bool = False) -> None:
    """Write a whole file."""
    with replacing(path, private) as partial:
        partial.write_bytes(content)


@contextmanager
def replacing(path: Path, private: bool = False) -> Iterator[Path]:
    """Where to write a file that then takes the place of the one at `path`, which until then stays as it is.

    A private one can be read by nobody else; others are as the process's umask has it.
    """
    partial = path.with_name(path.name + ".partial")
    with _naming(path):
        try:
            partial.unlink(missing_ok=True)
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
            yield partial
            to_disk(partial)
            os.replace(partial, path)
            to_disk(path.parent)  # the new name, too
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What the system says about a file with the name of the file, which it leaves out of errors in writing."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep every other process and thread from running in a directory meanwhile; ExperimentError if one does.

    The system takes the lock away when the process ends, whatever way that is. Forked workers must not keep it, so they
    close their copies. (A lock by fcntl has no copies, but does not keep threads of one process apart.)
    """
    path = directory / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # who can open it can lock it
    except OSError as error:
        raise ExperimentError(
            f"{path} cannot be made: {error.strerror}; mend that, or name another directory"
        ) from None
    _locks.add(descriptor)
    try:
        _lock(descriptor, directory)
        yield
    finally:
        if descriptor in _locks:  # else it is a child's
            _locks.remove(descriptor)
            os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _IN_USE:
            raise ExperimentError(
                f"{directory} is in use by another process; wait until that has ended, or name another directory"
            ) from None
        if error.errno not in _WITHOUT_LOCKS:  # some network file systems have none
            raise ExperimentError(
                f"{directory / LOCK} cannot be locked: {error.strerror}; mend that, or name another directory"
            ) from None


def _close_locks() -> None:
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks)


def to_disk(path: Path) -> None:
    """Wait until what was written to a file or directory survives a power loss."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows does not open directories
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
