"""Experiments as TOML documents, in and out. Every mistake is one sentence that names the key and what would work."""

import os
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import reduce
from math import isfinite
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import tomli_w

from gossamer.experiments.experiment import Experiment, Wire
from gossamer.experiments.tables import DEFAULT_NAMES, OLD_NAMES, TABLES, ExperimentError, named, words
from gossamer.graphs.clock import Clock
from gossamer.models.norms import GROUPED

Document = dict[str, Any]

RETIRED = {"wire.index_coding": ("auto", "the range coder was removed; leave the key out")}  # key: what it may be, why
ADDED = {
    "note": "",
    "exchanges": 1,
    "settle": 0,
    "asynchronous": False,
    "faults.slow": [],
    "task.model.groups": 2,
    "task.model.zero_init_residual": False,
    "task.model.biases": True,
    "task.model.start": 0.0,
    "task.model.every_step": False,
    "task.pixels": "centred",
    "task.size": 32,
    "task.numbers": [],
    "task.words": [],
    "task.classes": [],
    "optimizer.name": "sgd",
    "optimizer.schedule_per": "round",
    "optimizer.clip": 0.0,
    "optimizer.accumulate": 1,
    "optimizer.schedule.warmup": 0,
    "algorithm.compressor.count_sign": True,
    "algorithm.compressor.then.count_sign": True,
    "evaluation.personal": False,
}  # keys that earlier versions did not have, and what they stood for


class UnknownNameError(ExperimentError):
    """A name that no table has: a mistake, or a class of the user's own, which only Python can give."""


def read(document: Document, begun: bool = False) -> Experiment:
    """The experiment that a document describes; of a run that was `begun`, with whatever settings there were then."""
    if not begun:
        refuse_retired(document)
    experiment = _read_table(Experiment, document, "", "an experiment")
    assert isinstance(experiment, Experiment)
    return experiment


def write(experiment: Experiment) -> Document:
    """The document that describes an experiment; of classes of the user's own, what can be told."""
    document = described(Experiment, experiment)
    assert isinstance(document, dict)
    return document


def load(path: Path) -> Document:
    """The document in a file."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise ExperimentError(f"{path} is not a TOML file: {error}") from error


def read_experiment(path: str | os.PathLike[str]) -> Experiment:
    """The experiment in a TOML file."""
    return read(load(Path(path)))


def dumps(experiment: Experiment) -> str:
    """The text of an experiment file."""
    return tomli_w.dumps(write(experiment))


def change(document: Document, setting: str) -> None:
    """Apply a setting such as "algorithm.budget=0.2", as `assign` does."""
    path, equals, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys) or "\n" in setting:
        told = " ".join(setting.split())
        raise ExperimentError(f"--set {told}: write it as one key=value, such as algorithm.budget=0.2")
    assign(document, path, value_of(text))


def value_of(text: str) -> Any:
    """A value as one writes it in TOML; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def assign(document: Document, path: str, value: Any) -> None:
    """Put a value under a key such as "algorithm.budget". A new name clears the settings of the old one."""
    keys = [key.strip() for key in path.split(".")]
    table = document
    for depth, key in enumerate(keys[:-1]):
        inner = table.setdefault(key, {})
        if isinstance(inner, str):
            inner = table[key] = {"name": inner}
        if not isinstance(inner, dict):
            raise ExperimentError(f"{path}: {'.'.join(keys[: depth + 1])} is a value, not a section")
        table = inner
    if keys[-1] == "name" and len(keys) > 1 and table.get("name") != value:
        table.clear()
    table[keys[-1]] = value


def look_up(document: Document, path: str) -> Any:
    """The value under a key such as "algorithm.budget"; None if there is none."""
    value: Any = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def differences(old: Document, new: Document, prefix: str = "") -> list[str]:
    """The keys whose values differ, whichever version of Gossamer wrote them."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        if prefix + key in RETIRED:
            continue
        a, b = (document.get(key, ADDED.get(prefix + key)) for document in (old, new))
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b and not (key == "name" and _today(a) == _today(b)):
            found.append(prefix + key)
    return found


def _today(name: Any) -> Any:
    """The name of today for one that may be an earlier version's."""
    return OLD_NAMES.get(name, name)


def given(hint: Any, is_plain: bool = False) -> Any:
    """Of an optional topology, compressor, ..., the type that it has if it is given, and of "a number or a
    distribution" the one or the other; of all else, the type."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    plain = [kind for kind in kinds if kind not in TABLES]
    if not plain or len(plain) == len(kinds):
        return kinds[0] if not plain else hint
    return reduce(or_, plain) if is_plain else next(kind for kind in kinds if kind in TABLES)


def _read(hint: Any, value: Any, path: str) -> Any:
    hint = given(hint, not isinstance(value, (str, dict)))
    if hint in TABLES:
        return read_named(hint, value, path)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        if hint is Wire and isinstance(value, str):
            value = {"mode": value}
        return _read_table(hint, value, path, path)
    if get_origin(hint) is tuple and get_args(hint)[0] in TABLES:
        if not isinstance(value, list):
            raise ExperimentError(f"{path}: {value!r} was given, a list is needed")
        return tuple(_read(get_args(hint)[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    _check_finite(value, path)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{path}: {value!r} was given, it must be {words(hint)}") from error


def _check_finite(value: Any, path: str) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ExperimentError(f"{path}: {value!r} was given, it must be a finite number")
    if isinstance(value, list):
        for i, item in enumerate(value):
            _check_finite(item, f"{path}[{i}]")


def read_named(hint: type, value: Any, path: str) -> Any:
    """What a name and its settings stand for, such as an algorithm or a model; `path` is where they were found."""
    table = TABLES[hint]
    given = {"name": value} if isinstance(value, str) else value
    if isinstance(given, dict) and hint in DEFAULT_NAMES:
        given = {"name": DEFAULT_NAMES[hint], **given}
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ExperimentError(f"{path}: a name is needed, one of {', '.join(table)}")
    name = _today(given["name"])
    if name not in table:
        raise UnknownNameError(f"{path}.name: there is no {name!r}{guess(name, table)}; take one of {', '.join(table)}")
    rest = {key: item for key, item in given.items() if key != "name"}
    return _read_table(table[name], rest, path, repr(name))


def _read_table(kind: type, value: Any, path: str, what: str) -> Any:
    if not isinstance(value, dict):
        raise ExperimentError(f"{path}: {value!r} was given, a section is needed")
    dot = f"{path}." if path else ""
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}
    value = {key: item for key, item in value.items() if dot + key not in RETIRED}
    for key in value:
        if key not in known:
            takes = f"{what} takes {', '.join(known)}" if known else f"{what} takes none"
            meant = guess(key, known) or _elsewhere(key, hints, value)
            raise ExperimentError(f"{dot}{key}: there is no such key{meant}; {takes}")
    for key, f in known.items():
        if key not in value and f.default is MISSING and f.default_factory is MISSING:
            raise ExperimentError(f"{dot}{key}: {what} needs it; it must be {words(hints[key])}")
    arguments = {key: _read(hints[key], item, dot + key) for key, item in value.items()}
    try:
        return kind(**arguments)
    except ExperimentError:
        raise
    except ValueError as error:
        first = str(error).split()[0]
        raise ExperimentError(f"{dot}{error}" if first in known else f"{path}: {error}") from error


def with_old_groups(document: Document) -> Document:
    """The document of a run that has begun. Before there was a number of groups, norms had groups of two channels;
    such a model gets 0 of them, so that the run can be opened and no other network is built from its weights."""
    model = look_up(document, "task.model")
    if not isinstance(model, dict) or "groups" in model or model.get("norm") not in GROUPED:
        return document
    if (model["name"], model["norm"]) == ("gn-lenet", "group"):  # had two groups
        return document
    return document | {"task": document["task"] | {"model": model | {"groups": 0}}}


def refuse_retired(document: Document) -> None:
    """Old files may say what is always so now, and nothing else."""
    for path, (allowed, why) in RETIRED.items():
        if look_up(document, path) not in (allowed, None):
            raise ExperimentError(f"{path}: {look_up(document, path)!r} was given, and {why}")


def guess(word: str, known: Iterable[str]) -> str:
    """(did you mean ...?), if a known word is close."""
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _elsewhere(key: str, hints: dict[str, Any], value: Document) -> str:
    """(did you mean ...?), if a section beside a key that does not exist has it."""
    for section, inner in value.items():
        kind, name = given(hints.get(section)), inner.get("name") if isinstance(inner, dict) else inner
        kind = TABLES[kind].get(str(name)) if kind in TABLES else kind
        if is_dataclass(kind) and key in {f.name for f in fields(kind)}:
            return f" (did you mean {section}.{key}?)"
    return ""


def described(hint: Any, value: Any) -> Any:
    """A setting of this type as a document has it; None if no document can say it."""
    hint = given(hint, isinstance(value, (int, float, tuple, list)))
    if value is not None and (is_dataclass(value) or hint in TABLES):
        hints = get_type_hints(type(value))
        keys = [f.name for f in fields(value)] if is_dataclass(value) and not isinstance(value, type) else []
        found = {key: described(hints[key], getattr(value, key)) for key in keys}
        told = {key: item for key, item in found.items() if item is not None}
        return {"name": named(value), **told} if hint in TABLES else told
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        of = (get_args(hint) or (None,))[0]
        return [item for item in (described(of, each) for each in value) if item is not None]
    return None  # a module, a tensor, a function: only Python can say it


ADDED["clock"] = described(Clock, Clock())
