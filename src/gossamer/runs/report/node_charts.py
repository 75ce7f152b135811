"""Nodes one by one: how their last metrics are spread, and, on demand, the curve of each."""

from statistics import fmean

from gossamer.runs.report.curve import Curve, Evaluations, Groups, are_peers, by_node
from gossamer.runs.report.line_chart import ROUNDS, Chart, frame
from gossamer.runs.report.svg import WIDTH, Plane, axis, figure, numbers_table, path, text, thinned
from gossamer.runs.report.text import TICKS, key, metric_text, plain, safe, short

MOST_CURVES, MOST_POINTS = 960, 8_000  # of nodes on a page, and their points, so that it stays small
MOST_DOTS = 200  # of a label


def last_by_node(curve: Curve, metric: str) -> dict[int, float]:
    """The last metric of every node that was tested."""
    evaluations = by_node(curve, metric)
    return evaluations[-1][1] if evaluations else {}


def distribution(groups: Groups, metric: str) -> list[str]:
    """One row of dots per label, a dot per node; their mean is a bar."""
    if are_peers(groups):
        return []
    found = {}
    for label, curves in groups.items():
        values = sorted(value for curve in curves for value in last_by_node(curve, metric).values())
        if len(values) > 1:
            found[label] = values
    if not found:
        return []
    write, left, right = metric_text(metric), 12, WIDTH - 12
    x = axis([value for values in found.values() for value in values])
    pitch, bottom = 40, 16 + 40 * len(found)
    body = ""
    for tick in x.ticks:
        at = left + (right - left) * x.at(tick)
        body += f'<path class="grid" d="M{at:.1f} 6V{bottom}"/>'
        body += text(at, bottom + 15, TICKS.get(write, write)(tick), "middle", "tick")
    rows = []
    for row, (label, values) in enumerate(found.items()):
        y = 40 + pitch * row
        shown = thinned(values, MOST_DOTS) if len(values) > MOST_DOTS else values
        dots = "".join(f"M{left + (right - left) * x.at(value):.1f} {y}h0" for value in shown)
        mean = left + (right - left) * x.at(fmean(values))
        worst = fmean(values[: max(1, len(values) // 10)])
        numbers = [plain(len(values)), *map(write, (values[0], worst, values[len(values) // 2], values[-1]))]
        rows.append([label, *numbers])
        told = f"{label}: mean {write(fmean(values))}, worst tenth {write(worst)}, {numbers[1]} to {numbers[4]}"
        body += f'<g class="{key(list(groups).index(label))}">{text(left, y - 13, short(label, 60))}'
        body += f'<path class="dots" d="{dots}"/><path class="mean" d="M{mean:.1f} {y - 8}v16"/>'
        body += (
            f'<rect class="area" x="0" y="{y - 9}" width="{WIDTH}" height="18"><title>{safe(told)}</title></rect></g>\n'
        )
    name = metric.replace("_", " ").capitalize()
    heads = ["", "nodes", "least", "worst tenth", "median", "largest"]
    said = "; ".join(f"{row[0]}: {row[2]} to {row[5]}, worst tenth {row[3]}" for row in rows)
    note = "at the last evaluation: a dot per node, their mean a bar"
    below = numbers_table(heads, rows)
    return [figure(f"{name} over nodes", note, f"{said}.", body, bottom + 22, below=below)]


def curves_of_nodes(groups: Groups, metric: str) -> str:
    """A chart per label, of its first seed, each in a box to open."""
    if are_peers(groups):
        return ""
    measured = {label: by_node(curves[0], metric) for label, curves in groups.items()}
    each = max(16, MOST_CURVES // max(1, len(measured)))  # nodes of a label
    most = MOST_POINTS // max(1, sum(min(each, len(found[-1][1])) for found in measured.values() if found))
    boxes = ""
    for index, (label, found) in enumerate(measured.items()):
        if len(found) > 1 and len(found[-1][1]) > 1:
            chart = _nodes_chart(label, index, thinned(found, max(4, min(60, most))), metric, each)
            boxes += f"<details><summary>{safe(label)}: the curve of each node</summary>\n{chart}</details>\n"
    return boxes


def _nodes_chart(label: str, index: int, found: Evaluations, metric: str, most: int) -> str:
    """The curves of at most so many nodes, the least and the largest among them."""
    write = metric_text(metric)
    last = found[-1][1]
    ranked = sorted(last, key=lambda node: last[node])
    chosen = thinned(ranked, most)
    lines = {node: [(at, of[node]) for at, of in found if node in of] for node in chosen}
    values = [value for line in lines.values() for _, value in line]
    plane = Plane(axis([at for at, _ in found], from_zero=True, whole=True), axis(values), WIDTH - 20)
    body = frame(plane, Chart("", "", ROUNDS, f"{metric}_mean", write))
    for node, line in lines.items():
        told = f"node {node}: {write(last[node])} in round {found[-1][0]:g}"
        drawn = path([plane.at(*point) for point in line])
        body += f'<path class="thin" d="{drawn}"><title>{safe(told)}</title></path>'
    some = f"{len(chosen)} of {len(ranked)} nodes, from the least to the largest" if len(chosen) < len(ranked) else ""
    note = some or f"{len(chosen)} nodes"
    rows = [[str(node), write(last[node])] for node in chosen]
    below = numbers_table(["node", "in the last evaluation"], rows)
    least, largest = ranked[0], ranked[-1]
    said = f"At the end from {write(last[least])}, node {least}, to {write(last[largest])}, node {largest}."
    body = f'<g class="{key(index)}">{body}</g>'
    return figure(f"{label}: {metric.replace('_', ' ')} of each node", note, said, body, below=below)
