"""The command that carries out tables and figures of papers, and tells whether they agree."""

import json
import shlex
import sys
from fnmatch import filter as matching
from math import nan
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


@click.command(
    epilog=examples(
        "gossamer reproduce sparse-push-table2 --list         # its rows and findings; nothing is run",
        "gossamer reproduce sparse-push-table2",
        "gossamer reproduce 'jwins-*' sparse-push-table7 --seeds 2",
        "gossamer reproduce --check",
    )
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
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
@click.option("--list", "listed", is_flag=True, help="Print rows, the paper's figures and findings; run nothing.")
@click.option("--check", is_flag=True, help="Run a slice of every table without data, and compare with stored values.")
@data_option
@jobs_option
@json_option
def reproduce(
    names: tuple[str, ...],
    size: Any,
    seeds: int,
    out: Path,
    rows: str | None,
    listed: bool,
    check: bool,
    data: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Carry out NAME, a table or figure of a paper, and print it beside the paper's. `gossamer list recipes` has names.

    Several go on together, as one queue of runs; 'jwins-*' names all that begin with jwins-. The same command carries
    on where it stopped. With --json there is one object per table, each on a line of its own.
    """
    look_for_data_in(data)
    if check:
        _check(list(_tables(names)) or None, as_json)
        return
    if not names:
        raise Mistake("name a table or figure, such as sparse-push-table2; gossamer list recipes has their names")
    if listed:
        for name, table in _tables(names).items():
            _list(name, table, size, rows, as_json)
        return
    found = _carry_out(_tables(names), size, seeds, out, jobs, rows)
    for one in found:
        _show(one, out, as_json)
    if any(one.failed for one in found):
        raise click.exceptions.Exit(1)


def _tables(names: tuple[str, ...]) -> "dict[str, Table]":
    """Those of these names and patterns."""
    from gossamer.experiments.papers import TABLES

    found: dict[str, Table] = {}
    for name in names:
        if not (matched := matching(TABLES, name)):
            raise Mistake(f"{name} is no table or figure that is known here{_instead_of(name)}")
        found |= {one: TABLES[one] for one in matched}
    return found


def _instead_of(name: str) -> str:
    from gossamer.experiments import toml
    from gossamer.experiments.papers import TABLES
    from gossamer.experiments.recipes import RECIPES

    if name in RECIPES:
        return f", but one experiment; run it with: gossamer run {name}"
    return toml.guess(name, TABLES) or "; gossamer list recipes has their names"


def _list(name: str, table: "Table", size: Any, only: str | None, as_json: bool) -> None:
    """What a table has, before anything is run."""
    from rich.table import Table as Shown

    from gossamer.cli.console import print_result
    from gossamer.simulator.reproduce import Reproduction, document, finding_lines, matching, missing_data, number

    rows, missing = matching(table.rows(size), only), missing_data(table.rows(size))
    found = Reproduction(name, table, size, seeds=0, missing=missing)
    _tell_missing(name, missing, len(table.rows(size)))
    if as_json:
        print_result(json.dumps(document(found)))
        return
    printed = [column for column in table.columns if any(column in row.paper for row in rows)]
    shown = Shown(title=table.title, title_justify="left", box=None)
    shown.add_column("row", overflow="fold")
    for column in printed:
        shown.add_column(f"{column}\npaper", justify="right", no_wrap=True)
    for heading in ("nodes", "rounds") if any(row.experiment for row in rows) else ():
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        length = [str(row.experiment.nodes), f"{row.experiment.rounds:,}"] if row.experiment else []
        shown.add_row(row.label, *(number(row.paper.get(column, nan)) for column in printed), *length)
    print_result(shown)
    for line in finding_lines(found, verdicts=False):
        print_result(line)
    if told := document(found)["protocol"]:
        say(f"not the paper's protocol: {told}")


def _tell_missing(name: str, missing: dict[str, str], num_rows: int) -> None:
    for why in dict.fromkeys(missing.values()):
        say(f"{name}: {list(missing.values()).count(why)} of {num_rows} rows are left out: {why}")


def _carry_out(
    tables: "dict[str, Table]", size: Any, seeds: int, out: Path, jobs: int | None, only: str | None
) -> "list[Reproduction]":
    from gossamer.simulator.reproduce import matching, missing_data, reproduce

    matching([row for table in tables.values() for row in table.rows(size)], only)  # or else there is nothing to do
    missing = {name: missing_data(table.rows(size)) for name, table in tables.items()}
    there = {name: table for name, table in tables.items() if len(missing[name]) < len(table.rows(size))}
    for name, rows in missing.items():
        _tell_missing(name, rows, len(tables[name].rows(size)))
    if not there:
        raise Mistake(f"there are no data here for {', '.join(tables)}")
    advice = f"the same command carries on: {shlex.join(['gossamer', *sys.argv[1:]])}"
    if not any(row.experiment for table in there.values() for row in table.rows(size)):
        return reproduce(there, size, seeds, out)
    with showing_progress(advice) as progress:
        return reproduce(there, size, seeds, out, jobs, progress.tell, only)


def _show(found: "Reproduction", out: Path, as_json: bool) -> None:
    from rich.table import Table as Shown

    from gossamer.cli.console import console, print_result
    from gossamer.simulator.reproduce import document, finding_lines, headings, table_cells

    if as_json:
        print_result(json.dumps(document(found)))
    else:
        shown = Shown(title=found.table.title, title_justify="left", box=None)
        shown.add_column("row", overflow="fold")
        for column, whose in headings(found):
            heading = column if len(column) < 12 else column.replace(" ", "\n")
            shown.add_column(f"{heading}\n{whose}", justify="right", no_wrap=True)
        for cells in table_cells(found):
            shown.add_row(*cells)
        print_result(shown)
        for line in finding_lines(found):
            print_result(line.replace("**", ""))
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
