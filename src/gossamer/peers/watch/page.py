"""The page of a group: what needs attention, one row per peer, and curves over the time that it was watched."""

from collections.abc import Callable, Sequence
from math import isfinite, nan
from typing import NamedTuple

from gossamer.peers.watch.attention import attention, labels_of, state, whole
from gossamer.peers.watch.scrape import MEMORY, Reading
from gossamer.peers.watch.watched import Status
from gossamer.runs import report
from gossamer.runs.report.curve import Run
from gossamer.runs.report.line_chart import Chart, Scale, draw
from gossamer.runs.report.page import legend
from gossamer.runs.report.table import Head, drawn
from gossamer.runs.report.text import Text, distinct, duration, metric_text, plain, safe, size

MOST_SENTENCES = 30
WATCHED = Scale("at", "time since the watcher began", duration, "after {}")


class Column(NamedTuple):
    head: Head
    text: Callable[[Reading], str]  # "–": not known
    always: bool = True  # else only if somebody's is not 0


def page(statuses: Sequence[Status]) -> str:
    """All of it, which follows the group."""
    line = f'<p class="live"><span id="state" role="status">{safe(summary(statuses))}</span></p>\n'
    body = f'{line}<main data-events="/events">\n{content(statuses)}</main>\n'
    return report.document("Peers", body, report.policy("'self'"))


def summary(statuses: Sequence[Status]) -> str:
    """In a line: how many answer, and where they are."""
    answering = [status.reading for status in statuses if status.reading and status.answers]
    ended = sum(status.has_ended for status in statuses)
    told = f"{len(answering)} of {len(statuses)} peers answer" + f", {ended} ended" * bool(ended)
    rounds = [reading["round"] for reading in answering if isfinite(reading["round"])]
    of = [reading["rounds"] for reading in answering if isfinite(reading["rounds"])]
    if rounds:
        low, high = whole(min(rounds)), whole(max(rounds))
        told += f"; round {low}" + f" to {high}" * (low != high) + (f" of {whole(max(of))}" if of else "")
    return told


def content(statuses: Sequence[Status]) -> str:
    labels = labels_of(statuses)
    readings = [status.reading for status in statuses if status.reading]
    experiment, algorithm, run = (
        distinct(getattr(reading, what) for reading in readings) for what in ("experiment", "algorithm", "run")
    )
    title = experiment if experiment != "–" else "Peers"
    lead = f"{len(statuses)} peers" + f" train with {algorithm}" * (algorithm != "–") + f", run {run}" * (run != "–")
    return f"""<h1>{safe(title)}</h1>
<p class="lead">{safe(lead)}.</p>
{_attention(statuses)}
{table(labels, statuses)}
{curves(labels, statuses)}
"""


def _attention(statuses: Sequence[Status]) -> str:
    sentences = attention(statuses)
    if not sentences:
        asking = any(status.trouble for status in statuses if not status.has_ended)
        return f'<p class="calm">{"Asking the peers." if asking else "Nothing needs attention."}</p>'
    more = len(sentences) - MOST_SENTENCES
    shown = [*sentences[:MOST_SENTENCES], *([f"and {more} more"] if more > 0 else [])]
    items = "".join(f"<li>{safe(sentence)}</li>\n" for sentence in shown)
    return f'<section aria-label="What needs attention"><ul class="attention">\n{items}</ul></section>'


def table(labels: Sequence[str], statuses: Sequence[Status]) -> str:
    readings = [status.reading or Reading() for status in statuses]
    metrics = {reading.metric for reading in readings if reading.metric}
    metric = metrics.pop() if len(metrics) == 1 else "score"
    shown = [
        column
        for column in columns(metric)
        if column.always or any(column.text(reading) not in ("–", "0", "0 B") for reading in readings)
    ]
    rows = []
    for label, status, reading in zip(labels, statuses, readings, strict=True):
        kind = "quiet" if status.has_ended else "bad" if status.trouble else "fine"
        told = f'<span class="phase {kind}">{safe(state(status))}</span>'
        rows.append((label, [told, *(safe(column.text(reading)) for column in shown)]))
    heads = [Head("", "state", "state"), *(column.head for column in shown)]
    note = f"Of a peer that does not answer, what it said last. {metric.capitalize()}: of its last evaluation. "
    note += "Bytes per round: the mean over its rounds."
    return f'<div class="peers">\n{drawn("peer", heads, rows, "Peers")}\n</div>\n<p class="note">{safe(note)}</p>'


def columns(metric: str) -> list[Column]:
    """All that a table can have after the state, in order."""

    def of(name: str, text: Text) -> Callable[[Reading], str]:
        return lambda reading: known(reading[name], text)

    def per_round(name: str) -> Callable[[Reading], str]:
        return lambda reading: known(reading[name] / reading["round"] if reading["round"] > 0 else nan, size)

    def of_all(some: str, all: str) -> Callable[[Reading], str]:
        return lambda reading: known(reading[some], whole) + f" of {whole(reading[all])}" * isfinite(reading[all])

    def late(reading: Reading) -> str:
        return known(reading["late_used"] + reading["late_dropped"], whole)

    sent, received, messages = "bytes sent", "bytes received", "messages"
    return [
        Column(Head("", "round", "round", is_main=True), of_all("round", "rounds")),
        Column(Head("", "training loss", "training loss"), of("train_loss", plain)),
        Column(Head("", metric, metric), lambda reading: known(reading.score, metric_text(metric))),
        Column(Head(sent, "per round", "sent per round"), per_round("bytes_out")),
        Column(Head(sent, "total", "sent"), of("bytes_out", size)),
        Column(Head(sent, "resent", "resent"), of("bytes_resent", size), always=False),
        Column(Head(sent, "relayed", "relayed"), of("relayed_bytes", size), always=False),
        Column(Head(received, "per round", "received per round"), per_round("bytes_in")),
        Column(Head(received, "total", "received"), of("bytes_in", size)),
        Column(Head(messages, "missing", "messages missing"), of("missing", whole)),
        Column(Head(messages, "late", "messages late"), late),
        Column(Head(messages, "lost", "messages lost"), of("lost_out", whole)),
        Column(Head("", "neighbours up", "neighbours up"), of_all("neighbours_alive", "neighbours")),
        Column(Head("", "checkpoints", "checkpoints"), of("checkpoints", whole)),
        Column(Head("", "memory", "memory"), of(MEMORY, size)),
    ]


def known(value: float, text: Text) -> str:
    return text(value) if isfinite(value) else "–"


def curves(labels: Sequence[str], statuses: Sequence[Status]) -> str:
    """Round, training loss and metric over time; a chart of which nobody has a point is left out."""
    runs: dict[str, list[Run]] = {
        label: [{float(i): point._asdict() for i, point in enumerate(status.points)}]
        for label, status in zip(labels, statuses, strict=True)
    }
    metric = distinct(status.reading.metric for status in statuses if status.reading)
    charts = [
        Chart("Round", "rounds that are complete", WATCHED, "round", plain, linear=True),
        Chart("Training loss", "mean over the local steps of a round", WATCHED, "train_loss", plain),
        Chart(
            metric.capitalize() if metric != "–" else "Evaluation",
            "of each peer's model on the test samples",
            WATCHED, "score", metric_text(metric),
        ),
    ]  # fmt: skip
    drawable = [
        chart for chart in charts if any(isfinite(row[chart.y]) for (run,) in runs.values() for row in run.values())
    ]
    if not drawable:
        return ""
    figures = "\n".join(draw(chart, runs) for chart in drawable)
    return f'{legend(labels)}\n<section class="charts small">\n{figures}\n</section>'
