"""Numbers and words as a report shows them."""

import json
from collections.abc import Callable, Iterable
from html import escape
from math import nan

Text = Callable[[float], str]


def safe(value: object) -> str:
    """Escaped for HTML and XML; control characters and lone surrogates, which neither allows, become spaces."""
    return escape("".join(c if c.isprintable() else " " for c in str(value)))


def number(value: object) -> float:
    """The value if it is a number that one can draw, else NaN. The bounds leave room for the arithmetic of axes."""
    if not isinstance(value, int | float) or not abs(value) < 1e300:
        return nan
    return float(value) if abs(value) > 1e-300 else 0.0


def plain(value: float, digits: int = 4) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.{digits}g}".replace("-", "−") if abs(value) < 1e4 else f"{value:,.0f}".replace("-", "−")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa).replace("-", "−")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if mantissa == "1" else f"{mantissa}·{power}"


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def size(num_bytes: float, form: str = "#.3g") -> str:
    """Decimal units, three digits."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while abs(num_bytes) >= 999.5 and len(units) > 1:
        num_bytes, units = num_bytes / 1000, units[1:]
    return f"{num_bytes:{form if units[0] != 'B' else '.3g'}}".rstrip(".") + f" {units[0]}"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Ticks are round numbers, better without trailing zeros.
TICKS: dict[Text, Text] = {
    percent: lambda value: f"{100 * value:.6g}%",
    size: lambda value: size(value, ".3g"),
    duration: lambda value: duration(value).replace(".0 ", " "),
}


def joules(energy: float) -> str:
    units = {1e-3: "mJ", 1.0: "J", 1e3: "kJ", 1e6: "MJ"}
    unit = max((unit for unit in units if unit <= abs(energy)), default=1e-3)
    return f"{plain(energy / unit, 3)} {units[unit]}"


def short(label: str, length: int = 16) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"


def tags(labels: Iterable[str], length: int = 16) -> dict[str, str]:
    """Short names of the labels, of which no two are the same: cut at the end, or without the names of settings
    ("jwins 0.1 4" for "jwins, budget 0.1, degree 4"), or cut in the middle, or numbered."""
    labels = list(dict.fromkeys(labels))
    parts = [x.split(", ") for x in labels]
    values = [" ".join([first, *(part.rpartition(" ")[2] for part in others)]) for first, *others in parts]
    middle = [x if len(x) <= length else f"{x[:4]}…{x[5 - length :]}" for x in labels]
    numbered = [short(f"{index} {x}", length) for index, x in enumerate(labels, 1)]
    choices = ([short(x, length) for x in labels], [short(x, length) for x in values], middle, numbered)
    chosen = next((of for of in choices if len(set(of)) == len(labels)), numbered)
    return dict(zip(labels, chosen, strict=True))


def metric_text(metric: str) -> Text:
    return percent if "accuracy" in metric else plain


def distinct(values: Iterable[object]) -> str:
    """The different values, in order: "16", or "1, 2, 3"."""
    return ", ".join(dict.fromkeys(setting(value) for value in values if value not in (None, ""))) or "–"


def setting(value: object) -> str:
    """A setting as one would write it, strings without quotes."""
    if isinstance(value, list | tuple):
        return ", ".join(map(setting, value))
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def colour(index: int) -> str:
    """The classes of a label: seven colours, then the same ones dashed, then dotted."""
    return f"s{index % 7}" + ("", " dashed", " dotted")[min(index // 7, 2)]


def key(index: int) -> str:
    """The classes of what is drawn of a label, which its checkbox hides."""
    return f"k k{index} {colour(index)}"


def words(names: Iterable[str]) -> str:
    return safe(" · ".join(names).replace("_", " "))
