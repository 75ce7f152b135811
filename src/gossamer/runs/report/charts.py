"""The charts of a report: SVG, drawn from plain numbers."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from math import ceil, floor, isfinite, log10, nan
from statistics import fmean
from typing import Any, NamedTuple

from gossamer.runs.report.text import TICKS, Text, colour, metric_text, number, plain, safe, short, size


class Curve(NamedTuple):
    """One run."""

    label: str  # runs with the same label are seeds of one experiment
    metrics: list[dict[str, Any]]  # the lines of metrics.jsonl, one per round
    experiment: dict[str, Any]  # nested, as in experiment.toml
    result: dict[str, Any]  # the final JSON object


Groups = dict[str, list[Curve]]  # by label, in order of appearance
Run = dict[float, dict[str, float]]  # a curve's numbers: by round, then by name


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 440, 270, 56, 8, 232  # of a drawing, and the edges of the plot in it but the right


class Axis(NamedTuple):
    """A range of values, and the ticks on it."""

    low: float
    high: float
    ticks: list[float]
    log: bool

    def at(self, value: float) -> float:
        """Where the value lies, 0 at the low end and 1 at the high end; NaN if it has no place here."""
        if self.log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low)) if value > 0 else nan
        return (value - self.low) / (self.high - self.low)


class Plane(NamedTuple):
    x: Axis
    y: Axis
    right: float  # edge of the plot; labels stand beyond it

    def at(self, x: float, y: float) -> tuple[float, float]:
        return LEFT + (self.right - LEFT) * self.x.at(x), BOTTOM - (BOTTOM - TOP) * self.y.at(y)


class Point(NamedTuple):
    x: float
    y: float
    low: float  # of the band
    high: float


class Chart(NamedTuple):
    title: str
    note: str
    x: str  # "round" or "sent"
    y: str  # a key of a run's rows
    text: Text  # how a y value is written
    band: tuple[str, str] = ("", "")  # keys of its edges when there is one seed


def charts(groups: Groups, metric: str) -> str:
    text, name = metric_text(metric), metric.replace("_", " ").capitalize()
    spread = "range over seeds" if any(len(curves) > 1 for curves in groups.values()) else "range over nodes"
    mean, band = f"{metric}_mean", (f"{metric}_min", f"{metric}_max")
    note = f"mean over nodes; band: {spread}"
    lines = [
        Chart(f"{name} by round", note, "round", mean, text, band),
        Chart(f"{name} by bytes sent", note, "sent", mean, text, band),
        Chart("Training loss", "mean over nodes", "round", "train_loss", plain),
        Chart("Consensus distance", "how far the nodes’ models are from their mean", "round", "divergence", plain),
        Chart("Bytes over time", "sent by a node in a round, mean over nodes", "round", "total", size),
    ]
    runs = {label: [numbers(curve) for curve in curves] for label, curves in groups.items()}
    if are_peers(groups):  # none sees the others' models
        return "\n".join(draw(chart._replace(note="of each peer"), runs) for chart in lines if chart.y != "divergence")
    return "\n".join([*(draw(chart, runs) for chart in lines), bars(runs)])


def are_peers(groups: Groups) -> bool:
    """Is every curve a peer's?"""
    return bool(groups) and all("peer" in curve.result for curves in groups.values() for curve in curves)


def numbers(curve: Curve) -> Run:
    """A run's numbers, with bytes per node beside them: "sent" so far, "total" and its parts in the round."""
    nodes = number(curve.result.get("nodes", curve.experiment.get("nodes"))) or nan
    lines = [{key: number(value) for key, value in line.items()} for line in curve.metrics]
    for line in lines:
        line |= {part: line.get(f"bytes_{part}", nan) / nodes for part in ("sent", "total", *PARTS)}
    return {line["round"]: line for line in lines if isfinite(line.get("round", nan))}


def points(chart: Chart, runs: list[Run]) -> list[Point]:
    """The line over the rounds that all seeds have. A seed that failed leaves a gap rather than a better mean."""
    line = []
    for at in sorted(set.intersection(*({at for at, row in run.items() if chart.y in row} for run in runs))):
        x, ys = fmean(run[at][chart.x] for run in runs), [run[at][chart.y] for run in runs]
        low, high = (runs[0][at].get(edge, nan) for edge in chart.band) if len(runs) == 1 else (min(ys), max(ys))
        line.append(Point(x, fmean(ys), low, high))
    return thinned(line, 400)


def thinned(items: list[Point], most: int) -> list[Point]:
    """At most so many of them, evenly, the last one included."""
    return items[:: -max(1, ceil(len(items) / most))][::-1]


def axis(values: list[float], log: bool = False, rounds: bool = False) -> Axis:
    """An axis that holds the values, with about five ticks at round numbers."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    if log:
        margin = 10 ** (0.04 * (log10(high) - log10(low))) if high > 1.5 * low else 1.5
        low, high = low / margin, high * margin
        decades = log10(high) - log10(low)
        mantissas = (
            (1,)
            if decades > 2.5
            else (1, 3)
            if decades > 1.2
            else (1, 2, 5)
            if decades > 0.6
            else (1, 1.5, 2, 3, 4, 6, 8)
        )
        powers = range(floor(log10(low)), ceil(log10(high)) + 1, ceil(decades / 6))
        ticks = [mantissa * 10.0**power for power in powers for mantissa in mantissas]
        return Axis(low, high, [tick for tick in ticks if low <= tick * 1.001 and tick <= high * 1.001], log)
    if rounds:
        low, high = 0.0, max(high, 1.0)
    else:
        margin = 0.06 * (high - low) if high - low > 1e-9 * abs(high) else abs(high) / 10 or 1.0
        low, high = 0.0 if 0 <= low < max(margin, 0.3 * high) else low - margin, high + margin
    scale = 10.0 ** floor(log10((high - low) / 5))
    step = next(step for step in (scale, 2 * scale, 5 * scale, 10 * scale) if (high - low) / step <= 5.5)
    step = max(step, 1.0) if rounds else step
    return Axis(low, high, [step * i for i in range(ceil(low / step), floor(high / step + 1e-6) + 1)], log)


def draw(chart: Chart, runs: dict[str, list[Run]]) -> str:
    lines = {label: points(chart, of) for label, of in runs.items()}
    drawn = [point for line in lines.values() for point in line if isfinite(point.x + point.y)]
    if not drawn:
        return figure(
            chart.title, chart.note, "Nothing was measured.", text(WIDTH / 2, 120, "no data", "middle", "tick")
        )
    heights = [value for point in drawn for value in point[1:] if isfinite(value)]
    heights += [0.0] * (chart.text is size)  # small swings in bytes should look small
    positive = [value for value in heights if value > 0]
    log = not chart.y.endswith("_mean") and max(positive, default=1.0) > 100 * min(positive, default=1.0)
    by_round = chart.x == "round"
    x = axis([point.x for point in drawn if by_round or point.x > 0], log=not by_round, rounds=by_round)
    widest = max(len(short(name)) for name, line in lines.items() if line)
    plane = Plane(x, axis(positive if log else heights, log), WIDTH - 16 - 7.6 * widest)
    ends = {
        name: at for name, line in lines.items() for point in line if isfinite(sum(at := plane.at(point.x, point.y)))
    }
    order = sorted(ends, key=lambda name: ends[name][1])
    tags = dict(zip(order, apart([ends[name][1] for name in order]), strict=True))
    body = frame(plane, "round" if by_round else "bytes sent per node", TICKS.get(chart.text, chart.text))
    for index, (name, line) in enumerate(lines.items()):
        body += f'<g class="{colour(index)}">{trace(plane, chart, name, line)}'
        if name in ends:
            leader = path([ends[name], (plane.right + 3, ends[name][1]), (plane.right + 10, tags[name])])
            body += f'<path class="leader" d="{leader}"/>{dot("end", ends[name], 2.8)}'
            body += text(plane.right + 12, tags[name] + 4, short(name))
        body += "</g>\n"
    last = (f"{name} {chart.text(line[-1].y)}" for name, line in lines.items() if line and isfinite(line[-1].y))
    return figure(chart.title, chart.note, f"At the end: {'; '.join(last)}.", body)


def trace(plane: Plane, chart: Chart, name: str, line: list[Point]) -> str:
    """Band, line, and points to hover over."""
    body = ""
    for run in unbroken([(*plane.at(point.x, point.low), plane.at(point.x, point.high)[1]) for point in line]):
        outline = [(x, low) for x, low, _ in run] + [(x, high) for x, _, high in reversed(run)]
        body += f'<path class="band" d="{path(outline)}Z"/>'
    for run in unbroken([plane.at(point.x, point.y) for point in line]):
        body += f'<path class="line" d="{path(run)}"/>'
    for point in thinned(line, 60):
        if isfinite(sum(at := plane.at(point.x, point.y))):
            where = f"round {point.x:g}" if chart.x == "round" else f"{size(point.x)} sent per node"
            body += dot("hit", at, 5, f"{name}, {where}: {chart.text(point.y)}")
    return body


def frame(plane: Plane, x_name: str, y_text: Text) -> str:
    """Grid, ticks and the name of the x axis."""
    body, x_text = "", TICKS[size] if plane.x.log else plain
    for tick in plane.y.ticks:
        _, y = plane.at(plane.x.low, tick)
        body += f'<path class="grid" d="M{LEFT} {y:.1f}H{plane.right:.1f}"/>'
        body += text(LEFT - 7, y + 4, y_text(tick), "end", "tick")
    for tick in plane.x.ticks:
        x, _ = plane.at(tick, plane.y.low)
        body += f'<path class="axis" d="M{x:.1f} {BOTTOM}v4"/>' + text(x, BOTTOM + 17, x_text(tick), "middle", "tick")
    body += f'<path class="axis" d="M{LEFT} {BOTTOM}H{plane.right:.1f}"/>'
    return body + text((LEFT + plane.right) / 2, HEIGHT - 5, x_name, "middle", "tick") + "\n"


PARTS = ("values", "indices", "header")


def bars(runs: dict[str, list[Run]]) -> str:
    """What a message is made of: one stacked bar per label."""
    means = {}
    for name, seeds in runs.items():
        rows = [row for run in seeds for row in run.values() if all(isfinite(row[part]) for part in PARTS)]
        if rows:
            means[name] = [fmean(row[part] for row in rows) for part in PARTS]
    longest = max(map(sum, means.values()), default=0.0) or 1.0
    body = ""
    for index, part in enumerate(PARTS):
        body += f'<rect class="p{index}" x="{90 * index}" y="4" width="10" height="10"/>' + text(
            90 * index + 15, 13, part
        )
    pitch = min(56, max(34, (HEIGHT - 30) / max(1, len(means))))
    for row, (name, sizes) in enumerate(means.items()):
        top, x = 30 + pitch * row, 0.0
        body += text(0, top + 11, short(name, 50))
        for index, mean in enumerate(sizes):
            width = mean / longest * (WIDTH - 75)
            body += f'<rect class="p{index}" x="{x:.1f}" y="{top + 16:.1f}" width="{width:.1f}" height="12">'
            body += f"<title>{safe(f'{name}, {PARTS[index]}: {size(mean)}')}</title></rect>"
            x += width
        body += text(x + 6, top + 26, size(sum(sizes)), kind="tick") + "\n"
    said = "; ".join(f"{name} {size(sum(sizes))}" for name, sizes in means.items())
    note = "sent by a node in a round, mean over nodes and rounds"
    return figure("What the bytes are", note, f"{said}.", body, max(HEIGHT, 34 + pitch * len(means)))


def figure(title: str, note: str, description: str, body: str, height: float = HEIGHT) -> str:
    return f"""<figure><figcaption>{safe(title)}<span>{safe(note)}</span></figcaption>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">
<title>{safe(title)}</title><desc>{safe(description)}</desc>
{body}
</svg></figure>"""


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "word") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(words)}</text>'


def dot(kind: str, at: tuple[float, float], radius: float, title: str = "") -> str:
    shape = f'<circle class="{kind}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius}"'
    return f"{shape}><title>{safe(title)}</title></circle>" if title else f"{shape}/>"


def path(places: Sequence[tuple[float, ...]]) -> str:
    """The h0 makes a lone point a dot."""
    return f"M{places[0][0]:.1f} {places[0][1]:.1f}h0" + "".join(f"L{x:.1f} {y:.1f}" for x, y in places[1:])


def unbroken(places: list[tuple[float, ...]]) -> Iterator[list[tuple[float, ...]]]:
    """The stretches without NaN."""
    return (list(stretch) for whole, stretch in groupby(places, lambda at: isfinite(sum(at))) if whole)


def apart(heights: list[float]) -> list[float]:
    """The ascending heights, moved as little as makes them a line of text apart, within the plot."""
    count = len(heights)
    gap = min(13.0, (BOTTOM - TOP) / max(1, count - 1))
    down = list(accumulate(heights, lambda last, height: max(height, last + gap)))
    up = list(accumulate(reversed(heights), lambda last, height: min(height, last - gap)))[::-1]
    middle = ((low + high) / 2 for low, high in zip(down, up, strict=True))
    return [min(max(at, TOP + gap * i), BOTTOM - gap * (count - 1 - i)) for i, at in enumerate(middle)]
