"""Settings side by side: means over seeds, paired differences to a baseline, and what it takes to reach a target.

Runs of one seed have the data, the graph and the initial model in common, whatever the setting. So settings are
compared seed by seed: the difference of the means has a far smaller error than the means themselves.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, isnan, nan, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from scipy.special import stdtrit

from gossamer.experiments import toml
from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import tables
from gossamer.runs.run import Run

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float  # of one seed NaN

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        return cls(fmean(values), stdev(values) if len(values) > 1 else nan)


@dataclass(frozen=True)
class Difference:
    """The mean of the differences to the baseline, seed by seed, and its confidence interval by Student's t."""

    mean: float
    low: float  # of one seed NaN
    high: float
    seeds: tuple[int, ...]  # that both have

    @classmethod
    def of(cls, values: Mapping[int, float], baseline: Mapping[int, float]) -> "Difference | None":
        """None if no seed is in both."""
        seeds = tuple(seed for seed in values if seed in baseline)
        if not seeds:
            return None
        found = Estimate.of([values[seed] - baseline[seed] for seed in seeds])
        if len(seeds) == 1:
            return cls(found.mean, nan, nan, seeds)
        half = float(stdtrit(len(seeds) - 1, (1 + CONFIDENCE) / 2)) * found.deviation / sqrt(len(seeds))
        return cls(found.mean, found.mean - half, found.mean + half, seeds)


@dataclass(frozen=True)
class ToTarget:
    """What it took until the mean over the seeds reached the target, at an evaluation."""

    rounds: int
    bytes_total: float
    bytes_values: float
    bytes_metadata: float  # headers and indices
    seconds: float
    times_fewer_bytes: float | None  # than the baseline; None if that did not reach the target, or nothing was sent


@dataclass(frozen=True)
class SettingSummary:
    """One setting over its seeds. Bytes are those of the whole run, over all links."""

    name: str
    runs: Sequence[Run] = field(repr=False)  # those that are complete, one per seed
    metric: Estimate  # mean over the nodes
    metric_of_mean_model: Estimate | None
    bytes_total: Estimate
    share_of_full: Estimate  # of the bytes that full sharing would have sent
    seconds: Estimate
    difference: Difference | None  # of the metric to the baseline's; None if it is the baseline
    to_target: ToTarget | None  # None: not reached, or there is no target

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.document["seed"] for run in self.runs)


@dataclass(frozen=True)
class Comparison:
    """Settings side by side; what `gs.sweep` and `gs.compare` give."""

    metric: str  # what the task measures, such as "accuracy"
    settings: tuple[SettingSummary, ...]
    baseline: str  # the name of a setting
    target: float | None  # of the metric
    differing: dict[str, list[Any]]  # the keys in which experiments differ, and each setting's value
    failures: dict[str, str] = field(default_factory=dict)  # runs without a result, and why
    directory: Path | None = None  # that of the sweep

    @property
    def runs(self) -> list[Run]:
        """Those that are complete."""
        return [run for setting in self.settings for run in setting.runs]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row of plain values per setting, as in a file; None is what there is not."""
        return [_row(self, setting) for setting in self.settings]

    def document(self) -> dict[str, Any]:
        """All of it as plain values, as `--json` prints it."""
        results = [run.result for run in self.runs]
        told = {key: getattr(self, key) for key in ("metric", "baseline", "target", "differing", "failures")}
        kept = None if self.directory is None else str(self.directory)
        return {"directory": kept, "confidence": CONFIDENCE, **told, "settings": self.rows(), "runs": results}

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """The rows, with a heading."""
        tables.write_csv(Path(path), self.rows())

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """The rows; needs the extra gossamer[arrow]."""
        tables.write_parquet(Path(path), self.rows())

    def write_latex(self, path: str | os.PathLike[str]) -> None:
        """The table that the command line prints, to be read by `\\input`; needs the package booktabs."""
        to_target = [] if self.target is None else [tables.target_texts(self)]
        tables.write_latex(Path(path), tables.caption(self), tables.texts(self), *to_target)


def compared(
    groups: Mapping[str, Sequence[Run]],
    baseline: str | None = None,
    target: float | Literal["worst"] | None = None,
    failures: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Comparison:
    """These settings, by name, each with its complete runs.

    `baseline` is a setting's name, by default the first one. The target "worst" is the last metric of the worst
    setting, so that all reach it.
    """
    metric = _metric(groups)
    baseline = next(iter(groups)) if baseline is None else baseline
    goal, reached = _reached(groups, metric, target)
    summaries = tuple(
        _summary(name, metric, groups, baseline, _to_target(reached.get(name), reached.get(baseline)))
        for name in groups
    )
    differing = _differing([runs[0].document for runs in groups.values()])
    return Comparison(metric, summaries, baseline, goal, differing, dict(failures or {}), directory)


def check_target(target: float, metric: str) -> None:
    """Refuse what no metric of this name can be."""
    if not isfinite(target):
        raise ExperimentError(f"target: {target} was given, a finite number is needed")
    if "accuracy" in metric and not 0 <= target <= 1:
        raise ExperimentError(f"target: {target} was given, and {metric} is between 0 and 1; take one such as 0.85")


def _reached(
    groups: Mapping[str, Sequence[Run]], metric: str, target: float | Literal["worst"] | None
) -> tuple[float | None, dict[str, "_Point"]]:
    """The target as a number, and where each setting that reached it did so first."""
    if target is None:
        return None, {}
    if target != "worst":
        check_target(target, metric)
    first = next(iter(groups.values()))[0].result
    sign = 1 if first.get("higher_is_better", True) else -1
    curves = {name: _mean_curve(runs, metric) for name, runs in groups.items()}
    if target == "worst":
        target = sign * min(sign * curve[-1].metric for curve in curves.values())
    found = {name: [p for p in curve if sign * p.metric >= sign * target] for name, curve in curves.items()}
    return target, {name: points[0] for name, points in found.items() if points}


def choose_baseline(settings: Mapping[str, toml.Document], wanted: str | Sequence[str]) -> str | None:
    """The one setting with this name, or with these values, such as "algorithm.name=dpsgd"; None if none is wanted."""
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if not wanted:
        return None
    if len(wanted) == 1 and wanted[0] in settings:
        return wanted[0]
    pairs = [(key.strip(), toml.value_of(text)) for key, equals, text in (w.partition("=") for w in wanted) if equals]
    found = [name for name, d in settings.items() if all(toml.look_up(d, key) == value for key, value in pairs)]
    if len(pairs) != len(wanted) or len(found) != 1:
        which = "no setting" if len(pairs) != len(wanted) or not found else f"{len(found)} settings"
        raise ExperimentError(f"--baseline {' '.join(wanted)} is {which}; name one of: {'; '.join(settings)}")
    return found[0]


def _metric(groups: Mapping[str, Sequence[Run]]) -> str:
    metrics = {runs[0].result["metric"]: name for name, runs in groups.items()}
    if len(metrics) > 1:
        (one, a), (other, b), *_ = metrics.items()
        raise ExperimentError(f"{a} measures {one} and {b} {other}; compare runs of one metric")
    return next(iter(metrics))


@dataclass(frozen=True)
class _Point:
    """An evaluation: means over the seeds."""

    round: int
    metric: float
    values: float  # bytes so far
    metadata: float
    total: float
    seconds: float  # so far


def _curve(run: Run, metric: str) -> list[_Point]:
    points, values, metadata, seconds = [], 0, 0, 0.0
    for row in run.metrics:
        values += row["bytes_values"]
        metadata += row["bytes_header"] + row["bytes_indices"]
        seconds += row["seconds"]
        if f"{metric}_mean" in row:
            points.append(_Point(row["round"], row[f"{metric}_mean"], values, metadata, row["bytes_sent"], seconds))
    return points


def _mean_curve(runs: Sequence[Run], metric: str) -> list[_Point]:
    """Seeds are evaluated after the same rounds."""
    return [
        _Point(points[0].round, *(fmean(getattr(p, f) for p in points) for f in list(_Point.__annotations__)[1:]))
        for points in zip(*(_curve(run, metric) for run in runs), strict=True)
    ]


def _to_target(point: _Point | None, baseline: _Point | None) -> ToTarget | None:
    if point is None:
        return None
    fewer = baseline.total / point.total if baseline is not None and point.total else None
    return ToTarget(point.round, point.total, point.values, point.metadata, point.seconds, fewer)


def _summary(
    name: str, metric: str, groups: Mapping[str, Sequence[Run]], baseline: str, to_target: ToTarget | None
) -> SettingSummary:
    runs = groups[name]
    results: list[Mapping[str, Any]] = [run.result for run in runs]

    def over_seeds(key: str) -> Estimate:
        return Estimate.of([result[key] for result in results])

    def by_seed(runs: Sequence[Run]) -> dict[int, float]:
        by_name: list[Mapping[str, Any]] = [run.result for run in runs]
        return {result["seed"]: result[f"{metric}_mean"] for result in by_name}

    return SettingSummary(
        name=name,
        runs=tuple(runs),
        metric=over_seeds(f"{metric}_mean"),
        metric_of_mean_model=over_seeds(f"{metric}_of_mean_model") if f"{metric}_of_mean_model" in results[0] else None,
        bytes_total=over_seeds("bytes_total"),
        share_of_full=over_seeds("bytes_share_of_full"),
        seconds=over_seeds("seconds"),
        difference=None
        if name == baseline or baseline not in groups
        else Difference.of(by_seed(runs), by_seed(groups[baseline])),
        to_target=to_target,
    )


def _differing(documents: Sequence[toml.Document]) -> dict[str, list[Any]]:
    first = documents[0] | {"seed": 0}
    keys = dict.fromkeys(key for other in documents for key in toml.differences(first, other | {"seed": 0}))
    return {key: [toml.look_up(document, key) for document in documents] for key in keys}


def _row(comparison: Comparison, setting: SettingSummary) -> dict[str, Any]:
    metric = comparison.metric
    named: list[tuple[str, Estimate | None]] = [
        (metric, setting.metric),
        (f"{metric}_of_mean_model", setting.metric_of_mean_model),
        ("bytes_total", setting.bytes_total),
        ("bytes_share_of_full", setting.share_of_full),
        ("seconds", setting.seconds),
    ]
    row: dict[str, Any] = {"setting": setting.name, "seeds": len(setting.runs)}
    for name, estimate in named:
        row |= {f"{name}_mean": estimate and estimate.mean, f"{name}_deviation": estimate and estimate.deviation}
    difference = setting.difference
    row |= {f"difference_{key}": getattr(difference, key, None) for key in ("mean", "low", "high")}
    row["difference_seeds"] = 0 if difference is None else len(difference.seeds)
    if comparison.target is not None:
        taken = {} if setting.to_target is None else asdict(setting.to_target)
        row |= {f"to_target_{key}": taken.get(key) for key in ToTarget.__annotations__}
    return {key: None if isinstance(value, float) and isnan(value) else value for key, value in row.items()}
