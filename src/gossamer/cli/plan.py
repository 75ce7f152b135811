"""The command that tells what a run would take, before it runs."""

import json
import os
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gossamer.cli.options import (
    PATH,
    Mistake,
    data_option,
    examples,
    experiment_argument,
    experiment_of,
    experiment_options,
    json_option,
    look_for_data_in,
    workers_option,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gossamer.simulator.plan import Plan

SHADES = " ░▒▓█"
MOST_NODES = 32  # that the picture in the terminal shows
MOST_LABELS = 60


@click.command(
    epilog=examples("gossamer plan jwins-digits", "gossamer plan lace-digits --set clock.network=lora --json")
)
@experiment_argument
@experiment_options
@data_option
@workers_option
@click.option("--html", type=PATH, help="A new file: the plan as a page, with the labels of every node.")
@json_option
def plan(
    experiment: str,
    settings: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    data: str | None,
    workers: int | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """What EXPERIMENT, a TOML file or the name of a recipe, would take: bytes, time and memory. Runs for seconds."""
    from gossamer.cli.console import console, print_result
    from gossamer.simulator.plan import plan as make_plan

    look_for_data_in(data)
    chosen = experiment_of(experiment, settings, rounds=rounds, seed=seed)
    if html is not None and os.path.exists(html):
        raise Mistake(f"{html} exists already; name another file with --html")
    console().print(f"{chosen.name}: rehearsing its first rounds, for a few seconds", soft_wrap=True)
    found = make_plan(chosen, workers)
    if html is not None:
        try:
            html.write_text(page(found), encoding="utf-8")
        except OSError as error:
            raise Mistake(f"{html} cannot be written: {error.strerror}; name another file with --html") from None
    print_result(json.dumps(asdict(found)) if as_json else _tables(found))
    if html is not None:
        console().print(f"page: {html}", soft_wrap=True)


def rows(found: "Plan") -> list[tuple[str, str]]:
    """What to tell of a plan, line by line."""
    from gossamer.runs.report import size

    graph, told = found.graph, []
    settle = f", of which {found.settle} settle" if found.settle else ""
    told.append(("nodes and rounds", f"{found.nodes} nodes, {found.rounds} rounds{settle}"))
    told.append(("parameters", f"{found.parameters:,}"))
    resent = f", {size(found.bytes_resync)} resent" if found.bytes_resync else ""
    kinds = f"{size(found.bytes_values)} values, {size(found.bytes_metadata)} metadata{resent}"
    told.append(("bytes in all", f"{size(found.bytes_total)} ({kinds})"))
    told.append(("bytes per round", f"{size(found.bytes_per_round)} over all links while training"))
    if found.memory_bytes is not None:
        told.append(("memory", f"{size(found.memory_bytes)}, all processes together"))
    parts = f"training {time(found.seconds_training)}, testing {time(found.seconds_evaluation)}"
    told.append(("time on this machine", f"{time(found.seconds)} ({parts}), and {time(found.seconds_start)} to start"))
    least, most = graph.degree_min, graph.degree_max
    known = [f"degree {least}" if least == most else f"degree {least} to {most}"]
    known += ["connected" if graph.strongly_connected else "not connected"]
    known += [f"diameter {graph.diameter}"] if graph.diameter is not None else []
    known += [f"spectral gap {graph.spectral_gap:.3f}"] if graph.spectral_gap is not None else []
    if graph.spectral_gap_of_period is not None:
        known.append(f"{graph.spectral_gap_of_period:.3f} over a period of {graph.period} exchanges")
    told.append((f"graph ({found.topology})", ", ".join(known)))
    told.append(("averaging rate", f"{found.averaging_rate:.4g}"))
    if found.clock_seconds is not None and found.energy_joules_mean is not None:
        share = f"{found.battery_share_mean:.2%} of its battery"
        told.append(("time by the clock", time(found.clock_seconds)))
        told.append(("energy per node", f"{found.energy_joules_mean:,.3g} J, {share}"))
    return told


def time(seconds: float) -> str:
    """In the unit that a person would use."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _tables(found: "Plan") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table

    title = f"{found.name}: {found.algorithm} on {found.task}"
    shown = Table(show_header=False, box=None, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for what, value in rows(found):
        shown.add_row(what, value)
    parts: list[RenderableType] = [shown]
    if found.labels is not None:
        parts += ["", *_picture(found.labels)]
    parts += [line for warning in found.warnings for line in ("", f"warning: {warning}")]
    return Group(*parts)


def _picture(labels: list[list[int]]) -> list[str]:
    """Samples by label, one line per node; the darker, the larger the label's share of the node's samples."""
    lines = [f"labels of each node ({len(labels[0])}; darker: a larger share of its samples)"]
    width = len(str(len(labels) - 1))
    for node, counts in enumerate(labels[:MOST_NODES]):
        total, most = max(sum(counts), 1), len(SHADES) - 1
        cells = (SHADES[min(most, -(-most * count // total))] for count in counts[:MOST_LABELS])
        lines.append(f"{node:{width}} |{''.join(shade * 2 for shade in cells)}| {sum(counts):,} samples")
    if len(labels) > MOST_NODES:
        lines.append(f"and {len(labels) - MOST_NODES} more nodes")
    return lines


def page(found: "Plan") -> str:
    """A page that needs nothing from outside."""
    lines = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows(found))
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in found.warnings)
    picture = ""
    if found.labels is not None:
        head = "".join(f"<th>{label}</th>" for label in range(len(found.labels[0])))
        body = "".join(
            f"<tr><th>{node}</th>" + "".join(_cell(count, max(sum(counts), 1)) for count in counts) + "</tr>"
            for node, counts in enumerate(found.labels)
        )
        heat = f'<div class="wide"><table class="heat"><tr><th>node</th>{head}</tr>{body}</table></div>'
        picture = f"<h2>Labels of each node</h2><p>Samples by label.</p>{heat}"
    title = escape(f"{found.name}: {found.algorithm} on {found.task}")
    told = f"<h2>Warnings</h2><ul>{warnings}</ul>" if warnings else ""
    return PAGE.format(title=title, lines=lines, warnings=told, picture=picture)


def _cell(count: int, total: int) -> str:
    return f'<td style="background: rgba(63, 81, 181, {count / total:.3f})">{count or ""}</td>'


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
th {{ text-align: left; font-weight: 600; padding-right: 1rem; vertical-align: top; }}
.wide {{ overflow-x: auto; }}
.heat td {{ min-width: 2rem; text-align: right; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<h1>{title}</h1>
<table>{lines}</table>
{warnings}
{picture}
</body>
</html>
"""
