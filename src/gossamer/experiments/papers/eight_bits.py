"""What the tables of the low-precision paper share: methods in float and in eight bits, and how their rows are called.

CHOCO and DeepSqueeze are their push-sum forms. In float and without compression both are SGP: two rows, one run.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Literal, Protocol

from gossamer.algorithms import QuantSgp, Sgp, SparsePush
from gossamer.algorithms.rates import Rate
from gossamer.compressors import Chain, Compressor, LayerwiseTopK, Quantize
from gossamer.core import Algorithm
from gossamer.data import arrays
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.papers.table import MEGABYTES, Figures, Finding, Row, Size, first_known, row, times

Method = Literal["DeepSqueeze", "CHOCO"]
Precision = Literal["float", "8-bit"]
Kept = Literal["full", "top-10", "top-1"]  # of each layer

KEPT: dict[Size, tuple[Kept, ...]] = {"paper": ("full", "top-1"), "small": ("full", "top-10")}
COMPRESSED: tuple[Kept, ...] = ("top-1", "top-10")
"""The small size keeps 10 % where the paper keeps 1 %: at 1 % an entry would be sent about three times in all."""
METHODS: tuple[Method, ...] = ("DeepSqueeze", "CHOCO")
PRECISIONS: tuple[Precision, ...] = ("float", "8-bit")
NO_COMPRESSION: tuple[Kept, ...] = ("full",)
OF_TASK: dict[Precision, arrays.Precision] = {"float": "float32", "8-bit": "int8"}
FRACTIONS = {"top-10": 0.1, "top-1": 0.01}
RATES = {"full": 1.0, "top-10": 0.01, "top-1": 0.01}  # eta of both methods in the authors' commands


def algorithm_of(size: Size, method: Method, precision: Precision, kept: Kept) -> Algorithm:
    """With layer-wise top-K, and messages in float or in eight bits."""
    if kept == "full" and precision == "float":
        return Sgp()
    compressor: Compressor = Quantize(8)
    if kept != "full":
        chosen = LayerwiseTopK(FRACTIONS[kept])
        compressor = Chain(chosen, Quantize(8)) if precision == "8-bit" else chosen
    rate: Rate = RATES[kept]
    if size == "small":  # too short for the authors' rates; the best of three each, see docs/results/papers.md
        rate = "auto" if method == "CHOCO" or kept == "full" else 0.1
    return QuantSgp(compressor, rate) if method == "CHOCO" else SparsePush(compressor, rate)


def label_of(setting: str, method: Method, precision: Precision, kept: Kept, skew: float) -> str:
    return f"{setting} {precision} {method} {kept} skew {skew:g}"


class Setting(Protocol):
    """A model and its data on a graph."""

    @property
    def name(self) -> str: ...
    def experiment(self, size: Size, precision: Precision, skew: float) -> Experiment: ...


Printed = dict[tuple[Kept, float], tuple[float, ...]]
"""The paper's accuracies by what is kept and the skew: of each method in float and in eight bits, in that order."""


def row_of(
    setting: Setting,
    size: Size,
    method: Method,
    precision: Precision,
    kept: Kept,
    skew: float,
    accuracy: float | None = None,
    more: Figures | None = None,
) -> Row:
    label = label_of(setting.name, method, precision, kept, skew)
    algorithm = algorithm_of(size, method, precision, kept)
    experiment = replace(setting.experiment(size, precision, skew), name=label, algorithm=algorithm)
    if algorithm != Sgp():
        return row(experiment, accuracy, more)
    shared = row(replace(experiment, name=f"{setting.name} float full skew {skew:g}"))
    return replace(row(experiment, accuracy, more), told_by=shared)


def grid(
    setting: Setting,
    size: Size,
    printed: Printed,
    skews: tuple[float, ...],
    kept: tuple[Kept, ...] | None = None,
    methods: tuple[Method, ...] = METHODS,
    gigabytes: Mapping[tuple[Kept, Precision], float] = MappingProxyType({}),
) -> list[Row]:
    """All combinations; the columns printed are those of the last of the methods."""
    rows = []
    for what, skew, method, precision in product(kept or KEPT[size], skews, methods, PRECISIONS):
        figures = figures_of(printed, what, skew)
        column = 2 * (methods.index(method) - len(methods)) + PRECISIONS.index(precision)
        accuracy, data = figures[column] if figures else None, gigabytes.get((what, precision))
        more = None if data is None else {MEGABYTES: 1000 * data}
        rows.append(row_of(setting, size, method, precision, what, skew, accuracy, more))
    return rows


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


RATES_OF_SMALL = "averaging rates are CHOCO's automatic one and 0.1 for DeepSqueeze, the best of three each"
BYTES = "bytes are those of our encoder, on all links of a node"


def fewer_bytes(setting: str, skews: tuple[float, ...]) -> Finding:
    """Eight bits in place of 32, with full communication."""
    of_skews = (
        times(
            label_of(setting, "CHOCO", "float", "full", skew),
            label_of(setting, "CHOCO", "8-bit", "full", skew),
            MEGABYTES,
        )
        for skew in skews
    )
    gap = first_known(*of_skews)  # the same at all skews
    text = "8 bits send 4 times fewer bytes"
    return Finding(text, gap, agrees_from=3.8, contradicts_below=2.0, unit="times", paper=4.0)


def of_methods(setting: str, skews: tuple[float, ...]) -> list[tuple[str, str]]:
    """The labels of CHOCO and of DeepSqueeze under compression, for each precision and skew."""
    return [
        (label_of(setting, "CHOCO", precision, what, skew), label_of(setting, "DeepSqueeze", precision, what, skew))
        for what, precision, skew in product(COMPRESSED, PRECISIONS, skews)
    ]
