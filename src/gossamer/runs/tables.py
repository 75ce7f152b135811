"""A comparison as texts for people, and as files: CSV, Parquet, LaTeX."""

import csv
import io
import re
import unicodedata
from collections.abc import Sequence
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gossamer.experiments.experiment import ExperimentError
from gossamer.experiments.grid import text_of
from gossamer.runs import files
from gossamer.runs.report import size

if TYPE_CHECKING:
    from gossamer.runs.comparison import Comparison, Difference, Estimate

Row = dict[str, Any]


class Texts(NamedTuple):
    """A table for people: names to the left, figures to the right."""

    headings: list[str]
    rows: list[list[str]]


def texts(comparison: "Comparison") -> Texts:
    """One row per setting: metric, bytes, time, and the difference to the baseline."""
    settings, percent = comparison.settings, "accuracy" in comparison.metric
    columns = {
        "setting": [setting.name for setting in settings],
        "seeds": [str(len(setting.runs)) for setting in settings],
        f"{comparison.metric} %" if percent else comparison.metric: [_estimate(s.metric, percent) for s in settings],
        "mean model": [_estimate(setting.metric_of_mean_model, percent) for setting in settings],
        "bytes": [size(setting.bytes_total.mean) for setting in settings],
        "of full": [f"{setting.share_of_full.mean:.1%}" for setting in settings],
        "s": [f"{setting.seconds.mean:.1f}" for setting in settings],
        "difference [95 %]": [_difference(setting.difference, percent) for setting in settings],
    }
    if len({*columns["seeds"]}) == 1:
        del columns["seeds"]  # the same everywhere, and told below
    if all(setting.difference is None or isnan(setting.difference.low) for setting in settings):
        columns["difference"] = columns.pop("difference [95 %]")
    shown = [heading for heading, cells in columns.items() if {*cells} != {"-"}]
    return Texts(shown, [list(row) for row in zip(*(columns[heading] for heading in shown), strict=True)])


def caption(comparison: "Comparison") -> str:
    """What the figures of `texts` are."""
    seeds = sorted({len(setting.runs) for setting in comparison.settings})
    told = [f"mean ± standard deviation over {' or '.join(map(str, seeds))} seeds"] if seeds[-1] > 1 else []
    if len(comparison.settings) > 1:
        points = " in points" if "accuracy" in comparison.metric else ""
        told.append(f"difference: of {comparison.metric}{points} to {comparison.baseline}, paired by seed")
        if seeds[-1] > 1:
            told[-1] += ", with its 95 % confidence interval (Student's t)"
    return "; ".join([*told, "of full: share of full sharing's bytes"])


def differing_texts(comparison: "Comparison") -> Texts:
    """In which keys the experiments differ. Settings are columns if they are few, else rows."""
    values = [["-" if value is None else text_of(value) for value in row] for row in comparison.differing.values()]
    keys, names = [*comparison.differing], [setting.name for setting in comparison.settings]
    if len(names) <= 3 or len(names) < len(keys):
        return Texts(["what differs", *names], [[key, *row] for key, row in zip(keys, values, strict=True)])
    return Texts(
        ["what differs", *keys], [[name, *row] for name, row in zip(names, zip(*values, strict=True), strict=True)]
    )


def target_texts(comparison: "Comparison") -> Texts:
    """What each setting took to reach the target: rounds, bytes as the JWINS paper divides them, and time."""
    headings = ["setting", "rounds", "values", "metadata", "bytes", "times fewer", "s"]
    rows = []
    for setting in comparison.settings:
        taken = setting.to_target
        if taken is None:
            rows.append([setting.name, "not reached", *["-"] * (len(headings) - 2)])
            continue
        fewer = "-" if taken.times_fewer_bytes is None else f"{taken.times_fewer_bytes:.3g}"
        bytes_ = [size(taken.bytes_values), size(taken.bytes_metadata), size(taken.bytes_total)]
        rows.append([setting.name, str(taken.rounds), *bytes_, fewer, f"{taken.seconds:.1f}"])
    return Texts(headings, rows)


def target_text(comparison: "Comparison") -> str:
    """The target as the table's heading has it."""
    assert comparison.target is not None
    percent = "accuracy" in comparison.metric
    return f"{comparison.metric} {comparison.target:.2%}" if percent else f"{comparison.metric} {comparison.target:.4g}"


def _estimate(found: "Estimate | None", percent: bool) -> str:
    if found is None:
        return "-"
    deviation = "" if isnan(found.deviation) else f" ± {_number(found.deviation, percent)}"
    return f"{_number(found.mean, percent)}{deviation}"


def _difference(found: "Difference | None", percent: bool) -> str:
    if found is None:
        return "-"
    interval = "" if isnan(found.low) else f" [{_number(found.low, percent, '+')}, {_number(found.high, percent, '+')}]"
    return f"{_number(found.mean, percent, '+')}{interval}"


def _number(value: float, percent: bool, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if percent else f"{value:{sign}.4g}"


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    files.replace(path, text.getvalue().encode())


def need_parquet() -> None:
    """Refuse where there is nothing to write Parquet with."""
    if find_spec("pyarrow") is None:
        raise ExperimentError("Parquet is written with pyarrow; install gossamer[arrow], or take --csv")


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    need_parquet()
    import pyarrow
    from pyarrow import parquet

    kinds = {"setting": pyarrow.string(), "seeds": pyarrow.int64(), "difference_seeds": pyarrow.int64()}
    kinds["to_target_rounds"] = pyarrow.int64()
    columns = {key: pyarrow.array([row[key] for row in rows], kinds.get(key, pyarrow.float64())) for key in rows[0]}
    with files.replacing(path) as partial:
        parquet.write_table(pyarrow.table(columns), partial)


def write_latex(path: Path, note: str, *tables: Texts) -> None:
    """Tables one below the other, to be read by `\\input`; the note is a comment."""
    preamble = r"\usepackage{booktabs} goes into the preamble"
    comments = "".join(f"% {line}\n" for line in (preamble, *note.splitlines()))
    files.replace(path, (comments + "\n\\medskip\n\n".join(map(latex, tables))).encode())


def latex(table: Texts) -> str:
    """A tabular with the rules of booktabs, for plain pdflatex."""
    lines = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (table.headings, *table.rows)]
    columns = "l" + "r" * (len(table.headings) - 1)
    body = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}", ""])


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_LATEX |= {character: f"\\{character}" for character in "&%#_{}"} | {"<": "$<$", ">": "$>$", "|": "$|$"}
_LATEX |= {"$": r"\char36{}"}  # a small TeX has no font for \$
_LATEX |= {"[": "{[}", "]": "{]}", '"': "{''}"}  # a bracket after \\ would be read as a length


def _escaped(text: str) -> str:
    """What it says and nothing else, in the letters that every TeX has."""
    plain = "".join(c if c in _LATEX else unicodedata.normalize("NFKD", c) for c in text)
    ascii_only = "".join(c for c in plain if c in _LATEX or " " <= c <= "~" or not unicodedata.combining(c))
    told = "".join(_LATEX.get(c, c if " " <= c <= "~" else "?") for c in ascii_only)
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", told)  # not a hyphen
