"""A sweep as a TOML file: an experiment to start from, what is changed in all of them, and grids of what differs."""

from pathlib import Path
from typing import Any

import msgspec

from gossamer.experiments import toml
from gossamer.experiments.experiment import ExperimentError
from gossamer.experiments.grid import Axes, flattened, names_first


class SweepFile(msgspec.Struct, forbid_unknown_fields=True):
    """What such a file has."""

    base: str  # the name of a recipe, or an experiment file, from where this one is
    set: dict[str, Any] = {}  # settings of all
    grid: dict[str, Any] | list[dict[str, Any]] = {}  # the values of each key; of several grids all are taken
    seeds: int | list[int] = 1
    baseline: str | list[str] = []

    @property
    def grids(self) -> list[Axes]:
        """A value that is no list stands for itself."""
        tables = [self.grid] if isinstance(self.grid, dict) else self.grid
        found = [dict(flattened(table)) for table in tables]
        return [{k: v if isinstance(v, list) else [v] for k, v in axes.items()} for axes in found if axes]

    def apply_settings(self, document: toml.Document) -> None:
        """Names first, because a name empties its section."""
        for key, value in names_first(dict(flattened(self.set))):
            toml.assign(document, key, value)


def is_sweep_file(document: toml.Document) -> bool:
    """And not an experiment's?"""
    return "base" in document or "grid" in document


def load(path: Path) -> SweepFile:
    try:
        return msgspec.convert(toml.load(path), SweepFile)
    except msgspec.ValidationError as error:
        told = str(error).replace("Object", "it", 1)
        raise ExperimentError(f"{path}: {told}; a sweep file has base, set, grid, seeds and baseline") from error
