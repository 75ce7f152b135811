"""Shell completion: recipes, and the keys and values of `--set`.

What there is to complete is kept in a file of the user's cache, because to import all recipes and algorithms takes
seconds. It is made anew when a file of the package has changed.
"""

import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from gossamer import __version__

Schema = dict[str, Any]
SHELLS = ["bash", "zsh", "fish"]
_PACKAGE = Path(__file__).parents[1]
# A value follows the = of a setting, so bash must not put a space there.
_NO_SPACE_BEHIND_KEYS = """
_gossamer_words() {
    _gossamer_completion "$@"
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _gossamer_words gossamer
"""


def script(cli: click.Command, shell: str) -> str:
    """What a shell must read to complete the words of `gossamer`: click's script."""
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(cli, {}, "gossamer", "_GOSSAMER_COMPLETE").source()
    return source + _NO_SPACE_BEHIND_KEYS if shell == "bash" else source


def complete_experiment(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
    """Files and recipes."""
    files = CompletionItem(word, type="file")  # first: bash forgets what comes before it
    return [files, *complete_recipe(context, parameter, word)]


def complete_recipe(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
    """Recipes."""
    known = _vocabulary()["recipes"]
    return [CompletionItem(name, help=recipe["help"]) for name, recipe in known.items() if name.startswith(word)]


def complete_setting(context: click.Context, parameter: click.Parameter, word: str) -> list[CompletionItem]:
    """The keys of the experiment that was named before; behind a key's = the values, where they can be told."""
    vocabulary = _vocabulary()
    named = context.params.get("experiment") or context.params.get("base")
    words = [named, *context.args]  # while a value is missing, click has none but the latter
    document = _document([str(word) for word in words], vocabulary)
    for setting in context.params.get("settings") or ():
        _rename(document, setting)
    found = dict(_settings(vocabulary["schema"], vocabulary["schema"], document))
    key, equals, value = word.partition("=")
    if equals:
        return [CompletionItem(f"{key}={one}") for one in _values(found.get(key, {})) if one.startswith(value)]
    known = [path for path in found if path.startswith(word)]
    return [CompletionItem(f"{path}=", help=found[path].get("description")) for path in known]


def _document(words: list[str], vocabulary: dict[str, Any]) -> dict[str, Any]:
    """The experiment that one of these words names; if none does, the default."""
    document = dict(vocabulary["default"])
    for word in words:
        if word in vocabulary["recipes"]:
            return dict(vocabulary["recipes"][word]["document"])
        with suppress(OSError, ValueError):
            return document | tomllib.loads(Path(word).read_text())
    return document


def _rename(document: dict[str, Any], setting: str) -> None:
    """Apply a setting, if it is a name: other keys follow it."""
    path, _, value = setting.partition("=")
    *sections, key = path.split(".")
    if key == "name" and sections:
        for section in sections[:-1]:
            inner = document.get(section)
            document[section] = dict(inner) if isinstance(inner, dict) else {}
            document = document[section]
        document[sections[-1]] = {"name": value}


def _settings(root: Schema, section: Schema, document: Any, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Every key that can be set in a section, as deep as it goes, and the schema of its value."""
    for key, schema in section["properties"].items():
        given = document.get(key) if isinstance(document, dict) else None
        choices = _sections(root, schema)
        names = [one["properties"]["name"]["const"] for one in choices if "name" in one["properties"]]
        if not choices:
            yield prefix + key, schema
        elif not names:
            yield from _settings(root, choices[0], given, f"{prefix}{key}.")
        else:
            name = given.get("name") if isinstance(given, dict) else given
            inner = choices[names.index(name)] if name in names else {"properties": {}}
            known = {"name": {"enum": names, "description": inner.get("description")}}
            yield from _settings(root, {"properties": inner["properties"] | known}, given, f"{prefix}{key}.")


def _sections(root: Schema, schema: Schema) -> list[Schema]:
    """The sections that a key may have; none: it has a value."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    return [one for one in schema.get("anyOf", [schema]) if "properties" in one]


def _values(schema: Schema) -> list[str]:
    found = [value for one in schema.get("anyOf", [schema]) for value in one.get("enum", [])]
    return ["true", "false"] if schema.get("type") == "boolean" else found


def _vocabulary() -> dict[str, Any]:
    """The schema of experiments, the default one, and the recipes."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer" / "completion.json"
    newest = max(path.stat().st_mtime_ns for path in _PACKAGE.rglob("*.py"))
    stamp = f"{__version__} {_PACKAGE} {newest}"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known: dict[str, Any] = json.loads(kept.read_bytes())
        if known["stamp"] == stamp:
            return known
    known = {"stamp": stamp, **_look_up()}
    with suppress(OSError):  # where nothing can be kept, it takes seconds every time
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f"{kept.name}.{os.getpid()}")
        partial.write_text(json.dumps(known))
        partial.replace(kept)
    return known


def _look_up() -> dict[str, Any]:
    from gossamer.experiments import toml
    from gossamer.experiments.experiment import Experiment
    from gossamer.experiments.recipes import RECIPES
    from gossamer.experiments.schema import schema

    recipes = {
        name: {"help": (recipe.__doc__ or "").split("\n")[0], "document": toml.write(recipe())}
        for name, recipe in RECIPES.items()
    }
    return {"schema": schema(), "default": toml.write(Experiment()), "recipes": recipes}
