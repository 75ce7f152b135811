"""The runs under a directory, and how far each has got."""

import os
from pathlib import Path
from typing import NamedTuple

from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import files, peer_metrics

MOST_RUNS, DEEPEST = 2000, 6


class Listed(NamedTuple):
    """A run, or what `gossamer up` made of a group."""

    name: str  # its path from the directory that is watched
    directory: Path
    algorithm: str
    task: str
    nodes: int
    seed: int
    round: int  # rounds that are complete
    rounds: int
    is_complete: bool
    changed: float  # when, in seconds since 1970

    @property
    def state(self) -> str:
        return "complete" if self.is_complete else f"round {self.round} of {self.rounds}"


def runs_under(root: Path) -> list[Listed]:
    """All runs under a directory, itself included; the one that changed last first."""
    found = [listed for directory in directories(root) if (listed := _listed(root, directory)) is not None]
    return sorted(found, key=lambda run: (-run.changed, run.name))


def directories(root: Path) -> list[Path]:
    """Of runs and of groups of peers; what is inside of one is a part of it."""
    found: list[Path] = []
    for path, inner, names in os.walk(root):
        if "experiment.toml" in names:
            found.append(Path(path))
        if "experiment.toml" in names or len(Path(path).relative_to(root).parts) >= DEEPEST:
            inner.clear()
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if len(found) >= MOST_RUNS:
            break
    return found


def parts(directory: Path) -> list[Path]:
    """The directories with metrics: the run's own, or those of all peers of a group."""
    return peer_metrics.directories(directory)


def _listed(root: Path, directory: Path) -> Listed | None:
    """None if what is there is not to be read as a run."""
    try:
        str(directory).encode()  # a name that is no text cannot be asked for
        document = files.read_document(directory)
        each = [part / "metrics.jsonl" for part in parts(directory)]
        return Listed(
            name=directory.relative_to(root).as_posix() if directory != root else directory.name,
            directory=directory,
            algorithm=str(document["algorithm"]["name"]),
            task=str(document["task"]["name"]),
            nodes=int(document["nodes"]),
            seed=int(document["seed"]),
            round=max(map(_last_round, each)),
            rounds=int(document["rounds"]),
            is_complete=all((path.parent / "result.json").exists() for path in each),
            changed=max((path.stat().st_mtime for path in each if path.exists()), default=0.0),
        )
    except (ExperimentError, OSError, KeyError, TypeError, ValueError):
        return None


def _last_round(metrics: Path) -> int:
    """The round of the last whole line; only the end of the file is read."""
    if not metrics.exists():
        return 0
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 200_000))
        lines = file.read().splitlines(keepends=True)
    rounds = (row["round"] for line in reversed(lines) if (row := files.row_of(line)) is not None)
    return int(next(rounds, 0))
