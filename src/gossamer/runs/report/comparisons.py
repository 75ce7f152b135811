"""Charts with one mark per label: accuracy against bytes, before and after settling, what messages are made of."""

from math import isfinite
from statistics import fmean

from gossamer.runs.report.curve import PARTS, Curve, Groups, Run
from gossamer.runs.report.line_chart import BYTES, MOST_TAGS, Chart, frame
from gossamer.runs.report.svg import (
    HEIGHT,
    WIDTH,
    Plane,
    axis,
    dot,
    figure,
    numbers_table,
    path,
    rectangle,
    text,
)
from gossamer.runs.report.text import key, metric_text, number, safe, short, size, tags


def pareto(groups: Groups, metric: str) -> list[str]:
    """The last metric against the bytes of the whole run, with the runs that no other one beats in both."""
    ends = {label: [end for curve in curves if (end := _end(curve, metric))] for label, curves in groups.items()}
    means = {label: (fmean(x for x, _ in of), fmean(y for _, y in of)) for label, of in ends.items() if of}
    if len(means) < 2:
        return []
    write = metric_text(metric)
    higher = all(curve.result.get("higher_is_better", True) for curves in groups.values() for curve in curves)
    every = [end for of in ends.values() for end in of]
    names = tags(groups)
    tagged = len(means) <= MOST_TAGS
    right = WIDTH - 16 - (7.2 * max(map(len, names.values())) if tagged else 0)
    plane = Plane(axis([x for x, _ in every], log=True), axis([y for _, y in every]), right)
    name = metric.replace("_", " ").capitalize()
    note = "at the end of each run; the line joins those that no other beats in both"
    body = frame(plane, Chart("", "", BYTES, f"{metric}_mean", write))
    front = _front(list(means.values()), higher)
    body += f'<path class="front" d="{path([plane.at(*end) for end in front])}"/>'
    for index, label in enumerate(groups):
        if label not in means:
            continue
        at = plane.at(*means[label])
        seeds = "".join(dot("seed", plane.at(*end), 2) for end in ends[label]) * (len(ends[label]) > 1)
        said = f"{label}: {write(means[label][1])} with {size(means[label][0])} sent per node"
        body += f'<g class="{key(index)}">{seeds}{dot("end", at, 4.5, said)}'
        body += (text(at[0] + 8, at[1] + 4, names[label]) if tagged else "") + "</g>\n"
    on_front = [label for label, end in means.items() if end in front]
    rows = [[label, size(x), write(y), "yes" if label in on_front else "no"] for label, (x, y) in means.items()]
    below = numbers_table(["", "bytes sent per node", metric.replace("_", " "), "unbeaten"], rows)
    return [figure(f"{name} against bytes", note, f"Unbeaten: {'; '.join(on_front)}.", body, below=below)]


def _end(curve: Curve, metric: str) -> tuple[float, float] | None:
    """Bytes per node and the metric."""
    sent, nodes = number(curve.result.get("bytes_total")), number(curve.result.get("nodes"))
    value = number(curve.result.get(f"{metric}_mean"))
    return (sent / nodes, value) if sent > 0 and nodes > 0 and isfinite(value) else None


def _front(ends: list[tuple[float, float]], higher: bool) -> list[tuple[float, float]]:
    """By bytes: each is better than all that sent less."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(ends, key=lambda end: (end[0], -end[1] if higher else end[1])):
        if not front or (y > front[-1][1] if higher else y < front[-1][1]):
            front.append((x, y))
    return front


def settling(groups: Groups, metric: str) -> list[str]:
    """The metric before and after the last rounds, which exchange without training."""
    found = {}
    for label, curves in groups.items():
        before = [number(curve.result.get(f"{metric}_mean_before_settle")) for curve in curves]
        after = [number(curve.result.get(f"{metric}_mean")) for curve in curves]
        if all(map(isfinite, before + after)):
            found[label] = fmean(before), fmean(after)
    if not found:
        return []
    write, left, right, pitch = metric_text(metric), 12, WIDTH - 70, 34
    x = axis([value for both in found.values() for value in both])
    body = ""
    for row, (label, both) in enumerate(found.items()):
        y = 30 + pitch * row
        a, b = (left + (right - left) * x.at(value) for value in both)
        body += f'<g class="{key(list(groups).index(label))}">{text(0, y - 9, short(label, 60))}'
        body += f'<path class="grid" d="M{left} {y}H{right}"/><path class="line" d="M{a:.1f} {y}H{b:.1f}"/>'
        body += dot("hollow", (a, y), 4, f"{label}, before: {write(both[0])}")
        body += dot("end", (b, y), 4.5, f"{label}, after: {write(both[1])}")
        body += text(max(a, b) + 10, y + 4, f"{write(both[0])} → {write(both[1])}", kind="tick") + "</g>\n"
    rows = [[label, write(before), write(after)] for label, (before, after) in found.items()]
    said = "; ".join(f"{label} from {before} to {after}" for label, before, after in rows)
    name = metric.replace("_", " ").capitalize()
    note = "○ before and ● after the last rounds, which exchange without training"
    below = numbers_table(["", "before", "after"], rows)
    return [figure(f"{name} before and after settling", note, f"{said}.", body, 14 + pitch * len(found), below=below)]


def parts_of_messages(runs: dict[str, list[Run]]) -> str:
    """What a message is made of: one stacked bar per label."""
    means = {}
    for name, seeds in runs.items():
        rows = [row for run in seeds for row in run.values() if all(isfinite(row[part]) for part in PARTS)]
        if rows:
            means[name] = [fmean(row[part] for row in rows) for part in PARTS]
    longest = max(map(sum, means.values()), default=0.0) or 1.0
    body = "".join(
        rectangle(f"p{index}", 90 * index, 4, 10, 10) + text(90 * index + 15, 13, part)
        for index, part in enumerate(PARTS)
    )
    pitch = min(56, max(34, (HEIGHT - 30) / max(1, len(means))))
    for row, (name, sizes) in enumerate(means.items()):
        top, x = 30 + pitch * row, 0.0
        body += f'<g class="k k{list(runs).index(name)}">{text(0, top + 11, short(name, 60))}'
        for index, mean in enumerate(sizes):
            width = mean / longest * (WIDTH - 75)
            body += rectangle(f"p{index}", x, top + 16, width, 12, f"{name}, {PARTS[index]}: {size(mean)}")
            x += width
        body += text(x + 6, top + 26, size(sum(sizes)), kind="tick") + "</g>\n"
    said = "; ".join(f"{safe(name)} {size(sum(sizes))}" for name, sizes in means.items())
    note = "sent by a node in a round, mean over nodes and rounds"
    below = numbers_table(["", *PARTS], [[name, *map(size, sizes)] for name, sizes in means.items()])
    return figure("What the bytes are", note, f"{said}.", body, max(80, 34 + pitch * len(means)), below=below)
