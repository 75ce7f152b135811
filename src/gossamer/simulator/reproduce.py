"""Carry out tables and figures of papers: every row with every seed, each in a run directory of its own.

    DIR/runs/SIZE/ROW-seed-N/     a run, as `gossamer run` leaves it; tables that share a row share its runs, and a row
                                  that is another's without its last phase is read from the other's run
    DIR/TABLE-SIZE.json, .md, .html   the table beside the paper's, the verdicts, the curves

Several runs go on side by side, as those of a sweep do. The same command again carries on where it stopped. A run that
fails is told and does not stop the others.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from math import inf, isfinite, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gossamer.data.sources import DataError
from gossamer.experiments import toml
from gossamer.experiments.experiment import ExperimentError
from gossamer.experiments.papers.table import (
    ACCURACY,
    COMPRESSION,
    DIVERGENCE,
    MEGABYTES,
    MEGABYTES_TO_TARGET,
    ROUNDS_TO_TARGET,
    Figures,
    Finding,
    Row,
    Size,
    Table,
    Verdict,
)
from gossamer.runs import files
from gossamer.runs.run import Run, metric_of, write_report
from gossamer.runs.sweep import Failure, PlannedRun
from gossamer.simulator.run_pool import News, OnNews, RunPool, Tasks
from gossamer.simulator.simulate import resume
from gossamer.simulator.sweep import PROCESS_BYTES, division, made_ready, one_thread

CHECKPOINT_EVERY = 100  # rounds
NAMED = 16  # rows, where all would be a wall of text


@dataclass
class Reproduction:
    """What came of a table so far."""

    name: str
    table: Table
    size: Size
    seeds: int
    figures: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)  # by row, then by seed
    runs: list[Run] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # sentences, by the run's directory
    missing: dict[str, str] = field(default_factory=dict)  # sentences, by row

    @property
    def available(self) -> list[Row]:
        """The rows that can be had on this machine."""
        return [row for row in self.table.rows(self.size) if row.label not in self.missing]

    def mean(self, label: str, column: str) -> tuple[float, float]:
        """Over the seeds, and the standard deviation; NaN where there is none. Infinite if one seed's is."""
        known = [figures[column] for figures in self.figures.get(label, {}).values() if column in figures]
        if not known or not all(map(isfinite, known)):
            return sum(known) if known else nan, nan
        return fmean(known), (stdev(known) if len(known) > 1 else nan)

    def gaps(self, finding: Finding) -> list[float]:
        """The gap of a finding with each seed."""
        seeds = sorted({seed for by_seed in self.figures.values() for seed in by_seed})
        return [finding.gap(self.with_seed(seed)) for seed in seeds]

    def with_seed(self, seed: int) -> dict[str, Figures]:
        return {label: by_seed[seed] for label, by_seed in self.figures.items() if seed in by_seed}

    def verdict(self, finding: Finding) -> Verdict:
        return finding.verdict(self.gaps(finding))


def paper_gap(table: Table, size: Size, finding: Finding) -> float:
    """The paper's own, from its figures or its text; NaN if neither has it."""
    if finding.paper is not None:
        return finding.paper
    return finding.gap({row.label: row.paper for row in table.rows(size)})


def reproduce(
    tables: Mapping[str, Table],
    size: Size,
    seeds: int,
    out: Path,
    jobs: int | None = None,
    on_news: OnNews = lambda news: None,
    only: str | None = None,
) -> list[Reproduction]:
    """Carry tables out, or carry on with them, and write what came of each into the directory `out`.

    So many `jobs` at a time, by default as in a sweep. Of rows that `only` does not match, runs that are there already
    count, and no other is made. Ctrl-C saves, writes the tables as far as they got, and raises KeyboardInterrupt.
    """
    found = [_begun(name, table, size, seeds) for name, table in tables.items()]
    chosen = matching([row for one in found for row in one.available], only)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"{out} cannot be made: {error.strerror}; name another directory") from None
    labels = {row.label for row in chosen if row.experiment}
    planned = [  # all rows with one seed first, so that there is something to compare early
        planned_run(out, size, row, seed)
        for seed in range(seeds)
        for one in found
        for row in one.available
        if row.label in labels
    ]
    runs = {run.directory: run for run in planned}.values()  # rows may have one in common
    failures = {run.directory.name: Failure(why, final=True) for run in runs if (why := _of_another_version(run))}
    todo = [run for run in runs if not run.is_complete and run.directory.name not in failures]
    try:
        for run in runs:
            on_news(News(run, "waiting" if run in todo else "kept"))
        _carry_out(todo, failures, jobs, on_news)
    finally:  # after Ctrl-C, too: the tables as far as they got
        for one in found:
            _finish(one, out, failures)
    return found


def _of_another_version(run: PlannedRun) -> str:
    """What is to be said of a directory whose run is not this one: a table may have changed since it was begun."""
    try:
        changed = toml.differences(files.read_document(run.directory), toml.write(run.experiment))
    except ExperimentError:
        return ""  # there is none, or it is damaged, which the run itself will tell
    advice = "is of another version of this table; give another --out, or delete it"
    return f"{', '.join(changed)}: {run.directory} {advice}" if changed else ""


def _begun(name: str, table: Table, size: Size, seeds: int) -> Reproduction:
    """What formulas give, and what cannot be run here."""
    found = Reproduction(name, table, size, seeds, missing=missing_data(table.rows(size)))
    if not found.available:
        raise ExperimentError(next(iter(found.missing.values())))
    found.figures = {row.label: {0: dict(row.computed())} for row in found.available if row.computed is not None}
    return found


def _finish(found: Reproduction, out: Path, failures: Mapping[str, Failure]) -> None:
    """What came of its runs, written down."""
    for row, seed in product(found.available, range(found.seeds)):
        if row.experiment is not None:
            run = planned_run(out, found.size, row, seed)
            if failure := failures.get(run.directory.name):
                found.failed[str(run.directory)] = failure.error.strip().splitlines()[-1]
            elif run.is_complete and not _of_another_version(run):  # one that was not asked for may be
                _add(found, row, run)
    if found.table.target:
        add_targets(found)
    write(found, out)


def _carry_out(todo: Sequence[PlannedRun], failures: dict[str, Failure], jobs: int | None, on_news: OnNews) -> None:
    tasks, largest = Tasks(), PROCESS_BYTES
    with one_thread():
        for run in {run.setting: run for run in todo}.values():
            on_news(News(run, "preparing"))
            with suppress(Exception):  # the run itself will tell
                largest = max(largest, made_ready(run.experiment, tasks))
        pool = RunPool(None, tasks, failures, CHECKPOINT_EVERY, on_news)
        pool.run(todo, *division(jobs, len(todo), largest))


def _add(found: Reproduction, row: Row, planned: PlannedRun) -> None:
    """The figures of a row from a complete run."""
    experiment = planned.experiment
    try:
        run = resume(planned.directory, experiment)  # reads it
    except ExperimentError as error:  # it is damaged
        found.failed[str(planned.directory)] = str(error)
        return
    if all(run.directory != other.directory for other in found.runs):  # another row may be told of it, too
        found.runs.append(run)
    through = experiment.rounds if row.told_by is None else experiment.training_rounds
    found.figures.setdefault(row.label, {})[experiment.seed] = figures_of(run, through, found.table.accuracy_of)


def planned_run(out: Path, size: Size, row: Row, seed: int) -> PlannedRun:
    """The run that tells of a row."""
    label, experiment = row.source.label, row.source.experiment
    assert experiment is not None
    return PlannedRun(label, replace(experiment, seed=seed), run_directory(out, size, label, seed))


def matching(rows: list[Row], pattern: str | None) -> list[Row]:
    """The rows whose label, or that of the row whose run tells of them, matches a shell pattern, or one of several with
    commas between them; all without one. Case does not matter."""
    patterns = [one.strip().lower() for one in pattern.split(",")] if pattern is not None else ["*"]
    names = {row.label: {row.label.lower(), row.source.label.lower()} for row in rows}
    found = [row for row in rows if any(fnmatchcase(name, one) for name in names[row.label] for one in patterns)]
    if not found:
        labels = list(dict.fromkeys(row.label for row in rows))
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        raise ExperimentError(f"no row is like {pattern}; the rows are {', '.join(labels[:NAMED])}{more}")
    return found


def run_directory(out: Path, size: Size, label: str, seed: int) -> Path:
    return out / "runs" / size / f"{re.sub(r'[^a-z0-9.]+', '-', label.lower())}-seed-{seed}"


def missing_data(rows: list[Row]) -> dict[str, str]:
    """Which rows have no data on this machine, and which files are missing."""
    found = {}
    for row in rows:
        source = getattr(row.experiment and row.experiment.task, "source", None)
        if source is not None:
            try:
                source.find()
            except DataError as error:
                found[row.label] = str(error)
    return found


# -- figures -----------------------------------------------------------------------------------------------------------


def figures_of(run: Run, through: int, accuracy_of: str = "nodes") -> dict[str, float]:
    """What a table shows of a run, or of its rounds up to `through`, the last of which was tested."""
    tested = run.metrics[through - 1]
    key = f"{metric_of(tested)}_{'mean' if accuracy_of == 'nodes' else 'of_mean_model'}"
    figures = {
        ACCURACY: 100 * tested[key],
        MEGABYTES: tested["bytes_sent"] / run.document["nodes"] / 1e6,
        DIVERGENCE: tested["divergence"],
    }
    return figures | ({COMPRESSION: tested["bytes_full"] / tested["bytes_sent"]} if tested["bytes_sent"] else {})


def add_targets(found: Reproduction) -> None:
    """For each seed, when each row first had the final accuracy of the target's row."""
    for run in found.runs:
        label, seed = run.document["name"], run.document["seed"]
        target = found.figures.get(found.table.target, {}).get(seed)
        if target is not None and label in found.figures:  # not a run of which only the start is a row
            rounds, megabytes = first_at(run, target[ACCURACY] / 100)
            found.figures[label][seed] |= {ROUNDS_TO_TARGET: rounds, MEGABYTES_TO_TARGET: megabytes}


def first_at(run: Run, accuracy: float) -> tuple[float, float]:
    """The first tested round with this accuracy of the nodes or more, and the megabytes a node had sent by then."""
    key = f"{run.result['metric']}_mean"
    for metrics in run.metrics:
        if metrics.get(key, -inf) >= accuracy - 1e-9:
            return metrics["round"], metrics["bytes_sent"] / run.document["nodes"] / 1e6
    return inf, inf


# -- files -------------------------------------------------------------------------------------------------------------


def document(found: Reproduction) -> dict[str, Any]:
    """Everything, as it is kept in JSON; what is not known is null."""
    rows = []
    for row in found.table.rows(found.size):
        ours = {column: [_known(value) for value in found.mean(row.label, column)] for column in found.table.columns}
        seeds = {
            str(seed): {key: _known(v) for key, v in f.items()} for seed, f in found.figures.get(row.label, {}).items()
        }
        length = {"nodes": row.experiment.nodes, "rounds": row.experiment.rounds} if row.experiment else {}
        rows.append({"row": row.label, **length, "paper": dict(row.paper), "ours": ours, "seeds": seeds})
    findings = []
    for finding in found.table.findings:
        told: dict[str, Any] = {"finding": finding.text, "unit": finding.unit}
        told |= {"agrees_from": finding.agrees_from, "contradicts_below": finding.contradicts_below}
        told |= {"paper": _known(paper_gap(found.table, found.size, finding)), "paper_says": finding.paper_says}
        told |= {"ours": [_known(gap) for gap in found.gaps(finding)], "verdict": found.verdict(finding)}
        findings.append(told)
    return {
        "table": found.name,
        "title": found.table.title,
        "size": found.size,
        "seeds": found.seeds,
        "protocol": "; ".join(filter(None, [found.table.small * (found.size == "small"), found.table.protocol])),
        "rows": rows,
        "findings": findings,
        "failed": found.failed,
        "missing": found.missing,
    }


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def write(found: Reproduction, out: Path) -> None:
    """The table as JSON and Markdown, and the curves as a page."""
    stem = f"{found.name}-{found.size}"
    files.replace(out / f"{stem}.json", json.dumps(document(found), indent=2).encode() + b"\n")
    files.replace(out / f"{stem}.md", markdown(found).encode())
    if found.runs:
        write_report(out / f"{stem}.html", found.runs, found.table.title)


def markdown(found: Reproduction) -> str:
    """The paper's table beside ours, and the verdicts."""
    header = ["row", *(f"{column}, {whose}" for column, whose in headings(found))]
    lines = [f"# {found.table.title}", ""]
    lines += [f"Size {found.size}, {found.seeds} seed{'s' * (found.seeds > 1)}."] if found.runs else []
    protocol = document(found)["protocol"]
    lines += [f"Not the paper's protocol: {protocol}."] if protocol else []
    lines += ["", _line(header), _line(["---"] * len(header))]
    lines += [_line(cells) for cells in table_cells(found)]
    lines += ["", *(f"- {told}" for told in finding_lines(found))]
    lines += [f"- {label} was left out: {why}" for label, why in found.missing.items()]
    lines += [f"- {directory} failed: {why}" for directory, why in found.failed.items()]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def headings(found: Reproduction) -> list[tuple[str, str]]:
    """Of every column the paper's, if it prints any, and ours."""
    printed = {column for row in found.table.rows(found.size) for column in row.paper}
    both = ((column, whose) for column in found.table.columns for whose in ("paper", "ours"))
    return [(column, whose) for column, whose in both if whose == "ours" or column in printed]


def table_cells(found: Reproduction) -> list[list[str]]:
    """One line per row: its label, and what the headings ask for."""
    lines = []
    for row in found.table.rows(found.size):
        cells = [row.label]
        for column, whose in headings(found):
            mean, deviation = found.mean(row.label, column)
            spread = f" ± {number(deviation)}" if isfinite(deviation) else ""
            cells.append(number(row.paper.get(column, nan)) if whose == "paper" else number(mean) + spread)
        lines.append(cells)
    return lines


def finding_lines(found: Reproduction, verdicts: bool = True) -> list[str]:
    """One line per finding: what the paper has, what we have, and the verdict, unless nothing was meant to run."""
    lines = []
    for finding in found.table.findings:
        gaps = [gap for gap in found.gaps(finding) if isfinite(gap)]
        ours = in_unit(fmean(gaps), finding.unit) if gaps else "–"
        ours += f" ({in_unit(min(gaps), finding.unit)} to {in_unit(max(gaps), finding.unit)})" if len(gaps) > 1 else ""
        paper = paper_text(found.table, found.size, finding)
        agrees = in_unit(finding.agrees_from, finding.unit)
        ours = f"ours {ours} {finding.unit}, " if gaps else ""
        verdict = f": **{found.verdict(finding)}**" if verdicts else ""
        lines.append(f"{finding.text}: paper {paper}, {ours}agrees from {agrees} {finding.unit}{verdict}")
    return lines


def paper_text(table: Table, size: Size, finding: Finding) -> str:
    gap = paper_gap(table, size, finding)
    return finding.paper_says or (in_unit(gap, finding.unit) if isfinite(gap) else "prints no number")


def in_unit(gap: float, unit: str) -> str:
    return f"{gap:+.2f}" if unit == "points" else f"{gap:.2f}"


def number(value: float) -> str:
    if not isfinite(value):
        return "never" if value == inf else "–"
    return f"{value:.2f}" if 0.1 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"
