"""The metrics of a peer in the form of a run's, so that a report shows both. A peer sees one node: it tests its own
model, counts the bytes that it sent, and has no rounds that it was away for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.runs import files

Row = dict[str, Any]


def is_of_peer(rows: Sequence[Row]) -> bool:
    return any("bytes_out" in row for row in rows)


def directories(path: Path) -> list[Path]:
    """Those of all peers, if this is what `gossamer up` made of them; else the path itself."""
    if (path / "metrics.jsonl").exists():
        return [path]
    found = [metrics.parent for metrics in path.glob("*/metrics.jsonl")]
    return sorted(found, key=lambda peer: (len(peer.name), peer.name)) or [path]


def as_of_run(path: Path, rows: Sequence[Row]) -> list[Row]:
    """The rows under the names that a simulation uses; `path` is the file that they are from."""
    rounds = [row["round"] for row in rows]
    if sorted(set(rounds)) != rounds:
        files.damaged(path, "rounds are not in order")
    metric, before, found = metric_of(rows), 0, []
    for row in rows:
        sent = row.get("bytes_out", before)
        total = sent - before if sent >= before else sent  # less: begun anew without a checkpoint
        measured = {f"{key}_mean": row[key] for key in (metric, f"{metric}_personal") if key in row}
        found.append(row | measured | {"bytes_sent": sent, "bytes_total": total})
        before = sent
    return found


def metric_of(rows: Sequence[Row]) -> str:
    """What the task measures; a peer writes it behind the test loss."""
    evaluated = next((list(row) for row in rows if "test_loss" in row), ["test_loss", ""])
    return evaluated[evaluated.index("test_loss") + 1]


def result(rows: Sequence[Row]) -> dict[str, Any]:
    """What a run's summary has of rounds, metric, bytes and time."""
    evaluated = next(row for row in reversed(rows) if "test_loss" in row)
    metric = metric_of(rows)
    return {
        "nodes": 1,
        "rounds": rows[-1]["round"],
        "train_loss": next(row["train_loss"] for row in reversed(rows) if "train_loss" in row),
        "test_loss": evaluated["test_loss"],
        "metric": metric,
        f"{metric}_mean": evaluated[metric],
        **{key: evaluated[key] for key in (f"{metric}_personal_mean",) if key in evaluated},
        "bytes_total": sum(row["bytes_total"] for row in rows),
        "seconds": round(sum(row["seconds"] for row in rows), 3),
    }
