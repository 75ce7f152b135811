"""Fill docs/results/papers.md with what `gossamer reproduce --size small --out DIR` has found so far.

    python benchmarks/papers_page.py [DIR --commit 18ddf9f]

Writes the page's three tables anew, a line per finding. One that is in one of DIR's tables gets its gap, its verdict,
how many seeds it has, and the commit; other lines keep what they have, and so do those that have more seeds already.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from gossamer.experiments.papers import TABLES
from gossamer.simulator.reproduce import in_unit, paper_text

PAGE = Path(__file__).parents[1] / "docs" / "results" / "papers.md"
HEADINGS = ("table or figure", "finding", "paper", "agrees from", "ours", "verdict", "seeds", "commit")
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
                cells[table["table"], finding["finding"]] = [ours, finding["verdict"], str(len(gaps)), commit]
    return cells


def with_unit(text: str, unit: str) -> str:
    """Points go without saying."""
    return text if unit == "points" else f"{text} {unit}"


def on_page(lines: list[str]) -> dict[Key, list[str]]:
    """What the page says of each finding."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {(cells[0].strip("`"), cells[1]): cells[-4:] for cells in rows}


def seeds(cells: list[str]) -> int:
    return int(cells[2]) if cells[2].isdigit() else 0  # formulas, or not run yet


def rows_of(paper: str, known: dict[Key, list[str]]) -> list[str]:
    """The table of a paper, whose names begin so."""
    rows = [HEADINGS, ["---"] * len(HEADINGS)]
    for name, table in TABLES.items():
        for finding in table.findings if name.startswith(f"{paper}-") else ():
            printed = paper_text(table, "small", finding)
            printed = printed if finding.paper_says or not printed[-1].isdigit() else with_unit(printed, finding.unit)
            agrees = in_unit(finding.agrees_from, finding.unit)
            rows.append([f"`{name}`", finding.text, printed, agrees, *known.get((name, finding.text), NOT_RUN)])
    return [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--commit", help="that the runs were made with")
    options = parser.parse_args()
    if (options.directory is None) != (options.commit is None):
        parser.error("name the commit that the runs of the directory were made with: DIR --commit 18ddf9f")
    lines = PAGE.read_text().splitlines()
    known = on_page(lines)
    for key, cells in (found_in(options.directory, options.commit) if options.directory else {}).items():
        if seeds(cells) >= seeds(known.get(key, NOT_RUN)):
            known[key] = cells
    kept, begun = [], set()
    for line in lines:
        if not line.startswith("|") or line.split("|")[1].strip() not in (
            HEADINGS[0],
            "---",
            *(f"`{n}`" for n in TABLES),
        ):
            kept.append(line)
        elif line.startswith("| `") and (paper := line.split("`")[1].partition("-")[0]) not in begun:
            begun.add(paper)
            kept += rows_of(paper, known)
    PAGE.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
