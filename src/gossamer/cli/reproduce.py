"""The command that carries out a table or figure of a paper, and tells whether it agrees."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.options import (
    PATH,
    Mistake,
    data_option,
    examples,
    jobs_option,
    json_option,
    look_for_data_in,
    say,
)
from gossamer.cli.sweeps import showing_progress

if TYPE_CHECKING:
    from gossamer.experiments.papers import Table
    from gossamer.simulator.reproduce import Reproduction


@click.command(epilog=examples("gossamer reproduce sparse-push-table2", "gossamer reproduce --check"))
@click.argument("name", required=False)
@click.option(
    "--size", type=click.Choice(["small", "paper"]), default="small", show_default=True,
    help="Some minutes on two cores, or the paper's own protocol.",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each row.")
@click.option(
    "--out", type=PATH, default=Path("runs/papers"), show_default=True,
    help="Where runs and tables are kept; tables that share rows share their runs there.",
)  # fmt: skip
@click.option("--rows", metavar="PATTERN", help="Run only rows like this, such as '*JWINS*'; commas between several.")
@click.option("--check", is_flag=True, help="Run a slice of every table without data, and compare with stored values.")
@data_option
@jobs_option
@json_option
def reproduce(
    name: str | None,
    size: Any,
    seeds: int,
    out: Path,
    rows: str | None,
    check: bool,
    data: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Carry out NAME, a table or figure of a paper, and print it beside the paper's. `gossamer list recipes` has names.

    The same command carries on where it stopped.
    """
    look_for_data_in(data)
    if check:
        _check([name] if name else None, as_json)
        return
    if name is None:
        raise Mistake("name a table or figure, such as sparse-push-table2; gossamer list recipes has their names")
    table = _table(name)
    found = _carry_out(name, table, size, seeds, out, jobs, rows)
    _show(found, out, as_json)
    if found.failed:
        raise click.exceptions.Exit(1)


def _table(name: str) -> "Table":
    from gossamer.experiments import toml
    from gossamer.experiments.papers import TABLES

    if name not in TABLES:
        guess = toml.guess(name, TABLES)
        raise Mistake(f"{name} is no table or figure that is known here{guess}; there are {', '.join(TABLES)}")
    return TABLES[name]


def _carry_out(
    name: str, table: "Table", size: Any, seeds: int, out: Path, jobs: int | None, only: str | None
) -> "Reproduction":
    from gossamer.simulator.reproduce import missing_data, reproduce

    rows = table.rows(size)
    missing = missing_data(rows)
    for why in dict.fromkeys(missing.values()) if len(missing) < len(rows) else ():
        say(f"{list(missing.values()).count(why)} of {len(rows)} rows are left out: {why}")
    advice = f"the same command carries on: {shlex.join(['gossamer', *sys.argv[1:]])}"
    with showing_progress(advice) as progress:
        return reproduce(name, table, size, seeds, out, jobs, progress.tell, only)


def _show(found: "Reproduction", out: Path, as_json: bool) -> None:
    from rich.table import Table as Shown

    from gossamer.cli.console import console, print_result
    from gossamer.simulator.reproduce import document, headings, table_cells, told_findings

    if as_json:
        print_result(json.dumps(document(found)))
    else:
        shown = Shown(title=found.table.title, title_justify="left", box=None)
        shown.add_column("row", overflow="fold")
        for column, whose in headings(found):
            shown.add_column(f"{column}\n{whose}", justify="right")
        for cells in table_cells(found):
            shown.add_row(*cells)
        print_result(shown)
        for told in told_findings(found):
            print_result(told.replace("**", ""))
    if told := document(found)["protocol"]:
        say(f"not the paper's protocol: {told}")
    for directory, why in found.failed.items():
        say(f"{directory} failed: {why}")
    stem = out / f"{found.name}-{found.size}"
    console().print(f"kept in {stem}.json, {stem}.md" + (f" and {stem}.html" if found.runs else ""), soft_wrap=True)


def _check(names: list[str] | None, as_json: bool) -> None:
    """Exit code 1 if something is not as it was stored."""
    from gossamer.experiments.papers import TABLES
    from gossamer.simulator.reproduce_check import check_table, differences, stored

    for name in names or []:
        _table(name)
    known, found, told = stored(), {}, []
    for name in names or TABLES:
        click.echo(f"{name} ", err=True, nl=False)
        found[name] = check_table(name)
        differing = differences(name, found[name], known)
        click.echo("differs" if differing else "ok", err=True)
        told += differing
    for sentence in told:
        say(sentence)
    if as_json:
        click.echo(json.dumps(found, indent=1))
    if told:
        raise click.exceptions.Exit(1)
