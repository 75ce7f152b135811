"""Fill docs/results/papers.md with what `gossamer reproduce --size small --out DIR` has found so far.

    python benchmarks/papers_page.py DIR --commit 18ddf9f

Every line of the page whose finding is in one of DIR's tables gets its gap, its verdict, how many seeds it has, and the
commit. Other lines stay as they are, and so do those that have more seeds already.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "results" / "papers.md"


def lines_of(table: dict[str, Any], commit: str) -> dict[tuple[str, str], list[str]]:
    """By table and finding, the cells that follow the paper's: ours, verdict, seeds, commit."""
    found = {}
    for finding in table["findings"]:
        gaps = [gap for gap in finding["ours"] if gap is not None]
        form = "+.2f" if finding["unit"] == "points" else ".2f"
        spread = f" ({min(gaps):{form}} to {max(gaps):{form}})" if len(gaps) > 1 else ""
        if gaps:
            cells = [f"{fmean(gaps):{form}}{spread}", finding["verdict"], str(len(gaps)), commit]
            found[f"`{table['table']}`", f"{finding['finding']} ({finding['unit']})"] = cells
    return found


def seeds(cells: list[str]) -> int:
    return int(cells[2]) if cells[2].isdigit() else 0  # formulas, or not run yet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--commit", required=True, help="that the runs were made with")
    options = parser.parse_args()
    known: dict[tuple[str, str], list[str]] = {}
    for path in sorted(options.directory.glob("*-small.json")):
        known |= lines_of(json.loads(path.read_text()), options.commit)
    lines = PAGE.read_text().splitlines()
    for number, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ours = known.pop((cells[0], cells[1]), None) if line.startswith("| `") else None
        if ours and seeds(ours) >= seeds(cells[3:]):
            lines[number] = f"| {' | '.join([*cells[:3], *ours])} |"
    PAGE.write_text("\n".join(lines) + "\n")
    for name, finding in known:
        print(f"not on the page: {name} {finding}")


if __name__ == "__main__":
    main()
