"""Lines over rounds, bytes, seconds or energy: one per label, the mean of its seeds, with their range as a band."""

from math import isfinite, nan
from statistics import fmean
from typing import NamedTuple

from gossamer.runs.report.curve import Run
from gossamer.runs.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    Plane,
    apart,
    axis,
    dot,
    empty,
    figure,
    numbers_table,
    path,
    text,
    thinned,
    unbroken,
)
from gossamer.runs.report.text import TICKS, Text, duration, joules, key, plain, safe, size, tags

MOST_TAGS = 16  # more labels than these cannot stand beside their lines


class Point(NamedTuple):
    x: float
    y: float
    low: float  # of the band
    high: float


class Scale(NamedTuple):
    """What stands on the x axis."""

    key: str  # of a run's rows
    name: str
    text: Text
    said: str  # a value in a sentence
    log: bool = False


ROUNDS = Scale("round", "round", lambda value: f"{value:g}", "round {}")
BYTES = Scale("sent", "bytes sent per node", size, "{} sent per node", log=True)
SECONDS = Scale("elapsed", "time of this machine", duration, "after {}")
CLOCK = Scale("clock_seconds", "virtual time", duration, "after {} of virtual time")
ENERGY = Scale("energy_joules_mean", "energy per node", joules, "{} per node")


class Chart(NamedTuple):
    title: str
    note: str
    x: Scale
    y: str  # a key of a run's rows
    text: Text  # how a y value is written
    band: tuple[str, str] = ("", "")  # keys of its edges when there is one seed
    linear: bool = False  # however far apart the values are


Lines = dict[str, list[Point]]  # by label


def points(chart: Chart, runs: list[Run], most: int) -> list[Point]:
    """The line over the rounds that all seeds have. A seed that failed leaves a gap rather than a better mean."""
    line = []
    for at in sorted(set.intersection(*({at for at, row in run.items() if chart.y in row} for run in runs))):
        x, ys = fmean(run[at].get(chart.x.key, nan) for run in runs), [run[at][chart.y] for run in runs]
        low, high = (runs[0][at].get(edge, nan) for edge in chart.band) if len(runs) == 1 else (min(ys), max(ys))
        line.append(Point(x, fmean(ys), low, high))
    return thinned(line, most)


def draw(chart: Chart, runs: dict[str, list[Run]]) -> str:
    most = max(60, min(300, 1200 // max(1, len(runs))))  # fewer points of many labels, so that the page stays small
    lines = {label: points(chart, of, most) for label, of in runs.items()}
    drawn = [point for line in lines.values() for point in line if isfinite(point.x + point.y)]
    if not drawn:
        return empty(chart.title, chart.note)
    plane = _plane(chart, lines, drawn)
    ends = {
        name: at for name, line in lines.items() for point in line if isfinite(sum(at := plane.at(point.x, point.y)))
    }
    order = sorted(ends, key=lambda name: ends[name][1]) if len(ends) <= MOST_TAGS else []
    heights = dict(zip(order, apart([ends[name][1] for name in order]), strict=True))
    names = tags(lines)
    body = frame(plane, chart)
    for index, (name, line) in enumerate(lines.items()):
        body += f'<g class="{key(index)}" data-name="{safe(name)}">{trace(plane, chart, name, line)}'
        if name in ends:
            body += dot("end", ends[name], 2.6)
        if name in heights:
            leader = path([ends[name], (plane.right + 3, ends[name][1]), (plane.right + 10, heights[name])])
            body += f'<path class="leader" d="{leader}"/>' + text(plane.right + 12, heights[name] + 4, names[name])
        body += "</g>\n"
    last = (f"{name} {chart.text(line[-1].y)}" for name, line in lines.items() if line and isfinite(line[-1].y))
    kind = "chart" + " many" * (len(lines) > 6) + " crowd" * (len(lines) > 12)  # lighter bands; none until pointed at
    said = f"At the end: {'; '.join(last)}."
    return figure(chart.title, chart.note, said, body, kind=kind, below=_table(chart, lines), x=chart.x.said)


def _plane(chart: Chart, lines: Lines, drawn: list[Point]) -> Plane:
    """Axes that hold what is drawn."""
    heights = [value for point in drawn for value in point[1:] if isfinite(value)]
    heights += [0.0] * (chart.text is size)  # small swings in bytes should look small
    positive = [value for value in heights if value > 0]
    linear = chart.linear or chart.y.endswith("_mean")
    log = not linear and max(positive, default=1.0) > 100 * min(positive, default=1.0)
    across = [point.x for point in drawn if not chart.x.log or point.x > 0]
    x = axis(across, log=chart.x.log, from_zero=not chart.x.log, whole=chart.x is ROUNDS)
    tagged = len(lines) <= MOST_TAGS
    widest = max(len(tag) for name, tag in tags(lines).items() if lines[name]) if tagged else 0
    return Plane(x, axis(positive if log else heights, log), WIDTH - 16 - 7.2 * widest)


def trace(plane: Plane, chart: Chart, name: str, line: list[Point]) -> str:
    """Band and line. A line says what it shows at every point, for the script."""
    body = ""
    edges: list[tuple[float, ...]] = [
        (*plane.at(point.x, point.low), plane.at(point.x, point.high)[1]) for point in line
    ]
    for run in unbroken(edges):
        outline = [edges[i][:2] for i in run] + [(edges[i][0], edges[i][2]) for i in reversed(run)]
        body += f'<path class="band" d="{path(outline)}Z"/>'
    places: list[tuple[float, ...]] = [plane.at(point.x, point.y) for point in line]
    for run in unbroken(places):
        at = ";".join(chart.x.text(line[i].x) for i in run)
        values = ";".join(chart.text(line[i].y) for i in run)
        body += f'<path class="line" d="{path([places[i] for i in run])}" data-at="{at}" data-is="{values}">'
        last = f"{name}, {chart.x.said.format(chart.x.text(line[run[-1]].x))}: {chart.text(line[run[-1]].y)}"
        body += f"<title>{safe(last)}</title></path>"
    return body


def frame(plane: Plane, chart: Chart) -> str:
    """Grid, ticks and the name of the x axis."""
    body, x_text, y_text = "", TICKS.get(chart.x.text, chart.x.text), TICKS.get(chart.text, chart.text)
    for tick in plane.y.ticks:
        _, y = plane.at(plane.x.low, tick)
        body += f'<path class="grid" d="M{LEFT} {y:.1f}H{plane.right:.1f}"/>'
        body += text(LEFT - 7, y + 4, y_text(tick), "end", "tick")
    for tick in plane.x.ticks:
        x, _ = plane.at(tick, plane.y.low)
        body += f'<path class="axis" d="M{x:.1f} {BOTTOM}v4"/>' + text(x, BOTTOM + 17, x_text(tick), "middle", "tick")
    body += f'<path class="axis" d="M{LEFT} {BOTTOM}H{plane.right:.1f}"/>'
    body += text((LEFT + plane.right) / 2, HEIGHT - 5, chart.x.name, "middle", "tick")
    return body + f'<path class="rule" d="M0 {TOP}V{BOTTOM}"/>\n'


def _table(chart: Chart, lines: Lines) -> str:
    """By round one column per label; else one row per point, since each label has x values of its own."""
    if chart.x is ROUNDS:
        by_round = {name: {point.x: point.y for point in line} for name, line in lines.items()}
        rounds = thinned(sorted({point.x for line in lines.values() for point in line}), 12)
        cells = [[plain(at), *(_cell(chart, of.get(at, nan)) for of in by_round.values())] for at in rounds]
        return numbers_table(["round", *lines], cells)
    rows = [
        [name, chart.x.text(point.x), _cell(chart, point.y)]
        for name, line in lines.items()
        for point in thinned(line, max(2, 60 // len(lines)))
        if isfinite(point.x)
    ]
    return numbers_table(["", chart.x.name, chart.title.split(" by ")[0].lower()], rows)


def _cell(chart: Chart, value: float) -> str:
    return chart.text(value) if isfinite(value) else "–"
