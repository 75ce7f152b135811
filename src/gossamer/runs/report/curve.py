"""A run as a report sees it: its label, the numbers of each round, and what it was run with."""

from math import isfinite, nan
from typing import Any, NamedTuple

from gossamer.runs.nodes import Nodes
from gossamer.runs.report.text import number

PARTS = ("values", "indices", "header")  # of a message


class Curve(NamedTuple):
    """One run."""

    label: str  # runs with the same label are seeds of one experiment
    metrics: list[dict[str, Any]]  # the lines of metrics.jsonl, one per round
    experiment: dict[str, Any]  # nested, as in experiment.toml
    result: dict[str, Any]  # the final JSON object
    nodes: Nodes = Nodes()  # the graph, and what data each node has


Groups = dict[str, list[Curve]]  # by label, in order of appearance
Run = dict[float, dict[str, float]]  # a curve's numbers: by round, then by name
Evaluations = list[tuple[float, dict[int, float]]]  # rounds, and the metric of every node that was tested


def grouped(curves: list[Curve]) -> Groups:
    groups: Groups = {}
    for curve in curves:
        groups.setdefault(curve.label, []).append(curve)
    return groups


def are_peers(groups: Groups) -> bool:
    """Is every curve a peer's?"""
    return bool(groups) and all("peer" in curve.result for curves in groups.values() for curve in curves)


def metric_of(curves: list[Curve]) -> str:
    """What the runs measured, e.g. "accuracy"; "accuracy" if they never did."""
    for curve in curves:
        evaluated = next((line for line in curve.metrics if "test_loss" in line), {})
        named = (key.removesuffix("_mean") for key in evaluated if key.endswith("_mean"))  # the clock's come after it
        if found := str(curve.result.get("metric") or next(named, "")):
            return found
    return "accuracy"


def numbers(curve: Curve) -> Run:
    """A run's numbers by round, with what charts need beside them, per node: bytes "sent" so far, "total" and its
    parts in the round, messages "missed"; and "elapsed", the seconds so far."""
    nodes = number(curve.result.get("nodes", curve.experiment.get("nodes"))) or nan
    run: Run = {}
    elapsed = 0.0
    for raw in curve.metrics:
        line = {key: number(value) for key, value in raw.items()}
        line |= {part: line.get(f"bytes_{part}", nan) / nodes for part in ("sent", "total", *PARTS)}
        if "bytes_resync" in line:
            line["resent"] = line["bytes_resync"] / nodes
        if "messages_lost" in line or "missing" in line:
            line["missed"] = line.get("messages_lost", line.get("missing", nan)) / nodes
        elapsed += line.get("seconds", nan)
        line["elapsed"] = elapsed
        if isfinite(line.get("round", nan)):
            run[line["round"]] = line
    return run


def by_node(curve: Curve, metric: str) -> Evaluations:
    """The metric of every node that was tested, by round."""
    found = []
    for line in curve.metrics:
        values = line.get(f"{metric}_by_node")
        if isinstance(values, dict) and isfinite(number(line.get("round"))):
            named = ((str(node), number(value)) for node, value in values.items())
            of = {int(node): value for node, value in named if node.isdecimal() and len(node) < 10 and isfinite(value)}
            found += [(number(line["round"]), of)] if of else []
    return found
