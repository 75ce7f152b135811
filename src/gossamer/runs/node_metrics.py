"""The metrics of a run as one table, those of single nodes among them, to be read by pandas, Polars or DuckDB."""

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import files
from gossamer.runs.loggers import numbers
from gossamer.runs.peer_metrics import directories
from gossamer.runs.run import Run, open_run

Row = dict[str, Any]


def export(directory: Path, out: Path) -> int:
    """Write the metrics of a run, of a peer, or of all peers of `gossamer up` to a new Parquet file; how many rows."""
    if os.path.exists(out):
        raise ExperimentError(f"{out} exists already; name another file with --metrics")
    if find_spec("pyarrow") is None:
        raise ExperimentError("Parquet is written with pyarrow; install it with: pip install 'gossamer[arrow]'")
    found = [row for one in directories(directory) for row in rows(open_run(one))]
    if not found:
        raise ExperimentError(f"{directory} has no round yet; let it run on, or continue it")
    try:
        _write(out, found)
    except OSError as error:
        raise ExperimentError(f"{out} cannot be written: {error.strerror}; name another file with --metrics") from error
    return len(found)


def rows(run: Run) -> Iterator[Row]:
    """One row per round, which has no node, and after an evaluation one per node that was tested."""
    for metrics in run.metrics:
        kept = {"round": metrics["round"]}
        yield kept | ({"node": None} if run.peer is None else {"peer": run.peer}) | dict(numbers(metrics))
        by_node = {name.removesuffix("_by_node"): of for name, of in metrics.items() if name.endswith("_by_node")}
        for node in dict.fromkeys(node for of in by_node.values() for node in of):
            yield kept | {"node": int(node)} | {name: of[node] for name, of in by_node.items() if node in of}


def _write(path: Path, found: Sequence[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    names = dict.fromkeys(name for row in found for name in row)
    columns = {name: pyarrow.array([row.get(name) for row in found]) for name in names}
    with files.replacing(path) as partial:
        parquet.write_table(pyarrow.table(columns), partial)
