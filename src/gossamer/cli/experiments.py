"""The commands that help to write an experiment: list, init."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.options import PATH, Mistake, json_option

if TYPE_CHECKING:
    from rich.console import RenderableType

KINDS = ["algorithms", "topologies", "partitions", "tasks", "recipes", "compressors", "transforms", "models"]
PAPERS = "tables and figures of papers, for gossamer reproduce"
COMMENTED = Path(__file__).parents[1] / "experiments" / "experiment.toml"


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
def list_(kind: str | None, as_json: bool) -> None:
    """List what an experiment can be made of."""
    from gossamer.cli.console import print_result

    rows = [row for k in KINDS if kind in (None, k) for row in _rows(k)]
    print_result(json.dumps(rows) if as_json else _tables(rows, detailed=kind == "algorithms"))


def _rows(kind: str) -> list[dict[str, Any]]:
    from gossamer.algorithms import ALGORITHMS, Entry, entry
    from gossamer.compressors import COMPRESSORS
    from gossamer.data import TASKS
    from gossamer.data.partition import PARTITIONS
    from gossamer.experiments.auto import Auto
    from gossamer.experiments.papers import TABLES
    from gossamer.experiments.recipes import RECIPES
    from gossamer.graphs.topologies import TOPOLOGIES
    from gossamer.models import MODELS
    from gossamer.transforms import TRANSFORMS

    tables: list[Any] = [ALGORITHMS, TOPOLOGIES, PARTITIONS, TASKS, RECIPES, COMPRESSORS, TRANSFORMS, MODELS]
    rows = []
    for name, value in tables[KINDS.index(kind)].items():
        row = {"kind": kind, "name": name, "description": (value.__doc__ or "").strip().splitlines()[0]}
        rows.append(row | entry(name)._asdict() if kind == "algorithms" else row)
    if kind == "algorithms":
        chosen = Entry("Gossamer", [], None, ["what the one that it chooses sends"])
        rows.append({"kind": kind, "name": "auto", "description": Auto.__doc__, **chosen._asdict()})
    if kind == "recipes":
        rows += [{"kind": PAPERS, "name": name, "description": table.title} for name, table in TABLES.items()]
    return rows


def _tables(rows: list[dict[str, Any]], detailed: bool) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table

    sections: list[RenderableType] = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        columns = ("name", "what it is", *(("paper", "needs", "memory", "sends") if detailed else ()))
        shown = Table(*columns, title=kind, title_justify="left", title_style="bold", box=None)
        for row in (row for row in rows if row["kind"] == kind):
            shown.add_row(row["name"], row["description"], *(_details(row) if detailed else ()))
        sections += [shown] if not sections else ["", shown]
    return Group(*sections)


def _details(row: dict[str, Any]) -> list[str]:
    needs = ", ".join(word.replace("_", " ") for word in row["needs"])
    copies = "" if row["memory"] is None else f"{row['memory']:.0f} model{'s' * (row['memory'] != 1)}"
    return [row["paper"], needs, copies, "; ".join(row["sends"])]


@click.command()
@click.argument("path", type=PATH, default=Path("experiment.toml"))
def init(path: Path) -> None:
    """Write a commented experiment to PATH (experiment.toml), to start from."""
    try:
        with path.open("xb") as file:
            file.write(COMMENTED.read_bytes())
    except FileExistsError:
        raise Mistake(f"{path} exists already; name another file") from None
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror}; name another file") from None
    click.echo(f"wrote {path}; run it with: gossamer run {path}", err=True)
