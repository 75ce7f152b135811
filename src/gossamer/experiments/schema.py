"""The JSON Schema of experiment files, for editors: made from the same dataclasses that files are read into.

It knows keys, names, types and defaults. Ranges, and what goes together, are checked when an experiment is read.
"""

import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, Wire
from gossamer.experiments.tables import DEFAULT_NAMES, TABLES

Schema = dict[str, Any]

_COMMENT = re.compile(r"^    (\w+):.*?  # (?!noqa|type:)(.*)$", re.MULTILINE)


def schema() -> Schema:
    """What an experiment file may hold."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A Gossamer experiment"}
    return dialect | _section(Experiment) | {"$defs": {kind.__name__: _choice(kind) for kind in TABLES}}


def _choice(kind: type) -> Schema:
    """One of a table's classes by its name: a section with its settings or, where it needs none, the name alone."""
    table = TABLES[kind]
    alone = [name for name, named in table.items() if not _needed(named)]
    sections = [_section(named, name, name == DEFAULT_NAMES.get(kind)) for name, named in table.items()]
    return {"anyOf": [{"enum": alone}, *sections]}


def _section(kind: type, name: str | None = None, is_default: bool = False) -> Schema:
    """The fields of a dataclass, and the name that it has in its table, which may be left out if it is the default."""
    hints, comments = get_type_hints(kind), _comments(kind)
    properties: Schema = {} if name is None else {"name": {"const": name}}
    for f in fields(kind):
        properties[f.name] = _value(hints[f.name])
        if f.name in comments:
            properties[f.name] |= {"description": comments[f.name]}
        if f.default not in (MISSING, None) and (default := toml.described(hints[f.name], f.default)) is not None:
            properties[f.name] |= {"default": default}
    required = [*["name"] * (name is not None and not is_default), *_needed(kind)]
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _value(hint: Any) -> Schema:
    """What may stand behind a key; `toml.read` goes by the same types."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if get_origin(hint) in (Union, UnionType) else []
    if len(kinds) > 1 and any(kind in TABLES for kind in kinds):
        return {"anyOf": [_value(kind) for kind in kinds]}
    hint = toml.given(hint)
    if hint in TABLES:
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if is_dataclass(hint):
        assert isinstance(hint, type)
        section = _section(hint)
        return {"anyOf": [section["properties"]["mode"], section]} if hint is Wire else section
    if get_origin(hint) is tuple and get_args(hint)[0] in TABLES:
        return {"type": "array", "items": _value(get_args(hint)[0])}
    if NoneType in get_args(hint):  # TOML cannot say none: the key is left out
        hint = Union[tuple(kind for kind in get_args(hint) if kind is not NoneType)]  # noqa: UP007
    return msgspec.json.schema(hint)


def _needed(kind: type) -> list[str]:
    return [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]


@cache
def _comments(kind: type) -> dict[str, str]:
    """What the comments behind the fields of a dataclass say."""
    found: dict[str, str] = {}
    for one in reversed([one for one in kind.__mro__ if is_dataclass(one)]):
        found |= dict(_COMMENT.findall(inspect.getsource(one)))
    return found
