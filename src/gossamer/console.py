"""What a person sees in the terminal: a live line a run, and the table at the end."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from gossamer.report import size
from gossamer.run import OnRound, Run, labels

_SECONDS_BETWEEN_LINES = 5  # where there is no terminal to draw in


def console(stderr: bool = True) -> Console:
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=120)  # a file has no width


class Progress:
    """Round, metric and bytes of what is under way: a live bar a name in a terminal, now and then a line elsewhere."""

    def __init__(self, rounds: Mapping[str, int]):
        self._rounds = rounds
        self._console = console()
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[news]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks = {name: self._bars.add_task(name, total=total, news="") for name, total in rounds.items()}
        self._last_line = time.monotonic()

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def of(self, name: str, done: int = 0) -> OnRound:
        """What to call after each round of a run under this name, of which so many rounds are done by other runs."""
        news = ""
        self._bars.update(self._tasks[name], news="starting" if not done else "")

        def on_round(metrics: dict[str, Any]) -> None:
            nonlocal news
            measured = [key for key in metrics if key.endswith("_mean")]
            if measured:
                news = f"{measured[0].removesuffix('_mean')} {_figure(measured[0], metrics[measured[0]])}  "
            line, completed = f"{news}{size(metrics['bytes_sent'])} sent", done + metrics["round"]
            self._bars.update(self._tasks[name], completed=completed, news=line)
            if not self._console.is_terminal and time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
                self._last_line = time.monotonic()
                self._console.print(f"{name}: round {completed}/{self._rounds[name]}  {line}")

        return on_round


def results_table(runs: Sequence[Run]) -> Table:
    """The summary of these runs; several seeds of one experiment make one row."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        groups.setdefault(label, []).append(run.result)
    metric, num_seeds = runs[0].result["metric"], max(len(results) for results in groups.values())
    table = Table(box=SIMPLE_HEAD, caption_justify="left")
    table.add_column("algorithm", no_wrap=True)
    headings = (metric, "least .. most over nodes", "values", "metadata", "total", "of full sharing", "seconds")
    for heading in headings:
        table.add_column(heading, justify="right")
    for name, results in groups.items():
        numbers = [key for key, value in results[0].items() if isinstance(value, (int, float))]
        mean = {key: sum(r[key] for r in results) / len(results) for key in numbers}
        least, most = min(r[f"{metric}_min"] for r in results), max(r[f"{metric}_max"] for r in results)
        table.add_row(
            name,
            _figure(metric, mean[f"{metric}_mean"]),
            f"{_figure(metric, least)} .. {_figure(metric, most)}",
            *(size(mean[f"bytes_{kind}"]) for kind in ("values", "metadata", "total")),
            f"{mean['bytes_share_of_full']:.1%}",
            f"{mean['seconds']:.1f}",
        )
    if num_seeds > 1:
        table.caption = f"mean of {num_seeds} seeds; the range is over all their nodes"
    return table


def _figure(metric: str, value: float) -> str:
    return f"{value:.1%}" if metric.startswith("accuracy") else f"{value:.4g}"
