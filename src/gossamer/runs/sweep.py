"""A sweep: several settings, each run with the same seeds, and the directory that keeps them.

    sweep.toml           the settings, as complete experiments, and the seeds
    NAME-seed-N/         a run's directory, for each setting and seed
    failures.json        runs that failed, and why
    report.html          tables and charts of all runs
    lock                 held by the process that carries it out

A run is complete when its directory has a result; nothing else says so.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomli_w

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import files
from gossamer.runs.run import Run, read_run

NAME = "sweep.toml"
_FAILURES = "failures.json"


class PlannedRun(NamedTuple):
    """A setting with a seed."""

    setting: str
    experiment: Experiment
    directory: Path

    @property
    def name(self) -> str:
        return f"{self.setting}, seed {self.experiment.seed}"

    @property
    def is_complete(self) -> bool:
        return (self.directory / "result.json").exists()


class Failure(msgspec.Struct):
    """Why a run has no result."""

    error: str
    final: bool  # it would fail again


@dataclass(frozen=True)
class Sweep:
    """What is to be run: settings by name, and seeds."""

    settings: Mapping[str, Experiment]
    seeds: Sequence[int]
    baseline: str | None = None  # the name of a setting
    folders: Mapping[str, str] = field(default_factory=dict)  # how the directories of each setting's runs begin

    def __post_init__(self) -> None:
        if not self.settings or not self.seeds:
            raise ExperimentError("a sweep needs at least one setting, and at least one seed")
        if twice := [seed for seed in self.seeds if list(self.seeds).count(seed) > 1]:
            raise ExperimentError(f"seed {twice[0]} was given twice; give each seed once")
        new = [name for name in self.settings if name not in self.folders]
        safe = [re.sub(r"[^\w.=-]+", "-", name).strip("-.")[:80] or "setting" for name in new]
        known = [*self.folders.values()]
        folders = {**self.folders, **dict(zip(new, distinct([*known, *safe])[len(known) :], strict=True))}
        object.__setattr__(self, "folders", folders)

    def runs(self, directory: Path) -> Iterator[PlannedRun]:
        """Setting by setting, each with all seeds."""
        for name, experiment in self.settings.items():
            for seed in self.seeds:
                yield PlannedRun(name, replace(experiment, seed=seed), directory / f"{self.folders[name]}-seed-{seed}")

    def documents(self) -> dict[str, toml.Document]:
        """The settings as their files say them."""
        return {name: toml.write(experiment) for name, experiment in self.settings.items()}

    def write(self, directory: Path) -> None:
        """Into the directory, as TOML."""
        told: dict[str, Any] = {"seeds": list(self.seeds)}
        if self.baseline is not None:
            told["baseline"] = self.baseline
        documents = self.documents().items()
        told["settings"] = [{"name": n, "folder": self.folders[n], "experiment": d} for n, d in documents]
        files.replace(directory / NAME, tomli_w.dumps(told).encode())

    def after(self, directory: Path) -> "Sweep":
        """This sweep where the one in a directory was begun, of which it must have everything."""
        old = _Description.read(directory)
        documents = self.documents()
        for setting in old.settings:
            changed = toml.differences(setting.experiment, documents.get(setting.name, {}))
            if set(changed) - {"seed"}:
                _another(directory, f"{setting.name} is not in this one, or is another experiment")
        if not {*old.seeds} <= {*self.seeds}:
            _another(directory, f"that one has the seeds {', '.join(map(str, old.seeds))}")
        return replace(self, folders={setting.name: setting.folder for setting in old.settings})


class _Setting(msgspec.Struct):
    name: str
    folder: str
    experiment: toml.Document


class _Description(msgspec.Struct):
    """What stands in sweep.toml."""

    seeds: list[int]
    settings: list[_Setting]
    baseline: str | None = None

    @classmethod
    def read(cls, directory: Path) -> "_Description":
        try:
            found = msgspec.convert(toml.load(directory / NAME), cls)
        except msgspec.ValidationError as error:
            files.damaged(directory / NAME, error, "start the sweep again in another directory")
        for setting in found.settings:
            if Path(setting.folder).name != setting.folder:
                files.damaged(directory / NAME, f"folder {setting.folder!r}", "a folder is a name, not a path")
        return found


def is_sweep(directory: Path) -> bool:
    return (directory / NAME).is_file()


def read(directory: Path) -> Sweep:
    """The sweep that was begun in a directory."""
    found = _Description.read(directory)
    try:
        settings = {setting.name: toml.read(setting.experiment, begun=True) for setting in found.settings}
    except toml.UnknownNameError as error:
        raise ExperimentError(
            f"{directory / NAME} names a class of your own ({error}); carry on from Python with gossamer.sweep"
        ) from error
    folders = {setting.name: setting.folder for setting in found.settings}
    return Sweep(settings, found.seeds, found.baseline, folders)


def complete_runs(directory: Path) -> dict[str, list[Run]]:
    """Those of each setting, if there are any."""
    found = _Description.read(directory)
    groups = {}
    for setting in found.settings:
        places = [directory / f"{setting.folder}-seed-{seed}" for seed in found.seeds]
        runs = [read_run(place, None) for place in places if (place / "result.json").exists()]
        if runs:
            groups[setting.name] = runs
    return groups


def read_failures(directory: Path) -> dict[str, Failure]:
    """By the names of the runs' directories."""
    path = directory / _FAILURES
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Failure]) if path.exists() else {}
    except msgspec.MsgspecError as error:
        files.damaged(path, error, "remove it; the runs that it names are tried again")


def write_failures(directory: Path, failures: Mapping[str, Failure]) -> None:
    told = {name: msgspec.to_builtins(failure) for name, failure in failures.items()}
    files.replace(directory / _FAILURES, json.dumps(told, indent=2).encode() + b"\n")


def _another(directory: Path, why: str) -> None:
    raise ExperimentError(f"{directory} has another sweep: {why}; name a new directory")


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that an earlier one has already."""
    found: list[str] = []
    for name in names:
        free, number = name, 1
        while free in found:
            number += 1
            free = f"{name}-{number}"
        found.append(free)
    return found
