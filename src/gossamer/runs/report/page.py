"""The page: what was run, the table of results, the charts, the settings."""

import os
from base64 import b64encode
from collections.abc import Collection
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from gossamer.runs.files import replace
from gossamer.runs.report.charts import sections
from gossamer.runs.report.curve import Curve, Groups, grouped, metric_of
from gossamer.runs.report.settings import settings
from gossamer.runs.report.table import results
from gossamer.runs.report.text import colour, distinct, safe, setting


def write(path: str | os.PathLike[str], title: str, curves: list[Curve]) -> None:
    """Write the page; a reader sees the old file or the whole new one."""
    replace(Path(path), html(title, curves).encode())


def html(title: str, curves: list[Curve]) -> str:
    """The page as text."""
    return document(title, f"<main>\n{content(title, curves)}</main>\n", policy("'none'"))


def document(title: str, body: str, security_policy: str) -> str:
    """A whole page, with its style and its script."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{security_policy}">
<title>{safe(title)}</title>
<style>
{_part("report.css")}</style>
</head>
<body>
{body}<div id="tip" role="status" hidden></div>
<script>{_part("report.js")}</script>
</body>
</html>
"""


def policy(connect: str) -> str:
    """Nothing but this page's own script may run, and nothing outside be asked for, should a hostile label ever slip
    through the escaping. `connect` is whom the script may ask."""
    digest = b64encode(sha256(_part("report.js").encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src {connect}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action {connect}"


@cache
def _part(name: str) -> str:
    return files("gossamer.runs.report").joinpath(name).read_text(encoding="utf-8")


def content(title: str, curves: list[Curve]) -> str:
    """What is between the page's ends: all that changes while a run goes on."""
    groups, metric = grouped(curves), metric_of(curves)
    return f"""<h1>{safe(title)}</h1>
<p class="lead">{summary(curves)}</p>
{notes(groups)}
{legend(groups)}
{results(groups, metric)}
{sections(groups, metric)}
<section><h2>Settings</h2>
{settings(groups)}
</section>
"""


def notes(groups: Groups) -> str:
    """What experiments say of themselves, such as what was chosen for them."""
    told = {label: distinct(curve.experiment.get("note") for curve in curves) for label, curves in groups.items()}
    lines = [(f"{label}: " if len(groups) > 1 else "") + note for label, note in told.items() if note != "–"]
    return "".join(f"<p>{safe(line)}.</p>\n" for line in lines)


def legend(labels: Collection[str]) -> str:
    """A box per label, which hides what is drawn of it. CSS does it, without script."""
    if len(labels) < 2:
        return ""
    rules, boxes = "", ""
    for index, label in enumerate(labels):
        rules += f"body:has(#c{index}:not(:checked)) .k{index}{{display:none}}\n"
        pointed = f"#l{index}:hover,#c{index}:focus-visible"
        rules += f"body:has({pointed}) .k:not(.k{index}){{opacity:.12}}\n"
        rules += f"body:has({pointed}) .k{index} .band{{fill-opacity:.16}}\n"
        boxes += f'<label id="l{index}"><input type="checkbox" id="c{index}" checked data-name="{safe(label)}">'
        boxes += f'<span class="swatch {colour(index)}"></span>{safe(label)}</label>\n'
    return f"""<style>
{rules}</style>
<fieldset class="legend"><legend>Shown in the charts</legend>
{boxes}</fieldset>"""


def described(section: object) -> str:
    """A section's name and the rest of it: {"name": "regular", "degree": 4} is "regular (degree 4)"."""
    if not isinstance(section, dict):
        return setting("" if section is None else section)
    key = next((key for key in ("name", "kind", "type") if key in section), next(iter(section), ""))
    rest = (f"{other} {described(value)}".replace("_", " ") for other, value in section.items() if other != key)
    told = ", ".join(rest)
    return setting(section.get(key, "")) + f" ({told})" * bool(told)


def summary(curves: list[Curve]) -> str:
    """What was run: nodes, task, model and partition, topology, seeds."""
    if not curves:
        return "No runs."

    def field(name: str) -> str:
        return distinct(curve.experiment.get(name, curve.result.get(name)) for curve in curves)

    def section(name: str) -> str:
        return distinct(described(curve.experiment.get(name) or curve.result.get(name)) for curve in curves)

    nodes, rounds, seeds = field("nodes"), field("rounds"), field("seed")
    sentences = [
        f"{nodes} node{'s' * (nodes != '1')} trained {section('task')} for {rounds} round{'s' * (rounds != '1')}",
        f"data spread as {section('partition')}" if section("partition") != "–" else "",
        f"topology {section('topology')}",
        f"seed{'s' * (',' in seeds)} {seeds}",
    ]
    return safe("; ".join(filter(None, sentences)) + ".")
