"""What charts are drawn with: axes, places in a drawing, and the elements of SVG."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from math import ceil, floor, isfinite, log10, nan
from typing import NamedTuple, TypeVar

from gossamer.runs.report.text import safe

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 440, 270, 56, 8, 232  # of a drawing, and the edges of the plot in it but the right
Item = TypeVar("Item")


class Axis(NamedTuple):
    """A range of values, and the ticks on it."""

    low: float
    high: float
    ticks: list[float]
    log: bool

    def at(self, value: float) -> float:
        """Where the value lies, 0 at the low end and 1 at the high end; NaN if it has no place here."""
        if self.log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low)) if value > 0 else nan
        return (value - self.low) / (self.high - self.low)


class Plane(NamedTuple):
    x: Axis
    y: Axis
    right: float  # edge of the plot; labels stand beyond it

    def at(self, x: float, y: float) -> tuple[float, float]:
        return LEFT + (self.right - LEFT) * self.x.at(x), BOTTOM - (BOTTOM - TOP) * self.y.at(y)


def axis(values: list[float], log: bool = False, from_zero: bool = False, whole: bool = False) -> Axis:
    """An axis that holds the values, with about five ticks at round numbers."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    if log:
        return _logarithmic(low, high)
    if from_zero:
        low, high = 0.0, high if high > 0 else 1.0
    else:
        margin = 0.06 * (high - low) if high - low > 1e-9 * abs(high) else abs(high) / 10 or 1.0
        low, high = 0.0 if 0 <= low < max(margin, 0.3 * high) else low - margin, high + margin
    scale = 10.0 ** floor(log10((high - low) / 5))
    step = next(step for step in (scale, 2 * scale, 5 * scale, 10 * scale) if (high - low) / step <= 5.5)
    step = max(step, 1.0) if whole else step
    return Axis(low, high, [step * i for i in range(ceil(low / step), floor(high / step + 1e-6) + 1)], log)


def _logarithmic(low: float, high: float) -> Axis:
    margin = 10 ** (0.04 * (log10(high) - log10(low))) if high > 1.5 * low else 1.5
    low, high = low / margin, high * margin
    decades = log10(high) - log10(low)
    steps = {2.5: (1.0,), 1.2: (1.0, 3.0), 0.6: (1.0, 2.0, 5.0), -1.0: (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)}
    mantissas = next(of for least, of in steps.items() if decades > least)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1, ceil(decades / 6))
    ticks = [mantissa * 10.0**power for power in powers for mantissa in mantissas]
    return Axis(low, high, [tick for tick in ticks if low <= tick * 1.001 and tick <= high * 1.001], True)


def thinned(items: list[Item], most: int) -> list[Item]:
    """At most so many of them, evenly, the first and the last one included."""
    if len(items) <= most:
        return items
    return [items[0], *items[: 0 : -ceil((len(items) - 1) / (most - 1))][::-1]]


def figure(
    title: str, note: str, said: str, body: str, height: float = HEIGHT, kind: str = "", below: str = "", x: str = ""
) -> str:
    """A drawing with its caption; `said` is what a screen reader says of it, `x` how the script writes an x value."""
    named = f' class="{kind}"' * bool(kind) + f' data-x="{safe(x)}"' * bool(x)
    return f"""<figure><figcaption>{safe(title)}<span>{safe(note)}</span></figcaption>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"{named} \
aria-label="{safe(f"{title}, {note}. {said}")}">
{body}
</svg>{below}</figure>"""


def empty(title: str, note: str) -> str:
    return figure(title, note, "Nothing was measured.", text(WIDTH / 2, 120, "no data yet", "middle", "tick"))


def numbers_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The numbers of a chart, for those who cannot see it, or want to copy them."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{safe(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{safe(row[0])}</th>{"".join(f"<td>{safe(cell)}</td>" for cell in row[1:])}</tr>\n'
        for row in rows
    )
    return f"""<details class="numbers"><summary>Numbers</summary><div class="scroll" tabindex="0"><table>
<thead><tr>{head}</tr></thead><tbody>
{body}</tbody></table></div></details>"""


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "word") -> str:
    where = f' text-anchor="{anchor}"' * (anchor != "start")
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{where}>{safe(words)}</text>'


def dot(kind: str, at: tuple[float, float], radius: float, title: str = "") -> str:
    shape = f'<circle class="{kind}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.3g}"'
    return f"{shape}><title>{safe(title)}</title></circle>" if title else f"{shape}/>"


def rectangle(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    shape = f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"{shape}><title>{safe(title)}</title></rect>" if title else f"{shape}/>"


def path(places: Sequence[tuple[float, ...]]) -> str:
    """The h0 makes a lone point a dot."""
    return f"M{places[0][0]:.1f} {places[0][1]:.1f}h0" + "".join(f"L{x:.1f} {y:.1f}" for x, y in places[1:])


def unbroken(places: list[tuple[float, ...]]) -> Iterator[list[int]]:
    """The stretches without NaN, as indices."""
    whole = groupby(range(len(places)), lambda index: isfinite(sum(places[index])))
    return (list(stretch) for is_whole, stretch in whole if is_whole)


def apart(heights: list[float]) -> list[float]:
    """The ascending heights, moved as little as makes them a line of text apart, within the plot."""
    count = len(heights)
    gap = min(13.0, (BOTTOM - TOP) / max(1, count - 1))
    down = list(accumulate(heights, lambda last, height: max(height, last + gap)))
    up = list(accumulate(reversed(heights), lambda last, height: min(height, last - gap)))[::-1]
    middle = ((low + high) / 2 for low, high in zip(down, up, strict=True))
    return [min(max(at, TOP + gap * i), BOTTOM - gap * (count - 1 - i)) for i, at in enumerate(middle)]
