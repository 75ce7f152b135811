"""The table of results, one row per label. On a narrow screen each row is a card with all of its figures."""

from collections.abc import Callable, Sequence
from itertools import groupby
from math import isfinite
from statistics import fmean, stdev
from typing import NamedTuple

from gossamer.runs.report.curve import Curve, Groups, are_peers
from gossamer.runs.report.text import Text, colour, duration, joules, metric_text, number, percent, safe, size, words


class Column(NamedTuple):
    group: str  # what stands over the heads of several columns
    head: str
    text: Callable[[list[Curve]], str]  # of the seeds of a label; "–": not known


def results(groups: Groups, metric: str) -> str:
    """The table; a column of which no run knows anything is left out."""
    runs = [curve for curves in groups.values() for curve in curves]
    of_peers, several = are_peers(groups), len(runs) > len(groups)
    always = ("mean", "total", "time") if of_peers else ("mean", "min – max over nodes", "total", "time")
    told = [(column, [column.text(curves) for curves in groups.values()]) for column in columns(metric, several)]
    shown = [(column, cells) for column, cells in told if column.head in always or set(cells) - {"–"}]
    heads = [Head(column.group, column.head, _on_a_card(column), is_main=column.head == "mean") for column, _ in shown]
    rows = [(label, [cells[index] for _, cells in shown]) for index, label in enumerate(groups)]
    named = "peer" if of_peers else "algorithm" if len(groups) == 1 else "run"
    counted = "are those that the peer sent" if of_peers else "count every copy on every edge, over all nodes"
    seeds = " With several seeds: mean ± standard deviation over seeds; the range is over all their nodes."
    return f"""{drawn(named, heads, rows, "Results")}
<p class="note">After the last round.{tested(runs)} Bytes {counted}.\
{seeds * several}</p>"""


def _on_a_card(column: Column) -> str:
    of_bytes = column.group == "bytes sent" and "sharing" not in column.head
    return f"{column.head} sent" if of_bytes else column.head.removesuffix(" over nodes")


class Head(NamedTuple):
    group: str  # what stands over the heads of several columns
    text: str
    on_a_card: str  # what stands beside the figure on a narrow screen
    is_main: bool = False


def drawn(named: str, heads: Sequence[Head], rows: Sequence[tuple[str, Sequence[str]]], said: str) -> str:
    """A table with one row per label; cells are HTML. Screen readers say what it is."""
    body = ""
    for index, (label, cells) in enumerate(rows):
        body += f'<tr role="row"><th scope="row" role="rowheader"><span class="swatch {colour(index)}"></span>'
        body += f"{safe(label)}</th>"
        for head, cell in zip(heads, cells, strict=True):
            main = ' class="main"' * head.is_main
            body += f'<td role="cell" data-head="{safe(head.on_a_card)}"{main}>{cell}</td>'
        body += "</tr>\n"
    over = ""
    for group, of in groupby(head.group for head in heads):
        span = len(list(of))
        over += (
            f'<th colspan="{span}" scope="colgroup">{words([group])}</th>' if group else f'<td colspan="{span}"></td>'
        )
    titles = "".join(
        f'<th scope="col" role="columnheader">{safe(head)}</th>' for head in (named, *(h.text for h in heads))
    )
    return f"""<div class="scroll wide" tabindex="0" role="region" aria-label="{safe(said)}">
<table class="results" role="table">
<thead><tr><td></td>{over}</tr>
<tr role="row">{titles}</tr></thead>
<tbody>
{body}</tbody></table></div>"""


def columns(metric: str, several: bool) -> list[Column]:
    """All that a table can have, in order."""
    text = metric_text(metric)

    def of(key: str, text: Text) -> Callable[[list[Curve]], str]:
        return lambda curves: cell(curves, key, text)

    def mean(curves: list[Curve]) -> str:
        found, key = cell(curves, f"{metric}_mean", text), f"{metric}_mean"
        if len(curves) > 1 and found != "–":
            found += f" ± {cell(curves, key, text, stdev).removesuffix('%')}"
        return found

    def spread(curves: list[Curve]) -> str:
        low, high = cell(curves, f"{metric}_min", text, min), cell(curves, f"{metric}_max", text, max)
        return f"{low} – {high}" if low != "–" != high else "–"

    return [
        *[Column("", "seeds", lambda curves: str(len(curves)))] * several,
        Column(metric, "before settling", of(f"{metric}_mean_before_settle", text)),
        Column(metric, "mean", mean),
        Column(metric, "min – max over nodes", spread),
        Column(metric, "of the mean model", of(f"{metric}_of_mean_model", text)),
        Column("bytes sent", "values", of("bytes_values", size)),
        Column("bytes sent", "metadata", of("bytes_metadata", size)),
        Column("bytes sent", "resent", of("bytes_resync", size)),
        Column("bytes sent", "total", of("bytes_total", size)),
        Column("bytes sent", "of full sharing", of("bytes_share_of_full", percent)),
        Column("", "virtual time", of("clock_seconds", duration)),
        Column("", "energy per node", of("energy_joules_mean", joules)),
        Column("", "time", of("seconds", duration)),
    ]


def cell(curves: list[Curve], key: str, text: Text, fold: Callable[[list[float]], float] = fmean) -> str:
    values = [number(curve.result.get(key)) for curve in curves]
    return text(fold(values)) if all(map(isfinite, values)) else "–"


def tested(runs: list[Curve]) -> str:
    """A sentence on what the tests were of, where runs say so, and the same of all."""
    keys = ("tested_nodes", "nodes", "tested_samples", "test_samples")
    said = {tuple(run.result.get(key) for key in keys) for run in runs}
    numbers = said.pop() if len(said) == 1 else ()
    if not numbers or not all(type(number) is int for number in numbers):
        return ""
    return " Tested on {:,} of {:,} nodes and {:,} of {:,} samples.".format(*numbers)
