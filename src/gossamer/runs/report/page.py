"""The page: what was run, the table of results, the charts, the settings."""

import os
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import compress
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gossamer.runs.files import replace
from gossamer.runs.report.charts import Curve, Groups, are_peers, charts
from gossamer.runs.report.text import (
    Text,
    colour,
    distinct,
    duration,
    metric_text,
    number,
    percent,
    safe,
    setting,
    size,
    words,
)


def write(path: str | os.PathLike[str], title: str, curves: list[Curve]) -> None:
    """Write the page; a reader sees the old file or the whole new one."""
    replace(Path(path), html(title, curves).encode())


def html(title: str, curves: list[Curve]) -> str:
    """The page as text."""
    groups: Groups = {}
    for curve in curves:
        groups.setdefault(curve.label, []).append(curve)
    metric = next((name for curve in curves if (name := metric_of(curve))), "accuracy")
    style = files("gossamer.runs.report").joinpath("report.css").read_text(encoding="utf-8")
    # The policy forbids scripts and requests, should a hostile label ever slip through the escaping.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{safe(title)}</title>
<style>
{style}</style>
</head>
<body>
<h1>{safe(title)}</h1>
<p class="lead">{summary(curves)}</p>
{results(groups, metric)}
<h2>Curves</h2>
<div class="charts">
{charts(groups, metric)}
</div>
<h2>Settings</h2>
{settings(groups)}
</body>
</html>
"""


def metric_of(curve: Curve) -> str:
    """What the run measured, e.g. "accuracy"; "" if it never did."""
    named = (key.removesuffix("_mean") for line in curve.metrics for key in line if key.endswith("_mean"))
    return str(curve.result.get("metric") or next(named, ""))


def described(section: object) -> tuple[str, str]:
    """A section's name and the rest of it: {"name": "regular", "degree": 4} is "regular", "degree 4"."""
    if not isinstance(section, dict):
        return setting(section or ""), ""
    key = next((key for key in ("name", "kind", "type") if key in section), next(iter(section), ""))
    rest = (f"{other} {setting(value)}".replace("_", " ") for other, value in section.items() if other != key)
    return setting(section.get(key, "")), ", ".join(rest)


def summary(curves: list[Curve]) -> str:
    """One sentence on what was run."""
    if not curves:
        return "No runs."

    def field(name: str) -> str:
        return distinct(curve.experiment.get(name, curve.result.get(name)) for curve in curves)

    tasks = distinct(curve.result.get("task") or described(curve.experiment.get("task"))[0] for curve in curves)
    graphs = [described(curve.experiment.get("topology")) for curve in curves]
    graph = distinct(f"{name} ({rest})" if rest else name for name, rest in graphs)
    nodes, rounds, seeds = field("nodes"), field("rounds"), field("seed")
    return safe(
        f"{nodes} node{'s' * (nodes != '1')} trained {tasks} for {rounds} round{'s' * (rounds != '1')}; "
        f"topology {graph}; seed{'s' * (',' in seeds)} {seeds}."
    )


# The table


def results(groups: Groups, metric: str) -> str:
    """The table, one row per label."""
    runs = [curve for curves in groups.values() for curve in curves]
    several, mean_model = len(runs) > len(groups), any(f"{metric}_of_mean_model" in run.result for run in runs)
    again = any("bytes_resync" in run.result for run in runs)
    settled = any(f"{metric}_mean_before_settle" in run.result for run in runs)
    of_peers = are_peers(groups)
    named = "peer" if of_peers else "algorithm"
    counted = "are those that the peer sent" if of_peers else "count every copy on every edge, over all nodes"
    measured = [*["before settling"] * settled, "mean", "min – max over nodes", *["of the mean model"] * mean_model]
    sent = ["values", "metadata", *["resent"] * again, "total", "of full sharing"]
    heads = [*["seeds"] * several, *measured, *sent, "time"]
    known = [not of_peers or head in ("mean", "total", "time") for head in heads]  # peers know no more
    rows = ""
    for index, (label, curves) in enumerate(groups.items()):
        figures = [*[str(len(curves))] * several, *cells(curves, metric, settled, mean_model, again)]
        rows += f'<tr><th scope="row"><span class="swatch {colour(index)}"></span>{safe(label)}</th>'
        rows += "".join(
            f"<td{' class=main' * (head == 'mean')}>{value}</td>"
            for head, value in compress(zip(heads, figures, strict=True), known)
        )
        rows += "</tr>\n"
    spans = [1, 1] if of_peers else [len(measured), len(sent)]
    titles = "".join(f'<th scope="col">{head}</th>' for head in (named, *compress(heads, known)))
    seeds = " With several seeds: mean ± standard deviation over seeds; the range is over all their nodes."
    return f"""<div class="scroll"><table class="results">
<thead><tr><td></td>{"<td></td>" * several}<th colspan="{spans[0]}" scope="colgroup">{words([metric])}</th>\
<th colspan="{spans[1]}" scope="colgroup">bytes sent</th><td></td></tr>
<tr>{titles}</tr></thead>
<tbody>
{rows}</tbody></table></div>
<p class="note">After the last round.{tested(runs)} Bytes {counted}.\
{seeds * several}</p>"""


def tested(runs: list[Curve]) -> str:
    """A sentence on what the tests were of, where runs say so, and the same of all."""
    keys = ("tested_nodes", "nodes", "tested_samples", "test_samples")
    said = {tuple(run.result.get(key) for key in keys) for run in runs}
    numbers = said.pop() if len(said) == 1 else ()
    if not numbers or not all(type(number) is int for number in numbers):
        return ""
    return " Tested on {:,} of {:,} nodes and {:,} of {:,} samples.".format(*numbers)


def cells(curves: list[Curve], metric: str, settled: bool, mean_model: bool, again: bool) -> list[str]:
    """What the table says of the seeds of one label."""
    text = metric_text(metric)

    def cell(key: str, text: Text, fold: Callable[[list[float]], float] = fmean) -> str:
        values = [number(curve.result.get(key)) for curve in curves]
        return text(fold(values)) if all(map(isfinite, values)) else "–"

    mean, low, high = cell(f"{metric}_mean", text), cell(f"{metric}_min", text, min), cell(f"{metric}_max", text, max)
    if len(curves) > 1 and mean != "–":
        mean += f" ± {cell(f'{metric}_mean', text, stdev).removesuffix('%')}"
    return [
        *[cell(f"{metric}_mean_before_settle", text)] * settled,
        mean,
        f"{low} – {high}" if low != "–" != high else "–",
        *[cell(f"{metric}_of_mean_model", text)] * mean_model,
        *(cell(f"bytes_{part}", size) for part in ("values", "metadata", *["resync"] * again, "total")),
        cell("bytes_share_of_full", percent),
        cell("seconds", duration),
    ]


# The settings


def flat(section: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from flat(value, (*prefix, str(key)))
        else:
            yield (*prefix, str(key)), setting(value)


def settings(groups: Groups) -> str:
    """What all runs share, by section; then what differs, one column per label."""
    runs = {label: [dict(flat(curve.experiment)) for curve in curves] for label, curves in groups.items()}
    every = [run for of in runs.values() for run in of]
    keys = list(dict.fromkeys(key for run in every for key in run))
    differing = [key for key in keys if len({run.get(key) for run in every}) > 1]
    sections: dict[str, str] = {}
    for key in keys:
        if key not in differing:
            section = key[0] if len(key) > 1 else "experiment"
            row = f'<tr><th scope="row">{words(key[1:] or key)}</th><td>{safe(every[0][key])}</td></tr>\n'
            sections[section] = sections.get(section, "") + row
    shared = "".join(f"<table><caption>{words([name])}</caption>\n{of}</table>\n" for name, of in sections.items())
    page = f'<div class="settings">\n{shared}</div>'
    if differing:
        head = "".join(f'<th scope="col">{safe(label)}</th>' for label in runs)
        body = ""
        for key in differing:
            cells = "".join(f"<td>{safe(distinct(run.get(key) for run in of))}</td>" for of in runs.values())
            body += f'<tr><th scope="row">{words(key)}</th>{cells}</tr>\n'
        page = f"""<p class="note">What differs between the runs:</p>
<div class="scroll"><table class="results differences">
<thead><tr><th></th>{head}</tr></thead>
<tbody>
{body}</tbody></table></div>
<p class="note">What they share:</p>
{page}"""
    return page
