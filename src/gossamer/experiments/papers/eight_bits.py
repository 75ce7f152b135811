"""What the tables of the low-precision paper share: methods in float and in eight bits, and how their rows are called.

CHOCO and DeepSqueeze are their push-sum forms. In float and without compression both are SGP, which is one row.
"""

from dataclasses import replace
from itertools import product
from typing import Literal, Protocol

from gossamer.algorithms import QuantSgp, Sgp, SparsePush
from gossamer.compressors import Chain, Compressor, LayerwiseTopK, Quantize
from gossamer.core import Algorithm
from gossamer.data import arrays
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.papers.table import SMALL_RATE, Row, Size, row

Method = Literal["DeepSqueeze", "CHOCO"]
Precision = Literal["float", "8-bit"]
Kept = Literal["full", "top-10", "top-1"]  # of each layer

KEPT: dict[Size, tuple[Kept, ...]] = {"paper": ("full", "top-1"), "small": ("full", "top-10")}
COMPRESSED: tuple[Kept, ...] = ("top-1", "top-10")
"""The small size keeps 10 % where the paper keeps 1 %: at 1 % an entry would be sent about three times in all."""
METHODS: tuple[Method, ...] = ("DeepSqueeze", "CHOCO")
PRECISIONS: tuple[Precision, ...] = ("float", "8-bit")
OF_TASK: dict[Precision, arrays.Precision] = {"float": "float32", "8-bit": "int8"}
FRACTIONS = {"top-10": 0.1, "top-1": 0.01}
ETA = {"top-10": 0.01, "top-1": 0.005}  # DeepSqueeze's rate, by Sparse-Push's table; the same in float and eight bits


def algorithm_of(size: Size, method: Method, precision: Precision, kept: Kept) -> Algorithm:
    """With layer-wise top-K, and messages in float or in eight bits."""
    if kept == "full" and precision == "float":
        return Sgp()
    compressor: Compressor = Quantize(8)
    if kept != "full":
        chosen = LayerwiseTopK(FRACTIONS[kept])
        compressor = Chain(chosen, Quantize(8)) if precision == "8-bit" else chosen
    if method == "CHOCO":
        return QuantSgp(compressor)
    faster = SMALL_RATE if size == "small" else 1
    return SparsePush(compressor, rate="auto" if kept == "full" else faster * ETA[kept])


def label_of(setting: str, method: Method, precision: Precision, kept: Kept, skew: float) -> str:
    how = "float full" if kept == "full" and precision == "float" else f"{precision} {method} {kept}"
    return f"{setting} {how} skew {skew:g}"


class Setting(Protocol):
    """A model and its data on a graph."""

    @property
    def name(self) -> str: ...
    def experiment(self, size: Size, precision: Precision, skew: float) -> Experiment: ...


Printed = dict[tuple[Kept, float], tuple[float, ...]]
"""The paper's accuracies by what is kept and the skew: of each method in float and in eight bits, in that order."""


def experiment_of(
    setting: Setting, size: Size, method: Method, precision: Precision, kept: Kept, skew: float
) -> Experiment:
    name = label_of(setting.name, method, precision, kept, skew)
    algorithm = algorithm_of(size, method, precision, kept)
    return replace(setting.experiment(size, precision, skew), name=name, algorithm=algorithm)


def grid(
    setting: Setting,
    size: Size,
    printed: Printed,
    skews: tuple[float, ...],
    kept: tuple[Kept, ...] | None = None,
    methods: tuple[Method, ...] = METHODS,
) -> list[Row]:
    """All combinations; a row that two methods share has the figure of the last."""
    rows = {}
    for what, skew, method, precision in product(kept or KEPT[size], skews, methods, PRECISIONS):
        figures = figures_of(printed, what, skew)
        column = 2 * methods.index(method) + PRECISIONS.index(precision)
        experiment = experiment_of(setting, size, method, precision, what, skew)
        rows[experiment.name] = row(experiment, figures[column] if figures else None)
    return list(rows.values())


def figures_of(printed: Printed, kept: Kept, skew: float) -> tuple[float, ...] | None:
    """What the paper prints; for 10 % in place of its 1 %, that."""
    return printed.get((kept, skew), printed.get(("top-1", skew)) if kept == "top-10" else None)


def in_eight_bits(
    setting: str, kept: tuple[Kept, ...], skews: tuple[float, ...], methods: tuple[Method, ...] = METHODS
) -> list[tuple[str, str]]:
    """The labels of eight bits and of float, for each method and skew."""
    return [
        (label_of(setting, method, "8-bit", what, skew), label_of(setting, method, "float", what, skew))
        for what, method, skew in product(kept, methods, skews)
    ]


def of_methods(setting: str, skews: tuple[float, ...]) -> list[tuple[str, str]]:
    """The labels of CHOCO and of DeepSqueeze under compression, for each precision and skew."""
    return [
        (label_of(setting, "CHOCO", precision, what, skew), label_of(setting, "DeepSqueeze", precision, what, skew))
        for what, precision, skew in product(COMPRESSED, PRECISIONS, skews)
    ]
