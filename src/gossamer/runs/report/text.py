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


# Ticks are round numbers, better without trailing zeros.
TICKS: dict[Text, Text] = {percent: lambda value: f"{100 * value:.6g}%", size: lambda value: size(value, ".3g")}


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def short(label: str, length: int = 16) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"


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
    """Seven colours, then the same ones dashed."""
    return f"s{index % 7}" + " dashed" * (index >= 7)


def words(names: Iterable[str]) -> str:
    return safe(" · ".join(names).replace("_", " "))
