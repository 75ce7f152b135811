"""The files of a run's directory: JSON lines that grow, and files that are replaced as a whole."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError

Row = dict[str, Any]


def read_document(directory: Path) -> toml.Document:
    """The experiment that a directory is of, as its file says it."""
    if not (directory / "experiment.toml").is_file():
        raise ExperimentError(f"{directory} is not a run: it has no experiment.toml; gossamer run makes one")
    return toml.load(directory / "experiment.toml")


def experiment_of(document: toml.Document) -> Experiment | None:
    """The experiment that a document describes; None if it names classes of the user's own."""
    try:
        return toml.read(document, begun=True)
    except toml.UnknownNameError:
        return None


def lines(rows: list[Row]) -> bytes:
    return b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def append(path: Path, rows: list[Row]) -> None:
    with path.open("ab") as file:
        file.write(lines(rows))


def read_lines(path: Path) -> list[Row]:
    """The rows of a file of JSON lines, if there is one, without the row that was being written when a process died."""
    if not path.exists():
        return []
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError as error:
        damaged(path, error)
    if not all(isinstance(row, dict) and type(row.get("round")) is int for row in rows):
        damaged(path, "a line is not that of a round")
    return rows


def damaged(path: Path, reason: object, advice: str = "start the run again") -> NoReturn:
    raise ExperimentError(f"{path} is damaged ({reason}); {advice}")


def replace(path: Path, content: bytes) -> None:
    """Write a whole file."""
    with replacing(path) as partial:
        partial.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that then takes the place of the one at `path`, which until then stays as it is."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        to_disk(partial)
        os.replace(partial, path)
        to_disk(path.parent)  # the new name, too
    finally:
        partial.unlink(missing_ok=True)


def to_disk(path: Path) -> None:
    """Wait until what was written to a file or directory survives a power loss."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows does not open directories
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
