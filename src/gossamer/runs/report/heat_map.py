"""Which labels each node has: a heat map, labels by nodes."""

from gossamer.runs.nodes import Nodes
from gossamer.runs.report.curve import Groups
from gossamer.runs.report.svg import WIDTH, figure, numbers_table, text
from gossamer.runs.report.text import safe, setting

MOST_NODES, MOST_MAPS, LEVELS = 256, 2, 6
LEFT, TOP = 34, 6


def heat_maps(groups: Groups) -> list[str]:
    """One per way in which data are spread over nodes, of the first seed of each label."""
    different: dict[tuple[tuple[int, ...], ...], tuple[str, Nodes]] = {}
    for label, curves in groups.items():
        nodes = curves[0].nodes
        if nodes.labels and 0 < len(nodes.counts) <= MOST_NODES:
            different.setdefault(nodes.counts, (label, nodes))
    several = len(different) > 1
    found = list(different.values())[:MOST_MAPS]
    return [draw(f"Labels of nodes, {label}" if several else "Labels of nodes", nodes) for label, nodes in found]


def draw(title: str, nodes: Nodes) -> str:
    """A path per colour; over it, for titles, a column per node."""
    count, kinds = len(nodes.counts), len(nodes.labels)
    width, height = (WIDTH - LEFT - 6) / count, min(22.0, max(5.0, 240 / kinds))
    most = max((max(of) for of in nodes.counts), default=0) or 1
    cells = [""] * (LEVELS + 1)
    for node, of in enumerate(nodes.counts):
        for kind, samples in enumerate(of):
            level = -(-samples * LEVELS // most)  # 0: none of this label
            cells[level] += (
                f"M{LEFT + width * node:.1f} {TOP + height * kind:.1f}h{width:.2f}v{height:.1f}h{-width:.2f}z"
            )
    body = "".join(f'<path class="v{level - 1}" d="{d}"/>' for level, d in enumerate(cells) if level and d)
    bottom = TOP + height * kinds
    body += f'<rect class="box" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - 6}" height="{bottom - TOP:.1f}"/>'
    for kind in range(0, kinds, -(-kinds // 20)):
        body += text(LEFT - 6, TOP + height * (kind + 0.5) + 4, str(nodes.labels[kind]), "end", "tick")
    for node in range(0, count, -(-count // 16)):
        body += text(LEFT + width * (node + 0.5), bottom + 15, str(node), "middle", "tick")
    for node, of in enumerate(nodes.counts):
        has = ", ".join(f"{label}: {samples}" for label, samples in zip(nodes.labels, of, strict=True) if samples)
        body += f'<rect class="area" x="{LEFT + width * node:.1f}" y="{TOP}" width="{width:.2f}" '
        body += f'height="{bottom - TOP:.1f}"><title>{safe(f"node {node}, samples by label: {has}")}</title></rect>'
    body += text(WIDTH / 2, bottom + 32, "node", "middle", "tick")
    per_node = [sum(samples > 0 for samples in of) for of in nodes.counts]
    note = f"training samples of each label (down) at each node; at most {most}"
    said = f"Nodes have from {min(per_node)} to {max(per_node)} of {kinds} labels."
    rows = [[f"node {node}", *map(setting, of)] for node, of in enumerate(nodes.counts)]
    below = numbers_table(["", *map(str, nodes.labels)], rows) if count * kinds <= 3000 else ""
    return figure(title, note, said, body, bottom + 38, "map", below)
