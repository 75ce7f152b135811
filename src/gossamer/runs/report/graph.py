"""The graph: nodes coloured by their last metric, as large as their share of the data."""

from functools import lru_cache
from math import cos, isfinite, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from gossamer.runs.nodes import Nodes
from gossamer.runs.report.curve import Groups, are_peers
from gossamer.runs.report.node_charts import last_by_node
from gossamer.runs.report.svg import WIDTH, figure, numbers_table, rectangle, text
from gossamer.runs.report.text import metric_text, number, safe

SIDE = 400  # of the square that the graph is drawn in
MOST_NODES, MOST_LINKS, MOST_DRAWN = 128, 1500, 400  # of a graph; nodes of all graphs
LEVELS = 6  # of colour


def graphs(groups: Groups, metric: str) -> list[str]:
    """The graph of each label's first seed, as long as the page does not grow too large; of peers one."""
    if are_peers(groups):
        return _of_peers(groups, metric)
    found, drawn = [], 0
    for label, curves in groups.items():
        nodes, values = curves[0].nodes, last_by_node(curves[0], metric)
        count = _count(nodes)
        if nodes.links and count <= MOST_NODES and drawn + count <= MOST_DRAWN:
            found.append(draw(f"Graph, {label}" if len(groups) > 1 else "Graph", nodes, values, metric))
            drawn += count
    return found


def _of_peers(groups: Groups, metric: str) -> list[str]:
    """Every peer is a node of the same graph, if they are of one run."""
    curves = [curve for of in groups.values() for curve in of]
    numbered = {number(line.get("node")): curve for curve in curves for line in curve.metrics[-1:]}
    alike = all(curve.nodes.links == curves[0].nodes.links for curve in curves)
    known = all(map(isfinite, numbered)) and len(numbered) == len(curves)
    if not (alike and known and curves[0].nodes.links and _count(curves[0].nodes) <= MOST_NODES):
        return []
    values = {int(node): number(curve.result.get(f"{metric}_mean")) for node, curve in numbered.items()}
    return [draw("Graph", curves[0].nodes, {node: v for node, v in values.items() if isfinite(v)}, metric)]


def _count(nodes: Nodes) -> int:
    return max([len(nodes.samples), *(1 + max(link) for link in nodes.links)])


def draw(title: str, nodes: Nodes, values: dict[int, float], metric: str) -> str:
    """Links as one path, nodes as circles with a title each."""
    count, write = _count(nodes), metric_text(metric)
    places = layout(count, nodes.links)
    largest = min(13.0, 90 / sqrt(count))
    most = max(nodes.samples, default=0)
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    shown = nodes.links if len(nodes.links) <= MOST_LINKS else ()
    body = _links(shown, places, nodes.directed)
    rows = []
    for node, (x, y) in enumerate(places):
        share = nodes.samples[node] / most if most and node < len(nodes.samples) else 1.0
        radius = max(largest * sqrt(share), 2.5)
        level = min(LEVELS - 1, int((values[node] - low) / (high - low or 1.0) * LEVELS)) if node in values else None
        value = write(values[node]) if node in values else "not tested"
        data = f"{nodes.samples[node]} samples" if node < len(nodes.samples) else ""
        told = ", ".join(filter(None, (f"node {node}: {value}", data, _most_frequent(nodes, node))))
        body += f'<g class="node"><circle class="{"v" if level is None else f"v{level}"}" cx="{x:.1f}" cy="{y:.1f}" '
        body += f'r="{radius:.1f}"/>'
        if largest >= 11:
            body += text(x, y + 3.5, str(node), "middle", "dark" if level is not None and level >= 3 else "light")
        body += f"<title>{safe(told)}</title></g>\n"
        rows.append([str(node), value, data or "–"])
    body += _scale(low, high, metric) if values else ""
    links = f"{len(nodes.links)} {'directed ' * nodes.directed}link{'s' * (len(nodes.links) != 1)}"
    over = f" over the first {nodes.exchanges} exchanges" if nodes.exchanges > 1 else ""
    by_size = ", size by number of samples" if nodes.samples and min(nodes.samples) < 0.9 * most else ""
    hidden = "; too many links to draw" * (len(shown) < len(nodes.links))
    note = f"{count} nodes, {links}{over}; colour by {metric.replace('_', ' ')}{by_size}{hidden}"
    said = f"From {write(low)} to {write(high)}." if values else "No node was tested."
    below = numbers_table(["node", metric.replace("_", " "), "samples"], rows)
    return figure(title, note, said, body, SIDE + 34, "graph", below)


def _most_frequent(nodes: Nodes, node: int) -> str:
    """The labels that a node has most of."""
    if node >= len(nodes.counts):
        return ""
    pairs = sorted(zip(nodes.counts[node], nodes.labels, strict=True), key=lambda pair: -pair[0])[:3]
    return "labels " + ", ".join(f"{label} ({count})" for count, label in pairs if count)


def _links(links: tuple[tuple[int, int], ...], places: NDArray[np.float64], directed: bool) -> str:
    """From rim to rim is not needed: nodes cover the ends. A directed link has a short stroke at its receiver's end."""
    drawn = "".join(f"M{places[a, 0]:.0f} {places[a, 1]:.0f}L{places[b, 0]:.0f} {places[b, 1]:.0f}" for a, b in links)
    heads = ""
    for a, b in links if directed else ():
        near, far = 0.62 * places[b] + 0.38 * places[a], 0.5 * places[b] + 0.5 * places[a]
        heads += f"M{far[0]:.0f} {far[1]:.0f}L{near[0]:.0f} {near[1]:.0f}"
    return f'<path class="links" d="{drawn}"/>' + f'<path class="heads" d="{heads}"/>' * bool(heads)


def _scale(low: float, high: float, metric: str) -> str:
    """The colours from the lowest to the highest value."""
    write, y, left = metric_text(metric), SIDE + 12, WIDTH / 2 - 60
    boxes = "".join(rectangle(f"v{level}", left + 20 * level, y, 20, 9) for level in range(LEVELS))
    return text(left - 8, y + 9, write(low), "end", "tick") + boxes + text(left + 128, y + 9, write(high), kind="tick")


@lru_cache(16)  # a live page draws the same graph again and again
def layout(count: int, links: tuple[tuple[int, int], ...]) -> NDArray[np.float64]:
    """(n, 2): a circle where no node has more than two neighbours or all are linked, else by springs from there."""
    at = np.array([(cos(2 * pi * i / count - pi / 2), sin(2 * pi * i / count - pi / 2)) for i in range(count)])
    near = np.zeros((count, count))
    for a, b in links:
        near[a, b] = near[b, a] = 1.0
    if 2 < near.sum(1).max(initial=0) < 0.7 * count:
        ideal = 2 / sqrt(count)
        for step in range(200):  # Fruchterman and Reingold: all push, links pull
            gaps = at[:, None] - at[None]
            distances = np.maximum(np.linalg.norm(gaps, axis=-1), 0.01)
            force = (gaps * (ideal**2 / distances**2 - near * distances / ideal)[..., None]).sum(1)
            lengths = np.maximum(np.linalg.norm(force, axis=-1, keepdims=True), 1e-9)
            at = at + force / lengths * np.minimum(lengths, 0.15 * (1 - step / 200))
    at = at - (at.min(0) + at.max(0)) / 2
    margin, half = 18, SIDE / 2
    scaled = at / max(np.abs(at).max(initial=0), 1e-9) * (half - margin)
    return np.asarray(scaled + np.array([WIDTH / 2, half]))
