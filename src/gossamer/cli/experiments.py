"""The commands that help to write an experiment: list, show, init, schema, completion."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.completion import SHELLS, complete_recipe, script
from gossamer.cli.options import (
    PATH,
    Mistake,
    examples,
    experiment_argument,
    experiment_of,
    experiment_options,
    json_option,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

KINDS = ["algorithms", "topologies", "partitions", "tasks", "recipes", "compressors", "transforms", "models"]
SCHEMA = "experiment.schema.json"
PAPERS = "tables and figures of papers, for gossamer reproduce"
COMMENTED = Path(__file__).parents[1] / "experiments" / "experiment.toml"


@click.command("list", epilog=examples("gossamer list", "gossamer list algorithms", "gossamer list recipes --json"))
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
def list_(kind: str | None, as_json: bool) -> None:
    """List what an experiment can be made of."""
    from gossamer.cli.console import print_result

    rows = [row for k in KINDS if kind in (None, k) for row in _rows(k)]
    print_result(json.dumps(rows) if as_json else _tables(rows, detailed=kind == "algorithms"))


def _rows(kind: str) -> list[dict[str, Any]]:
    from gossamer.algorithms import Entry, entry
    from gossamer.compressors import Compressor
    from gossamer.core import Algorithm
    from gossamer.data.partition import Partition
    from gossamer.experiments import papers
    from gossamer.experiments.auto import Auto
    from gossamer.experiments.recipes import RECIPES
    from gossamer.experiments.tables import TABLES, TaskSource
    from gossamer.graphs.topologies import Topology
    from gossamer.models import Architecture
    from gossamer.transforms import Transform

    kinds = (Algorithm, Topology, Partition, TaskSource, None, Compressor, Transform, Architecture)
    of = kinds[KINDS.index(kind)]
    rows = []
    for name, value in (RECIPES if of is None else TABLES[of]).items():
        row = {"kind": kind, "name": name, "description": (value.__doc__ or "").strip().splitlines()[0]}
        if value is Auto:
            row |= Entry("Gossamer", [], None, ["what the one that it chooses sends"])._asdict()
        elif of is Algorithm:
            assert isinstance(value, type)
            row |= entry(name, value)._asdict()
        rows.append(row)
    if kind == "recipes":
        rows += [{"kind": PAPERS, "name": name, "description": table.title} for name, table in papers.TABLES.items()]
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


@click.command(
    epilog=examples(
        "gossamer show jwins-digits",
        "gossamer show jwins-cifar10 --set algorithm.name=choco --seed 3 > mine.toml",
        "gossamer show mine.toml                   # with every default written out",
    )
)
@experiment_argument
@experiment_options
def show(experiment: str, settings: tuple[str, ...], rounds: int | None, seed: int | None) -> None:
    """Print EXPERIMENT, a recipe or a TOML file, as a complete TOML file."""
    from gossamer.cli.console import print_result
    from gossamer.experiments import toml

    chosen = experiment_of(experiment, settings, rounds=rounds, seed=seed)
    print_result(_heading(experiment) + toml.dumps(chosen).rstrip("\n"))


def _heading(experiment: str) -> str:
    """What a recipe says of itself, as a comment."""
    from gossamer.experiments.recipes import RECIPES

    if experiment not in RECIPES:
        return ""
    return f"# The recipe {experiment}: {(RECIPES[experiment].__doc__ or '').splitlines()[0]}\n\n"


@click.command(
    epilog=examples(
        "gossamer init",
        "gossamer init mine.toml --from lace-digits",
    )
)
@click.argument("path", type=PATH, default=Path("experiment.toml"))
@click.option("--from", "recipe", metavar="RECIPE", shell_complete=complete_recipe, help="The recipe to start from.")
def init(path: Path, recipe: str | None) -> None:
    """Write an experiment to PATH (experiment.toml), to start from: one with comments, or a recipe.

    If experiment.schema.json is beside it, the file names it for the editor; see gossamer schema.
    """
    text = COMMENTED.read_text(encoding="utf-8") if recipe is None else _recipe(recipe)
    if (path.parent / SCHEMA).is_file():
        text = f"#:schema ./{SCHEMA}\n{text}"
    try:
        with path.open("xb") as file:
            file.write(text.encode())
    except FileExistsError:
        raise Mistake(f"{path} exists already; name another file") from None
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror}; name another file") from None
    click.echo(f"wrote {path}; run it with: gossamer run {shlex.quote(str(path))}", err=True)


def _recipe(name: str) -> str:
    from gossamer.experiments import toml
    from gossamer.experiments.recipes import RECIPES

    if name not in RECIPES:
        raise Mistake(f"--from {name}: there is no such recipe{toml.guess(name, RECIPES)}; take {', '.join(RECIPES)}")
    return _heading(name) + toml.dumps(RECIPES[name]())


@click.command(epilog=examples(f"gossamer schema > {SCHEMA}", "gossamer init"))
def schema() -> None:
    """Print the JSON Schema of experiment files, with which an editor completes and checks them."""
    from gossamer.cli.console import print_result
    from gossamer.experiments.schema import schema as of_experiments

    print_result(json.dumps(of_experiments(), indent=2))


@click.command(
    epilog=examples(
        "gossamer completion bash > ~/.local/share/bash-completion/completions/gossamer",
        "gossamer completion zsh > ~/.zfunc/_gossamer",
        "gossamer completion fish > ~/.config/fish/completions/gossamer.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options, recipes, and the keys of --set."""
    click.echo(script(context.find_root().command, shell), nl=False)
