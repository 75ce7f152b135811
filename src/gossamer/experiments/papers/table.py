"""A table or figure of a paper: its rows as experiments, the paper's figures beside them, and what it finds.

A finding is a gap, one number computed from the rows: by how much one is above another, say. The same function is
applied to the paper's figures and to those of each seed of ours, so that a verdict is computed and never written down.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean
from typing import Literal

from gossamer.experiments.experiment import Experiment
from gossamer.training.optimizer import Optimizer
from gossamer.training.schedules import Steps

Size = Literal["small", "paper"]
SIZES: tuple[Size, ...] = ("small", "paper")
Verdict = Literal["agrees", "weaker", "contradicts", "not run yet"]

Figures = Mapping[str, float]  # of a row, by column; what is not known is not there
Gap = Callable[[Mapping[str, Figures]], float]  # from all rows, by label; NaN where one is missing

ACCURACY = "accuracy %"
COMPRESSION = "fewer bytes"  # times fewer than full sharing over the same links, over the whole run
MEGABYTES = "MB per node"
DIVERGENCE = "divergence"
ROUNDS_TO_TARGET, MEGABYTES_TO_TARGET = "rounds to target", "MB to target"


@dataclass(frozen=True)
class Row:
    """A line of the table, or a point of the figure: an experiment, or what formulas give."""

    label: str  # the experiment's name; rows of several tables that have one name are one experiment
    paper: Figures  # as far as the paper prints them
    experiment: Experiment | None = None
    computed: Callable[[], Figures] | None = None
    told_by: "Row | None" = None  # another row, whose run tells of this one, too: its models are the same to the last
    # bit, or the same until they settle (where values are quantized its messages are then four bytes longer)

    @property
    def source(self) -> "Row":
        """The row whose run tells of this one."""
        return self.told_by or self


def row(experiment: Experiment, accuracy: float | None = None, more: Figures | None = None) -> Row:
    """The row of an experiment, with the paper's accuracy in percent, and more of its figures."""
    known = {} if accuracy is None else {ACCURACY: accuracy}
    return Row(experiment.name, known | dict(more or {}), experiment)


@dataclass(frozen=True)
class Finding:
    """What the paper finds, as a gap between rows."""

    text: str
    gap: Gap
    agrees_from: float  # a gap of at least so much is what the paper says
    contradicts_below: float = 0.0  # one under this is the contrary
    unit: Literal["points", "times", "mJ"] = "points"
    paper: float | None = None  # the paper's gap, where it prints no figures that it could be computed from
    paper_says: str = ""  # in words, where the paper's text has more than one number, or none

    def verdict(self, gaps: Sequence[float]) -> Verdict:
        """From the gap of every seed. It takes all seeds to contradict, and none to agree; between, it is weaker."""
        known = [gap for gap in gaps if not isnan(gap)]
        if not known:
            return "not run yet"
        if fmean(known) >= self.agrees_from and min(known) >= self.contradicts_below:
            return "agrees"
        return "contradicts" if max(known) < self.contradicts_below else "weaker"


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    title: str  # one line
    rows: Callable[[Size], list[Row]]
    findings: tuple[Finding, ...]
    small: str  # in what the small size alone is not the paper's protocol
    protocol: str = ""  # in what neither size is, the size "paper" included
    accuracy_of: Literal["nodes", "mean model"] = "nodes"  # whose accuracy the paper prints
    columns: tuple[str, ...] = (ACCURACY, COMPRESSION)
    target: str = ""  # the row whose final accuracy the others are to reach


# -- gaps --------------------------------------------------------------------------------------------------------------


def above(better: str, worse: str, column: str = ACCURACY) -> Gap:
    """By how much one row is above another."""
    return lambda rows: _of(rows, better, column) - _of(rows, worse, column)


def mean_above(pairs: Sequence[tuple[str, str]]) -> Gap:
    """By how many points one row is above another, mean over the pairs of which both are known."""

    def gap(rows: Mapping[str, Figures]) -> float:
        found = (above(better, worse)(rows) for better, worse in pairs)
        known = [one for one in found if not isnan(one)]
        return fmean(known) if known else nan

    return gap


def least_above(pairs: Sequence[tuple[str, str]]) -> Gap:
    """By how many points one row is above another, for the pair where that is least; NaN unless all are known."""

    def gap(rows: Mapping[str, Figures]) -> float:
        found = [above(better, worse)(rows) for better, worse in pairs]
        return nan if any(map(isnan, found)) else min(found)

    return gap


def first_known(*gaps: Gap) -> Gap:
    """The first gap whose rows are all known."""

    def gap(rows: Mapping[str, Figures]) -> float:
        return next((found for one in gaps if not isnan(found := one(rows))), nan)

    return gap


def times(larger: str, smaller: str, column: str) -> Gap:
    """How many times larger a figure is in one row than in another."""

    def gap(rows: Mapping[str, Figures]) -> float:
        divisor = _of(rows, smaller, column)
        return _of(rows, larger, column) / divisor if divisor else nan

    return gap


def figure(label: str, column: str) -> Gap:
    """The figure itself."""
    return lambda rows: _of(rows, label, column)


def _of(rows: Mapping[str, Figures], label: str, column: str) -> float:
    return rows.get(label, {}).get(column, nan)


# -- what the papers' protocols share ----------------------------------------------------------------------------------

SMALL_RATE = 4  # times the averaging rates of Sparse-Push's table 5, which are for many times as many rounds


def pixels(size: Size) -> Literal[16, 32]:
    """Per side of CIFAR's images."""
    return 16 if size == "small" else 32


def tenfold_drops(rounds: int, epochs: int = 200, **settings: float | bool) -> Optimizer:
    """Learning rate 0.1, divided by 10 after half and after three quarters of the rounds; momentum 0.9.

    The first of so many epochs is at a tenth of it, as in the code of low precision's authors.
    """
    drops = Steps(at=(rounds // 2, 3 * rounds // 4), warmup=rounds // epochs)
    return Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=1e-4, schedule=drops, **settings)  # type: ignore[arg-type]


def halved(rounds: int, learning_rate: float, every: float, weight_decay: float, nesterov: bool = False) -> Optimizer:
    """The learning rate halved whenever such a share of the rounds is over; momentum 0.9."""
    drops = Steps(at=tuple(round(drop * every * rounds) for drop in range(1, int(1 / every) + 1)), by=0.5)
    return Optimizer(learning_rate, 0.9, nesterov, weight_decay, schedule=drops)
