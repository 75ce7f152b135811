"""`gossamer data`: what data sets there are on this machine, and whether they are the official ones."""

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import click

from gossamer.cli.options import PATH, examples, json_option, say


@click.group()
def data() -> None:
    """Look after data sets. Nothing is downloaded; see docs/data.md for where to get them."""


@data.command(epilog=examples("gossamer data check ~/data", "gossamer data check --json"))
@click.argument("directory", required=False)
@json_option
def check(directory: str | None, as_json: bool) -> None:
    """Say which data sets are in DIRECTORY (by default what GOSSAMER_DATA names), and read them once.

    The exit code is 1 if one of them is damaged.
    """
    from gossamer.data.sources import VARIABLE
    from gossamer.experiments.experiment import ExperimentError

    named = directory or os.environ.get(VARIABLE)
    if not named or not os.path.isdir(named):
        given = f"{named} is not a directory" if named else "no directory was given"
        raise ExperimentError(f"{given}; name the one that holds the data sets, or set {VARIABLE}")
    os.environ[VARIABLE] = named
    found = [one for name, task in _known() if (one := _look(name, task, Path(named))) is not None]
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(found, named)
    if any(one["damage"] for one in found):
        raise click.exceptions.Exit(1)


@data.command(epilog=examples("gossamer data describe patients.csv --target ill --out north.json"))
@click.argument("file", type=PATH)
@click.option("--target", required=True, help="The column to predict.")
@click.option("--regression", is_flag=True, help="It is a number, not a class.")
@click.option("--client", help="The column that says whose a row is.")
@click.option("--leave-out", multiple=True, metavar="COLUMN", help="A column not to look at; can be repeated.")
@click.option("--least", type=click.IntRange(min=1), default=5, show_default=True,
              help="What is in fewer rows is not told.")  # fmt: skip
@click.option("--out", type=PATH, help="Where to write it; by default it is printed.")
def describe(
    file: Path,
    target: str,
    regression: bool,
    client: str | None,
    leave_out: tuple[str, ...],
    least: int,
    out: Path | None,
) -> None:
    """Summarize FILE, a csv or Parquet table, for other sites: columns, sums, words and classes, and no row.

    What it holds leaves this site: read it before you send it.
    """
    import msgspec

    from gossamer.data.description import rare_classes, summary
    from gossamer.data.table import Table
    from gossamer.experiments.experiment import ExperimentError

    try:
        table = Table(file.name, target, regression, client, leave_out)
        content = msgspec.json.format(msgspec.json.encode(summary(table, file, least)), indent=2) + b"\n"
        rare = rare_classes(table, file, least)
    except (OSError, ValueError) as error:
        said = str(error)
        raise ExperimentError(said if said.startswith(str(file)) else f"{file}: {said}") from None
    if rare:
        told = ", ".join(f"{word!r} ({rows} row{'s' * (rows != 1)})" for word, rows in rare.items())
        say(
            f"warning: too rare to be told: {target} = {told}; such rows would be refused, so correct a misspelled "
            "class, or give a smaller --least"
        )
    if out is None:
        click.echo(content, nl=False)
        return
    try:
        with out.open("xb") as written:
            written.write(content)
    except OSError as error:
        raise ExperimentError(f"{out} cannot be written: {error.strerror}; name another file") from None
    click.echo(out)


@data.command(epilog=examples("gossamer data agree north.json south.json"))
@click.argument("summaries", nargs=-1, required=True, type=PATH)
@click.option("--file", default="table.csv", show_default=True, help="The table's name at every site.")
def agree(summaries: tuple[Path, ...], file: str) -> None:
    """Print the section [task] with which all sites that SUMMARIES are of encode their rows in the same way."""
    import tomli_w

    from gossamer.data.description import agreed, classes_of_one, read_summary
    from gossamer.experiments.experiment import ExperimentError

    try:
        told = [read_summary(path) for path in summaries]
        settings = agreed(told)
    except ValueError as error:
        raise ExperimentError(str(error)) from None
    alone = [f"{path} ({', '.join(map(repr, names))})" for path, names in
             zip(summaries, classes_of_one(told), strict=True) if names]  # fmt: skip
    if alone:
        say(
            f"warning: some classes are told by one site only: {', '.join(alone)}; if two of them are one class in two "
            "spellings, write it alike in the tables and describe them again; else the other sites have no rows of it, "
            "or too few to tell"
        )
    click.echo(tomli_w.dumps({"task": {"name": "table", "file": file, **settings}}), nl=False)


def _known() -> list[tuple[str, Any]]:
    """Every data set with official files, and the task that reads it."""
    from typing import get_args, get_type_hints

    from gossamer import data as tasks

    versions = get_args(get_type_hints(tasks.MovieLens)["version"])
    splits = get_args(get_type_hints(tasks.Emnist)["split"])
    known: list[tuple[str, Any]] = [(f"movielens {version}", tasks.MovieLens(version)) for version in versions]
    known += [(f"emnist {split}", tasks.Emnist(split)) for split in splits]
    for name, kind in tasks.TASKS.items():
        if hasattr(kind, "source") and kind not in (tasks.MovieLens, tasks.Emnist) and not _needs_a_name(kind):
            known.append((name, kind()))
    return sorted(known, key=lambda one: one[0])


def _needs_a_name(kind: type) -> bool:
    """Of a file or folder: the user's own data."""
    from dataclasses import MISSING, fields

    return any(f.default is MISSING and f.default_factory is MISSING for f in fields(kind))


def _look(name: str, task: Any, root: Path) -> dict[str, Any] | None:
    from gossamer.data.sources import DataError, Found

    found = task.source.look(root)
    if not isinstance(found, Found):
        return None
    paths = [path for pattern in found.layout.files for path in (found.paths(pattern) or [found.path(pattern)])]
    told: dict[str, Any] = {"data_set": name, "folder": str(found.folder), "files": len(paths)}
    told |= dict.fromkeys(("train", "test", "classes", "clients", "damage"))
    told["md5"] = _official(paths, task.source.md5)
    try:
        arrays = task.arrays()
    except DataError as error:
        return told | {"damage": str(error)}
    told |= {
        "train": len(arrays.train[1]),
        "test": len(arrays.test[1]),
        "classes": arrays.outputs if arrays.outputs > 1 else None,
    }
    return told | {"clients": None if arrays.clients is None else int(arrays.clients.max()) + 1}


def _official(paths: list[Path], known: Any) -> str:
    """Are these the official files? Gzipped ones are compared by what they hold."""
    sums = {path.name.removesuffix(".gz"): path for path in paths}
    if not known.keys() >= sums.keys():
        return "unknown"
    return "ok" if all(_md5(path) == known[name] for name, path in sums.items()) else "not the official"


def _md5(path: Path) -> str | None:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (OSError, EOFError):
        return None
    return digest.hexdigest()


def _print(found: list[dict[str, Any]], directory: str) -> None:
    from rich.table import Table

    from gossamer.cli.console import print_result

    if not found:
        click.echo(f"no data set that has a name here was found in {directory}")
        return
    table = Table("data set", "training", "test", "classes", "clients", "files", "md5", "folder", box=None)
    for one in found:
        numbers = [one[key] for key in ("train", "test", "classes", "clients", "files")]
        shown = ["" if number is None else f"{number:,}" for number in numbers]
        table.add_row(one["data_set"], *shown, one["md5"], one["folder"])
    print_result(table)
    for one in found:
        if one["damage"]:
            click.echo(f"gossamer: {one['damage']}", err=True)
