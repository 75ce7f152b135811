"""The table of docs/results/cifar10.md: the recipe `cifar10-first` with one algorithm after the other.

    GOSSAMER_DATA=DIR python benchmarks/cifar10.py --out RUNS [--seeds 3] [--json] [--plot FILE.svg]
    GOSSAMER_DATA=DIR python benchmarks/cifar10.py --out RUNS --tune

Every run is kept in RUNS and not done twice, and RUNS/report.html shows them all. CHOCO's rate is the best of --tune:
seed 100, tested on training images that are held out.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from gossamer import Evaluation, Experiment, Run, resume, simulate, write_report
from gossamer.algorithms import Choco, Dpsgd, Jwins, RandomSampling, Silk
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.experiments.recipes import RECIPES
from gossamer.training.block import NodeError

Row = dict[str, Any]
CHOCO_KEPT, CHOCO_RATE = 0.2, 0.7
ALGORITHMS: dict[str, Algorithm] = {
    "full sharing": Dpsgd(),
    "random sampling": RandomSampling(),
    "JWINS": Jwins(),
    "JWINS without wavelet": Jwins(wavelet=False),
    "CHOCO": Choco(TopK(CHOCO_KEPT), CHOCO_RATE),
    "Silk": Silk(),
}


def experiments(options: argparse.Namespace) -> Iterator[tuple[str, Experiment]]:
    """Names and experiments, of any seed."""
    setting = RECIPES["cifar10-first"]()
    if options.tune:
        for rate in (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0):
            validation = Evaluation(setting.rounds, samples=2000, nodes="all", validation=0.1)
            yield f"CHOCO at {rate}", replace(setting, algorithm=Choco(TopK(CHOCO_KEPT), rate), evaluation=validation)
    else:
        for name, algorithm in ALGORITHMS.items():
            yield name, replace(setting, name=name, algorithm=algorithm)


def done(experiment: Experiment, directory: Path) -> Run:
    """The run of this directory, carried out or on as far as need be."""
    return resume(directory, experiment) if directory.exists() else simulate(experiment, directory)


def plot(rows: Sequence[Row]) -> str:
    """Accuracy by bytes, in powers of ten: of the nodes, with the deviation over seeds, and of their mean model."""
    shares = [row["bytes_share_of_full"] for row in rows]
    accuracies = [row["accuracy"] - (row["deviation"] or 0) for row in rows]
    low = np.floor(20 * min(accuracies)) / 20
    high = np.ceil(20 * max(row["accuracy_of_mean_model"] for row in rows)) / 20

    def across(share: float) -> float:
        return 70 + 400 * (1 - np.log(share) / np.log(min(shares)))

    def down(accuracy: float) -> float:
        return 240 - 220 * (accuracy - low) / (high - low)

    body = []
    for accuracy in np.arange(low, high + 0.01, 0.05):
        body.append(f'<path d="M60 {down(accuracy):.1f}H580" stroke="#ddd"/>')
        body.append(f'<text x="54" y="{down(accuracy) + 4:.1f}" text-anchor="end">{accuracy:.0%}</text>')
    for share in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
        if share > 0.8 * min(shares):
            body.append(f'<text x="{across(share):.1f}" y="256" text-anchor="middle">{100 * share:g}%</text>')
    for row, share in zip(rows, shares, strict=True):
        left, top, mean_top = across(share), down(row["accuracy"]), down(row["accuracy_of_mean_model"])
        spread = down(0) - down(row["deviation"] or 0)
        near = any(0 < across(other) - left < 40 for other in shares)  # to the right: so the name goes to the left
        side, anchor = (-8, "end") if near else (8, "start")
        body.append(f'<path d="M{left:.1f} {top - spread:.1f}v{2 * spread:.1f}" stroke="#06c"/>')
        body.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="#06c"/>')
        body.append(f'<circle cx="{left:.1f}" cy="{mean_top:.1f}" r="4" fill="#fff" stroke="#06c"/>')
        body.append(f'<text x="{left + side:.1f}" y="{top + 4:.1f}" text-anchor="{anchor}">{row["case"]}</text>')
    note = "bytes, of full sharing's; filled: accuracy of the nodes, empty: of their mean model"
    body.append(f'<text x="320" y="276" text-anchor="middle">{note}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 284" font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="600" height="284" fill="#fff"/>', *body, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tune", action="store_true", help="choose CHOCO's rate")
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--plot", type=Path, help="where to draw accuracy by bytes")
    options = parser.parse_args()
    seeds = (100,) if options.tune else range(options.seeds)
    runs: list[Run] = []
    rows: list[Row] = []
    for name, experiment in experiments(options):
        directory = options.out / name.replace(" ", "-")
        try:
            runs += [done(replace(experiment, seed=seed), directory / f"seed-{seed}") for seed in seeds]
        except NodeError as error:  # too high a rate
            print(f"# {name}: {error}", flush=True)
            continue
        found = [run.result for run in runs[-len(seeds) :]]
        accuracies = [result["accuracy_mean"] for result in found]
        row = {
            "case": name,
            "accuracy": round(mean(accuracies), 4),
            "deviation": round(stdev(accuracies), 4) if len(found) > 1 else None,
            "accuracy_of_mean_model": round(mean(result["accuracy_of_mean_model"] for result in found), 4),
            "bytes_share_of_full": round(mean(result["bytes_share_of_full"] for result in found), 4),
            "seconds": round(mean(result["seconds"] for result in found), 1),
        }
        rows.append(row)
        print(json.dumps(row) if options.json else "  ".join(f"{value}" for value in row.values()), flush=True)
    write_report(options.out / "report.html", runs)
    if options.plot:
        options.plot.write_text(plot(rows))


if __name__ == "__main__":
    main()
