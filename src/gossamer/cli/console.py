"""What a person sees in the terminal: a live line per run, and the table at the end."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import compress
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table

from gossamer.runs.report import size
from gossamer.runs.report.text import duration
from gossamer.runs.run import OnRound, Run, labels, metric_of
from gossamer.runs.tables import Texts, caption, differing_texts, target_text, target_texts, texts

if TYPE_CHECKING:
    from gossamer.runs.comparison import Comparison
    from gossamer.simulator.run_pool import News

_SECONDS_BETWEEN_FRAMES = 0.1
_SECONDS_BETWEEN_LINES = 5  # where there is no terminal to draw in


def console(stderr: bool = True) -> Console:
    """Where to print; names and paths are shown as they are, whatever brackets and colons they have."""
    found = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = 120  # a file has no width
    return found


def print_result(what: RenderableType) -> None:
    """Print a text or tables on standard output. A reader that has left (`| head -1`) has what it wanted."""
    terminal = console(stderr=False)
    with terminal.capture() as printed:
        for part in what.renderables if isinstance(what, Group) else [what]:
            terminal.print(in_parts(part, terminal.width), soft_wrap=isinstance(what, str))
    try:
        click.echo(printed.get(), nl=False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end


def in_parts(what: RenderableType, width: int) -> RenderableType:
    """What is printed: a table too wide for the terminal as several below one another, each with the names of the rows,
    so that no figure is cut; anything else as it is."""
    if not isinstance(what, Table) or not what.columns:
        return what
    names, *others = what.columns
    names.min_width = min(_width(names, whole=True), width // 3)
    between = what.padding[1] + what.padding[3] + (1 if what.box else 0)
    needed = [_width(column, whole=bool(column.no_wrap)) + between for column in others]
    room = width - names.min_width - between
    if sum(needed) <= room:
        return what
    groups: list[list[int]] = [[]]
    for number, one in enumerate(needed):
        if groups[-1] and sum(needed[other] for other in groups[-1]) + one > room:
            groups.append([])
        groups[-1].append(number)
    parts = [copy(what) for _ in groups]
    for part, group in zip(parts, groups, strict=True):
        part.columns = [names, *(others[number] for number in group)]
        part.title, part.caption = None, None
    parts[0].title, parts[-1].caption = what.title, what.caption
    return Group(*parts)


def _width(column: Column, whole: bool) -> int:
    """Of the longest cell, or of the longest word in one."""
    lines = [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]
    return max((cell_len(text) for line in lines for text in ([line] if whole else line.split())), default=0)


class Progress:
    """Round, metric and bytes of what is under way: a live bar per name in a terminal, lines elsewhere."""

    def __init__(self, rounds: Mapping[str, int]):
        self._rounds = rounds
        self._console = console()
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[news]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._console.is_terminal,
            auto_refresh=False,  # no thread: workers are forked, and a fork copies only one
        )
        self._tasks = {name: self._bars.add_task(name, total=total, news="") for name, total in rounds.items()}
        self._last_shown = time.monotonic()

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def of(self, name: str, done: int = 0, which: str = "") -> OnRound:
        """What to call after each round of a run under this name.

        `done` rounds are those of earlier runs; `which` tells the runs apart, such as "seed 3/5".
        """
        before = f"{which}  " if which else ""
        news = ""
        self._bars.update(self._tasks[name], news=f"{before}starting", refresh=True)

        def on_round(metrics: dict[str, Any]) -> None:
            nonlocal news
            if metric := metric_of(metrics):
                news = f"{metric} {_figure(metric, metrics[f'{metric}_mean'])}  "
            line, completed = f"{before}{news}{size(metrics['bytes_sent'])}", done + metrics["round"]
            self._bars.update(self._tasks[name], completed=completed, news=line)
            terminal = self._console.is_terminal
            if time.monotonic() - self._last_shown > (_SECONDS_BETWEEN_FRAMES if terminal else _SECONDS_BETWEEN_LINES):
                self._last_shown = time.monotonic()
                self._bars.refresh()
                if not terminal:
                    remaining = self._bars.tasks[self._tasks[name]].time_remaining
                    left = "" if remaining is None else f"  {duration(remaining)} left"
                    self._console.print(f"{name}: round {completed}/{self._rounds[name]}  {line}{left}")

        return on_round


class SweepProgress:
    """The runs of a sweep or a paper's table that are under way, how many are done, and the time that is left."""

    def __init__(self) -> None:
        self.total = self.done = self.failed = 0  # runs
        self._rounds: dict[str, int] = {}  # that each run has done
        self._all_rounds = 0
        self._console = console()
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[news]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._console.is_terminal,
            auto_refresh=False,  # no thread: runs are forked
        )
        self._overall = self._bars.add_task("all", total=None, news="preparing")
        self._lines: dict[str, Any] = {}
        self._started = self._last_shown = time.monotonic()
        self._preparing = False  # has anything been said of it?

    def __enter__(self) -> "SweepProgress":
        self._bars.start()
        self._bars.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._bars.update(self._overall, visible=self.total > 0)
        self._bars.stop()

    @property
    def summary(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total} runs done{failed}"

    def tell(self, news: "News") -> None:
        """What happened to a run."""
        name, rounds = news.run.name, news.run.experiment.rounds
        if news.what in ("waiting", "kept"):
            self.total += 1
            self.done += news.what == "kept"
            self._all_rounds += rounds if news.what == "waiting" else 0
        elif news.what == "preparing":
            self._bars.update(self._overall, news=f"preparing {news.run.setting}")
            self._show(f"preparing {news.run.setting}", at_once=not self._preparing)  # the first compiles
            self._preparing = True
            return
        elif news.what == "started":
            if not self._lines and not self._rounds:
                self._started = time.monotonic()  # what was prepared before does not count as training
            self._lines[name] = self._bars.add_task(name, total=rounds, news="starting")
        elif news.metrics is not None:
            self._rounds[name] = news.metrics["round"]
            line = f"{news.metrics['round']}/{rounds}  {size(news.metrics['bytes_sent'])}"
            self._bars.update(self._lines[name], completed=news.metrics["round"], news=line)
        else:
            self._bars.remove_task(self._lines.pop(name))
            self._rounds[name] = rounds
            self.done += news.what == "complete"
            self.failed += news.what == "failed"
            if news.what == "failed":
                self._console.print(f"{name} failed: {news.error.strip().splitlines()[-1]}", soft_wrap=True)
        self._bars.update(
            self._overall, total=self._all_rounds, completed=sum(self._rounds.values()), news=self.summary
        )
        rounds = sum(self._rounds.values())
        self._show(self._under_way(rounds) if rounds else "")

    def _under_way(self, rounds: int) -> str:
        left = (time.monotonic() - self._started) * (self._all_rounds - rounds) / rounds
        under_way = "; ".join(f"{name} round {self._rounds.get(name, 0)}" for name in self._lines)
        return f"{self.summary}, about {duration(left)} left: {under_way}"

    def _show(self, line: str, at_once: bool = False) -> None:
        """The bars, or where there is no terminal to draw them in, a line now and then."""
        terminal, now = self._console.is_terminal, time.monotonic()
        pause = _SECONDS_BETWEEN_FRAMES if terminal else _SECONDS_BETWEEN_LINES
        if now - self._last_shown < pause and not at_once:
            return
        self._last_shown = now
        self._bars.refresh()
        if not terminal and line:
            self._console.print(line, soft_wrap=True)


def comparison_tables(comparison: "Comparison") -> list[Table]:
    """What differs, the settings side by side, and what each took to reach the target."""
    tables = [_table(texts(comparison), caption(comparison))]
    if comparison.target is not None:
        before = [_table(differing_texts(comparison), "", fixed=False)] if comparison.differing else []
        where = "at the first test at which the mean over the seeds is there; without --target that is where the worst "
        where += "setting ends; metadata: headers and indices"
        reached = _table(target_texts(comparison), f"{where}; times fewer: bytes than {comparison.baseline}")
        reached.title = f"to reach {target_text(comparison)}"
        tables = [*before, *tables, reached]
    return tables


def _table(shown: Texts, below: str, fixed: bool = True) -> Table:
    """Names are folded where the terminal is narrow; figures are not, if they are `fixed`."""
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, caption_justify="left", title_justify="left")
    for number, heading in enumerate(shown.headings):
        table.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number > 0 and fixed)
    for row in shown.rows:
        table.add_row(*row)
    table.caption = below or None
    return table


def _by_label(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """The results of the seeds of each experiment."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for label, run in zip(labels(runs), runs, strict=True):
        groups.setdefault(label, []).append(dict(run.result))
    return groups


def factors(runs: Sequence[Run]) -> str:
    """In a sentence, how many times fewer bytes than the first experiment the others send, and what that costs."""
    metric, groups = runs[0].result["metric"], _by_label(runs)
    means = {
        name: [sum(r[key] for r in results) / len(results) for key in ("bytes_total", f"{metric}_mean")]
        for name, results in groups.items()
    }
    (first, (most_bytes, score)), *others = means.items()
    told = []
    for name, (num_bytes, found) in others:
        times, points = most_bytes / num_bytes, 100 * (found - score)
        told.append(f"{name} sends {times:.3g} times fewer bytes than {first} ({points:+.1f} points)")
    return "; ".join(told)


def results_table(runs: Sequence[Run]) -> Table:
    """The summary of these runs, at most 80 columns wide; several seeds of one experiment make one row."""
    groups = _by_label(runs)
    metric, num_runs = runs[0].result["metric"], max(len(results) for results in groups.values())
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, caption_justify="left")
    of_peers = all(run.peer is not None for run in runs)
    table.add_column("peer" if of_peers else "algorithm", overflow="fold")
    again = any("bytes_resync" in run.result for run in runs)
    kinds = ["values", "metadata", *["resync"] * again, "total"]
    settled = any(f"{metric}_mean_before_settle" in run.result for run in runs)
    measured = [*["before"] * settled, metric, "range"]
    headings = [*measured, "values", "metadata", *["resent"] * again, "total", "of full", "s"]
    known = [not of_peers or heading in (metric, "total", "s") for heading in headings]  # peers know no more
    for heading in compress(headings, known):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, results in groups.items():
        numbers = [key for key, value in results[0].items() if isinstance(value, (int, float))]
        mean = {key: sum(r[key] for r in results) / len(results) for key in numbers}
        ends = [fold(r.get(f"{metric}_{end}", nan) for r in results) for fold, end in ((min, "min"), (max, "max"))]
        before = mean.get(f"{metric}_mean_before_settle")
        cells = [
            *["-" if before is None else _figure(metric, before)] * settled,
            _figure(metric, mean[f"{metric}_mean"]),
            "-" if isnan(sum(ends)) else f"{_figure(metric, ends[0])}..{_figure(metric, ends[1])}",
            *(size(mean[f"bytes_{kind}"]) if f"bytes_{kind}" in mean else "-" for kind in kinds),
            f"{mean['bytes_share_of_full']:.1%}" if "bytes_share_of_full" in mean else "-",
            f"{mean['seconds']:.1f}",
        ]
        table.add_row(name, *compress(cells, known))
    different = {(label, run.document["seed"]) for label, run in zip(labels(runs), runs, strict=True)}
    what = "seeds" if len(different) == len(runs) else "runs"  # the same one may have been run again
    seeds = f"mean of {num_runs} {what}; " if num_runs > 1 else ""
    missed = "; resent: to nodes that missed messages" if again else ""
    missed += f"; before: {metric} before the models settled" if settled else ""
    for name, results in groups.items():
        own = [result[f"{metric}_personal_mean"] for result in results if f"{metric}_personal_mean" in result]
        worst = [result[f"{metric}_worst_decile"] for result in results if f"{metric}_worst_decile" in result]
        if own and worst:
            missed += f"; {name}: worst tenth of nodes {_figure(metric, sum(worst) / len(worst))}"
            missed += f", on own distributions {_figure(metric, sum(own) / len(own))}"
    legend = "range over nodes; metadata: headers and indices; of full: share of full sharing on the same links"
    table.caption = "bytes: sent by the peer" if of_peers else f"{seeds}{legend}{missed}"
    return table


def _figure(metric: str, value: float) -> str:
    return f"{value:.1%}" if metric.startswith("accuracy") else f"{value:.4g}"
