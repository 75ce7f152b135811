"""The sections of charts: how good, how many bytes, the nodes, and what faults did."""

from math import isfinite, nan

from gossamer.runs.report import comparisons, graph, heat_map, node_charts
from gossamer.runs.report.curve import Groups, Run, are_peers, numbers
from gossamer.runs.report.line_chart import BYTES, CLOCK, ENERGY, ROUNDS, SECONDS, Chart, draw
from gossamer.runs.report.text import metric_text, number, percent, plain, safe, size

Runs = dict[str, list[Run]]  # the seeds of each label


def sections(groups: Groups, metric: str) -> str:
    """All charts, under their headings."""
    runs = {label: [numbers(curve) for curve in curves] for label, curves in groups.items()}
    parts = {
        "Curves": (_curves(groups, runs, metric), ""),
        "Bytes": (_bytes(groups, runs, metric), ""),
        "Nodes": _nodes(groups, metric),
        "Faults": (_faults(runs), faults_in_words(groups)),
    }
    return "\n".join(_section(title, *part) for title, part in parts.items() if any(part))


def _section(title: str, charts: list[str], after: str) -> str:
    drawn = "\n".join(charts)
    return f'<section><h2>{title}</h2>\n<div class="charts">\n{drawn}\n</div>\n{after}</section>'


def _has(runs: Runs, key: str) -> bool:
    """Does any run have numbers under this key, of which one is not 0?"""
    rows = (row for seeds in runs.values() for run in seeds for row in run.values())
    return any(isfinite(value := row.get(key, nan)) and value != 0 for row in rows)


def _curves(groups: Groups, runs: Runs, metric: str) -> list[str]:
    text, name = metric_text(metric), metric.replace("_", " ").capitalize()
    of_peers = are_peers(groups)
    spread = "range over seeds" if any(len(curves) > 1 for curves in groups.values()) else "range over nodes"
    mean, band = f"{metric}_mean", (f"{metric}_min", f"{metric}_max")
    note = "of each peer" if of_peers else f"mean over nodes; band: {spread}"
    found = [
        draw(Chart(f"{name} by round", note, ROUNDS, mean, text, band), runs),
        draw(Chart(f"{name} by bytes sent", note, BYTES, mean, text, band), runs),
    ]
    for scale, by in ((CLOCK, "virtual time"), (ENERGY, "energy"), (SECONDS, "time")):
        if _has(runs, scale.key):
            found.append(draw(Chart(f"{name} by {by}", note, scale, mean, text, band), runs))
    over = "of each peer" if of_peers else "mean over nodes"
    found.append(draw(Chart("Training loss", over, ROUNDS, "train_loss", plain), runs))
    if not of_peers:  # none sees the others' models
        note = "how far the nodes’ models are from their mean"
        found.append(draw(Chart("Divergence", note, ROUNDS, "divergence", plain), runs))
    return [*found, *comparisons.settling(groups, metric)]


def _bytes(groups: Groups, runs: Runs, metric: str) -> list[str]:
    found = comparisons.pareto(groups, metric)
    note = "sent by each peer in a round" if are_peers(groups) else "sent by a node in a round, mean over nodes"
    found.append(draw(Chart("Bytes by round", note, ROUNDS, "total", size), runs))
    return found if are_peers(groups) else [*found, comparisons.parts_of_messages(runs)]


def _nodes(groups: Groups, metric: str) -> tuple[list[str], str]:
    """The graph and the data of the first label, how all are spread; the rest in boxes to open."""
    drawn, (first, *maps) = graph.graphs(groups, metric), heat_map.heat_maps(groups) or [""]
    boxes = _box("The graphs of the other runs", drawn[1:]) + _box("The labels of the other runs", maps)
    boxes += node_charts.curves_of_nodes(groups, metric)
    shown = [*drawn[:1], *[first] * bool(first), *node_charts.distribution(groups, metric)]
    return shown, f'<div class="boxes">\n{boxes}</div>' * bool(boxes)


def _box(title: str, charts: list[str]) -> str:
    drawn = "\n".join(charts)
    return f'<details><summary>{title}</summary>\n<div class="charts">{drawn}</div></details>\n' * bool(charts)


def _faults(runs: Runs) -> list[str]:
    charts = [
        Chart("Messages that did not arrive", "per node and round", ROUNDS, "missed", plain),
        Chart("Nodes away", "that took no part in the round", ROUNDS, "nodes_away", plain),
        Chart("Bytes resent", "per node and round, to nodes that had missed messages", ROUNDS, "resent", size),
        Chart("Push-sum mass lost", "so far, over all nodes", ROUNDS, "mass_lost", plain),
    ]
    return [draw(chart, runs) for chart in charts if _has(runs, chart.y)]


def faults_in_words(groups: Groups) -> str:
    """A sentence per label on what was lost, late or resent."""
    said = ""
    for label, curves in groups.items():
        sent, lost, late, again = (
            sum(number(curve.result.get(key, 0)) for curve in curves)
            for key in ("messages_sent", "messages_lost", "messages_late", "bytes_resync")
        )
        if not sent > 0:
            continue
        words = [f"{percent(lost / sent)} of {plain(sent)} messages were lost", f"{percent(late / sent)} came late"]
        words += [f"{size(again / len(curves))} were resent"] * (again > 0)
        said += f"<li>{safe(label)}: {safe(', '.join(words))}.</li>\n"
    return f'<ul class="note">\n{said}</ul>' if said else ""
