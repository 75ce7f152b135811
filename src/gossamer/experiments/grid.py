"""Many experiments from one: every combination of some settings' values."""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError

Axes = Mapping[str, Sequence[Any]]  # the values of each key
Combination = dict[str, Any]  # one value for each key
_OWN = {"seed": "the seeds of a sweep are given apart, by --seeds", "name": "it makes no difference to a run"}


def grid(base: Experiment, axes: Axes | Sequence[Axes], skip_invalid: bool = False) -> dict[str, Experiment]:
    """Every combination of values of these keys, as experiments by what tells them apart.

    Keys are as in an experiment file: `grid(base, {"algorithm.name": ["jwins", "silk"], "local_steps": [1, 3]})` gives
    "jwins, local_steps=1" and three more. Of a list of such grids all are taken. A name empties its section first, as
    in `--set`. Combinations that cannot work are refused, or with `skip_invalid` left out.
    """
    document = toml.write(base)
    if not _can_be_told(base, document):
        raise ExperimentError("grid changes an experiment as its file says it, and this one has classes of your own")
    return experiments(document, [axes] if isinstance(axes, Mapping) else axes, skip_invalid)


def _can_be_told(experiment: Experiment, document: toml.Document) -> bool:
    try:
        return toml.read(document) == experiment
    except ValueError:
        return False


def experiments(base: toml.Document, grids: Sequence[Axes], skip_invalid: bool = False) -> dict[str, Experiment]:
    """Those of every combination in one of the grids, by name; with no grid, the base itself."""
    found: dict[str, Experiment] = {}
    combinations = [combination for axes in grids for combination in _combinations(axes)] or [{}]
    keys = {key for combination in combinations for key in combination}
    for combination in combinations:
        name = name_of(combination, keys) if combination else str(base.get("name"))
        try:
            experiment = _experiment(base, combination)
            if same := [other for other, known in found.items() if known == experiment]:
                raise ExperimentError(f"it is the same experiment as {same[0]}")
        except ExperimentError as error:
            if not skip_invalid:
                refuse(_told(combination) or name, error)
            continue
        found[name if name not in found else _told(combination)] = experiment
    if not found:
        raise ExperimentError("no combination of the grid is left; leave --skip-invalid out to be told why")
    return found


def refuse(name: str, error: ExperimentError) -> None:
    """Tell which setting cannot work, and why."""
    raise ExperimentError(f"{name}: {error}; --skip-invalid leaves such settings out") from error


def parse(option: str) -> tuple[str, list[Any]]:
    """Key and values of an option such as "algorithm.budget=0.1,0.2"; each value is TOML, or a bare word."""
    key, equals, text = option.partition("=")
    values = [value.strip() for value in _split(text)]
    if not equals or not all(part.strip() for part in key.split(".")) or not all(values) or "\n" in option:
        told = " ".join(option.split())
        raise ExperimentError(f"--grid {told}: write it as key=value,value,... such as algorithm.budget=0.1,0.2")
    return key.strip(), [toml.value_of(value) for value in values]


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a table and those inside it, such as "algorithm.budget", and their values."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def name_of(combination: Combination, keys: Iterable[str]) -> str:
    """A short name: of each of these keys its last word, where no other has the same, and its value; of names the
    value alone."""
    last = [key.rpartition(".")[2] for key in keys]

    def told(key: str, value: Any) -> str:
        word = key.rpartition(".")[2]
        if word == "name" or (isinstance(value, str | dict) and "." not in key):
            return text_of(value)
        return f"{word if last.count(word) == 1 else key}={text_of(value)}"

    return ", ".join(told(key, value) for key, value in combination.items())


def text_of(value: Any) -> str:
    """A value as one would write it, without quotes; of a section its name, and the rest in brackets."""
    if isinstance(value, dict):
        rest = ", ".join(f"{key}={text_of(item)}" for key, item in value.items() if key != "name")
        return f"{value.get('name', '')}({rest})" if rest else str(value.get("name", "{}"))
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _combinations(axes: Axes) -> list[Combination]:
    for key, values in axes.items():
        if key in _OWN:
            raise ExperimentError(f"{key}: a grid has none, since {_OWN[key]}")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ExperimentError(f"{key}: {values!r} was given, a list of values is needed")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _experiment(base: toml.Document, combination: Combination) -> Experiment:
    document = copy.deepcopy(base)
    for key, value in names_first(combination):
        toml.assign(document, key, copy.deepcopy(value))
    return toml.read(document)


def names_first(combination: Combination) -> list[tuple[str, Any]]:
    """In an order in which no name clears what was set before it."""
    return sorted(combination.items(), key=lambda item: (item[0].count("."), item[0].rpartition(".")[2] != "name"))


def _told(combination: Combination) -> str:
    return ", ".join(f"{key}={text_of(value)}" for key, value in combination.items())


def _split(text: str) -> list[str]:
    """At the commas that are in no quotes or brackets."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
