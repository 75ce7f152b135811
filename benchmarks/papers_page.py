"""Fill docs/results/papers.md with what `gossamer reproduce --size small --out DIR` has found so far.

    python benchmarks/papers_page.py [DIR --commit 18ddf9f] [--plot docs/results/papers.svg]

Writes the page's three tables anew, a line per finding. One that is in one of DIR's tables gets its gap, its verdict,
how many seeds it has, and the commit; other lines keep what they have, and so do those that have more seeds already,
be they of an older version of the table.
With --plot, draws some of the page's lines, the paper's gap beside ours.
"""

import argparse
import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

from gossamer.experiments.papers import TABLES
from gossamer.simulator.reproduce import in_unit, paper_text

PAGE = Path(__file__).parents[1] / "docs" / "results" / "papers.md"
HEADINGS = ("table or figure", "finding", "paper", "limits", "ours", "verdict", "seeds", "commit")
NOT_RUN = ["–", "not run yet", "–", "–"]
Key = tuple[str, str]  # table and finding


def found_in(directory: Path, commit: str) -> dict[Key, list[str]]:
    """By table and finding: ours, verdict, seeds, commit."""
    cells = {}
    for path in sorted(directory.glob("*-small.json")):
        table: dict[str, Any] = json.loads(path.read_text())
        for finding in table["findings"]:
            gaps = [gap for gap in finding["ours"] if gap is not None]
            if gaps:
                ends = [in_unit(end, finding["unit"]) for end in (min(gaps), max(gaps))]
                spread = f" ({ends[0]} to {ends[1]})" if len(gaps) > 1 else ""
                ours = with_unit(in_unit(fmean(gaps), finding["unit"]), finding["unit"]) + spread
                many = "formulas" if is_formula(table["table"]) else str(len(gaps))
                cells[table["table"], finding["finding"]] = [ours, finding["verdict"], many, commit]
    return cells


def is_formula(name: str) -> bool:
    return name in TABLES and TABLES[name].rows("small")[0].computed is not None


def with_unit(text: str, unit: str) -> str:
    """Points go without saying."""
    return text if unit == "points" else f"{text} {unit}"


def on_page(lines: list[str]) -> dict[Key, list[str]]:
    """What the page says of each finding."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {(cells[0].strip("`"), cells[1]): cells[-4:] for cells in rows}


def is_of_table(lines: list[str], number: int) -> bool:
    """Does the line belong to one of the tables of findings?"""
    while lines[number].startswith("|") and lines[number - 1].startswith("|"):
        number -= 1
    return lines[number].startswith(f"| {HEADINGS[0]} |")


def seeds(cells: list[str]) -> int:
    return int(cells[2]) if cells[2].isdigit() else 0  # formulas, or not run yet


def rows_of(paper: str, known: dict[Key, list[str]]) -> list[str]:
    """The table of a paper, whose names begin so."""
    rows = [HEADINGS, ["---"] * len(HEADINGS)]
    for name, table in TABLES.items():
        for finding in table.findings if name.startswith(f"{paper}-") else ():
            printed = paper_text(table, "small", finding)
            printed = printed if finding.paper_says or not printed[-1].isdigit() else with_unit(printed, finding.unit)
            limits = ", ".join(in_unit(one, finding.unit) for one in (finding.agrees_from, finding.contradicts_below))
            rows.append([f"`{name}`", finding.text, printed, limits, *known.get((name, finding.text), NOT_RUN)])
    return [f"| {' | '.join(row)} |" for row in rows]


# -- the picture -------------------------------------------------------------------------------------------------------

_ABOVE = "JWINS is above random sampling at the same budget"
PICTURE: dict[str, dict[Key, str]] = {  # lines of the page by what they are about, and what they are called there
    "JWINS above random sampling": {
        ("jwins-target-cifar10", _ABOVE): "CIFAR-10",
        ("jwins-target-movielens", _ABOVE): "MovieLens",
        ("jwins-target-shakespeare", _ABOVE): "Shakespeare",
        ("jwins-target-femnist", _ABOVE): "MNIST by writer",
        ("jwins-redrawn", "JWINS is above random sampling"): "CIFAR-10, graph redrawn",
    },
    "JWINS on CIFAR-10": {
        ("jwins-choco", "JWINS is above CHOCO at 20 %"): "above CHOCO at 20 %",
        ("jwins-ablation", "without the wavelet it is worse"): "above JWINS without wavelet",
        ("jwins-ablation", "each part helps"): "above the best without a part",
    },
    "Sparse-Push": {
        ("sparse-push-table2", "VGG-11: keeping 1 % costs little (against SGP)"): "1 % kept, whole schedule",
        ("sparse-push-table2", "ResNet-20: keeping 1 % costs little (against SGP)"): "1 % kept, 5 epochs",
        ("sparse-push-figure2", "at 0.1 % skew 0.8 costs SP 7 points"): "what skew costs at 0.1 % kept",
        ("sparse-push-figure2", "SCSP under skew is near SP without"): "SCSP with skew, SP without",
    },
    "Low precision": {
        (
            "low-precision-table3",
            "8 bits are within 1 point of float with full communication, ResNet-20 ring 8, skew 0",
        ): "8 bits against float, no skew",
        (
            "low-precision-table3",
            "8 bits are within 1 point of float with full communication, ResNet-20 ring 8, skew 0.8",
        ): "8 bits against float, skew 0.8",
        (
            "low-precision-table4",
            "quasi-global momentum helps under skew, float, compressed",
        ): "gain by quasi-global momentum",
    },
}
COLOURS = {"agrees": "#0072b2", "weaker": "#e69f00", "contradicts": "#d55e00"}
WIDTH, LEFT, ROW = 720, 250, 20


def plot(known: dict[Key, list[str]]) -> str:
    """A line per finding: the paper's gap as a diamond or a band, ours as a dot from the least to the greatest seed."""
    findings = {(name, one.text): one for name, table in TABLES.items() for one in table.findings}
    body, y = [], 8
    for title, lines in PICTURE.items():
        body.append(f'<text x="10" y="{(y := y + 22)}" font-weight="bold">{title}</text>')
        for key, label in lines.items():
            cells = known.get(key, NOT_RUN)
            y += ROW
            body.append(f'<text x="22" y="{y}">{label}</text>')
            printed = paper_text(TABLES[key[0]], "small", findings[key])
            ends = [float(number) for number in printed.split(" to ")] if printed[-1].isdigit() else []
            if len(ends) == 2:
                left, right = map(across, ends)
                body.append(f'<rect x="{left:.0f}" y="{y - 9}" width="{right - left:.0f}" height="10" fill="#ddd"/>')
            elif ends:
                x = across(ends[0])
                body.append(
                    f'<path d="M{x - 5:.1f} {y - 4}l5 -5l5 5l-5 5z" fill="#fff" stroke="#444" stroke-width="1.4"/>'
                )
            if cells[1] not in COLOURS:
                body.append(f'<text x="{across(0) + 8:.0f}" y="{y}" fill="#666">{cells[1]}</text>')
                continue
            numbers = [float(one) for one in re.findall(r"[+-]\d+\.\d+", cells[0])]
            colour = COLOURS[cells[1]]
            if len(numbers) == 3:
                low, high = across(numbers[1]), across(numbers[2])
                body.append(f'<path d="M{low:.1f} {y - 4}H{high:.1f}" stroke="{colour}" stroke-width="2"/>')
            body.append(f'<circle cx="{across(numbers[0]):.1f}" cy="{y - 4}" r="4.5" fill="{colour}"/>')
            many = f"{cells[2]} seed{'s' * (cells[2] != '1')}"
            body.append(f'<text x="{WIDTH - 8}" y="{y}" text-anchor="end" fill="#666">{cells[1]}, {many}</text>')
    ticks = []
    for tick in range(-10, 21, 5):
        ticks.append(f'<path d="M{across(tick):.0f} 14V{y + 8}" stroke="{"#999" if tick == 0 else "#e8e8e8"}"/>')
        ticks.append(f'<text x="{across(tick):.0f}" y="{y + 24}" text-anchor="middle" fill="#444">{tick:+d}</text>')
    told = "points of accuracy; grey or hollow: the paper; filled: here, with the range of seeds"
    ticks.append(f'<text x="{across(5):.0f}" y="{y + 42}" text-anchor="middle" fill="#444">{told}</text>')
    size = f'viewBox="0 0 {WIDTH} {y + 54}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y + 54}" fill="#fff"/>', *ticks, *body, "</svg>\n"])


def across(points: float) -> float:
    return LEFT + (max(-12.0, min(points, 20.0)) + 12) * (WIDTH - LEFT - 130) / 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--commit", help="that the runs were made with")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    options = parser.parse_args()
    if (options.directory is None) != (options.commit is None):
        parser.error("name the commit that the runs of the directory were made with: DIR --commit 18ddf9f")
    lines = PAGE.read_text().splitlines()
    known = on_page(lines)
    for key, cells in (found_in(options.directory, options.commit) if options.directory else {}).items():
        if seeds(cells) >= seeds(known.get(key, NOT_RUN)):
            known[key] = cells
    for name, text in known.keys() - {(name, one.text) for name, table in TABLES.items() for one in table.findings}:
        print(f"no finding of this version: {name}, {text}")
    kept = []
    for number, line in enumerate(lines):
        if is_of_table(lines, number):
            if line.startswith(f"| {HEADINGS[0]} |"):
                paper = lines[number + 2].split("`")[1].partition("-")[0]
                kept += rows_of(paper, known)
        else:
            kept.append(line)
    PAGE.write_text("\n".join(kept) + "\n")
    if options.plot:
        options.plot.write_text(plot(known))


if __name__ == "__main__":
    main()
