"""What several sites' tables have in common, without a row leaving a site.

Each site tells a summary of its table: of columns of numbers how many, their sum and how far they are spread; of
columns of words which words; and the classes. What is in few rows could point to somebody, and is not told: the sum of
one number is that number. From all summaries follow the columns, means, deviations, words and classes with which every
site encodes its rows in the same way.
"""

from collections import Counter
from collections.abc import Sequence
from math import fsum, isfinite, sqrt
from pathlib import Path
from typing import Any

import msgspec

from gossamer.data.table import Table, is_number, read_columns

LONGEST_SUMMARY = 1 << 24


class Summary(msgspec.Struct, forbid_unknown_fields=True):
    """Of one site's table."""

    target: str
    rows: int
    numbers: dict[
        str, tuple[int, float, float]
    ]  # by column: how many, their sum, and that of their squared differences
    # from their mean; sums of plain squares would lose the deviation of large numbers
    words: dict[str, list[str]]  # by column: those in at least so many rows
    classes: list[str]  # none if the target is a number
    leave_out: list[str] = []
    client: str | None = None


def summary(table: Table, path: Path, least: int = 5) -> Summary:
    """Of the table in a file. Words, classes and numbers in fewer than `least` rows are not told."""
    columns = read_columns(path)
    table.check_columns(path, columns)
    numbers, words = {}, {}
    for name in table.input_columns(columns):
        column = columns[name]
        if is_number(column):
            numbers[name] = _spread([float(value) for value in column if value is not None], least)
        else:
            words[name] = _frequent(column, least)
    classes = [] if table.regression else _frequent(columns[table.target], least)
    rows = len(columns[table.target])
    return Summary(table.target, rows, numbers, words, classes, list(table.leave_out), table.client)


def _spread(column: Sequence[float], least: int) -> tuple[int, float, float]:
    known = [value for value in column if isfinite(value)]  # as a table takes what is not to be missing
    if len(known) < max(1, least):
        return 0, 0.0, 0.0
    mean = fsum(known) / len(known)
    return len(known), fsum(known), fsum((value - mean) ** 2 for value in known)


def _frequent(column: Sequence[Any], least: int) -> list[str]:
    return sorted(word for word, count in _counts(column).items() if count >= least)


def _counts(column: Sequence[Any]) -> Counter[str]:
    return Counter(str(value) for value in column if value is not None)


def rare_classes(table: Table, path: Path, least: int = 5) -> dict[str, int]:
    """Classes that the summary leaves out, each with its number of rows: for the eyes of this site alone."""
    counts = Counter() if table.regression else _counts(read_columns(path)[table.target])
    return {word: count for word, count in sorted(counts.items()) if count < least}


def read_summary(path: Path) -> Summary:
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_SUMMARY + 1)
        if len(content) > LONGEST_SUMMARY:
            raise ValueError("it is too long")
        return msgspec.json.decode(content, type=Summary)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a summary of gossamer data describe ({error})") from None


def agreed(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The settings of `[task]` with which all sites encode their rows in the same way. ValueError if they cannot."""
    first = summaries[0]
    for other in summaries[1:]:
        for what in ("target", "leave_out", "client"):
            if getattr(other, what) != getattr(first, what):
                raise ValueError(
                    f"{what} is {getattr(first, what)!r} at one site and {getattr(other, what)!r} at another"
                )
        ours, theirs = ({*each.numbers, *each.words} for each in (first, other))
        if ours != theirs:
            raise ValueError(f"not all sites have the columns {', '.join(sorted(ours ^ theirs))}; leave them out")
        if mixed := sorted({*first.numbers} ^ {*other.numbers}):
            raise ValueError(f"the columns {', '.join(mixed)} are numbers at one site and words at another")
    if unknown := [name for name in first.numbers if not any(each.numbers[name][0] for each in summaries)]:
        raise ValueError(
            f"no site tells of numbers in the columns {', '.join(unknown)}: all have too few; leave them out"
        )
    numbers = [[name, *_mean_and_deviation([each.numbers[name] for each in summaries])] for name in first.numbers]
    words = [[name, sorted({word for each in summaries for word in each.words[name]})] for name in first.words]
    found: dict[str, Any] = {"target": first.target}
    if classes := sorted({name for each in summaries for name in each.classes}):
        found["classes"] = classes
    else:
        found["regression"] = True
    if first.client is not None:
        found["client"] = first.client
    if first.leave_out:
        found["leave_out"] = first.leave_out
    return found | {"numbers": numbers, "words": words}


def classes_of_one(summaries: Sequence[Summary]) -> list[list[str]]:
    """Of each summary the classes that no other tells: of two sites, "benign" and "Benign" would be two classes."""
    tellers = Counter(name for each in summaries for name in each.classes)
    return [[name for name in each.classes if len(summaries) > 1 and tellers[name] == 1] for each in summaries]


def _mean_and_deviation(parts: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """Of all numbers: those of a site are spread about its own mean, and the sites' means about the mean of all."""
    parts = [part for part in parts if part[0]]
    count = sum(part[0] for part in parts)
    mean = fsum(part[1] for part in parts) / count
    squares = fsum(within + number * (total / number - mean) ** 2 for number, total, within in parts)
    return mean, sqrt(squares / count) or 1.0
