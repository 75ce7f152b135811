"""Algorithms, tasks and other things that installed packages bring, by the names that they give them.

A package says in its own metadata what it has, as pytest's and others' plugins do:

    [project.entry-points."gossamer.algorithms"]
    lazy-gossip = "lazy_gossip:LazyGossip"

Then `algorithm = "lazy-gossip"` works in experiment files, on the command line and on every peer that has the package.
Only what is installed is ever imported: a file names an entry, never a module.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib.metadata import entry_points

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def with_plugins(kind: str, table: dict[str, type], fits: Callable[[type], bool]) -> dict[str, type]:
    """The table, and then the entries of the group gossamer.KIND; what does not fit is passed over, and told."""
    found = dict(table)
    for entry in sorted(entry_points(group=f"gossamer.{kind}"), key=lambda entry: entry.name):
        try:
            found[entry.name] = _load(entry.name, entry.load, found, fits)
        except Exception as error:  # whatever a package of others does, what is here must go on
            package = entry.dist.name if entry.dist is not None else entry.value
            reason = str(error) or type(error).__name__
            warnings.warn(f"gossamer.{kind}: {entry.name!r} of {package} is passed over: {reason}", stacklevel=2)
    return found


def _load(name: str, load: Callable[[], object], known: dict[str, type], fits: Callable[[type], bool]) -> type:
    if not NAME.fullmatch(name):
        raise ValueError("a name has small letters, digits and single hyphens")
    if name in known:
        raise ValueError("there is another of this name")
    loaded = load()
    if not (isinstance(loaded, type) and is_dataclass(loaded) and fits(loaded)):
        raise ValueError("it must be a dataclass of its kind")
    return loaded
