"""The table of docs/results/cifar10.md: the recipe `cifar10-first` with one algorithm after the other.

    GOSSAMER_DATA=DIR python benchmarks/cifar10.py --out RUNS [--seeds 3] [--json]
    GOSSAMER_DATA=DIR python benchmarks/cifar10.py --out RUNS --tune

Every run is kept in RUNS and not done twice, and RUNS/report.html shows them all. CHOCO's rate is the best of --tune:
seed 100, tested on training images that are held out.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from gossamer import Evaluation, Experiment, Run, resume, simulate, write_report
from gossamer.algorithms import Choco, Dpsgd, Jwins, RandomSampling, Silk
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.engines.block import NodeError
from gossamer.recipes import RECIPES

CHOCO_KEPT, CHOCO_RATE = 0.2, 0.6
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tune", action="store_true", help="choose CHOCO's rate")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    seeds = (100,) if options.tune else range(options.seeds)
    runs: list[Run] = []
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
        print(json.dumps(row) if options.json else "  ".join(f"{value}" for value in row.values()), flush=True)
    write_report(options.out / "report.html", runs)


if __name__ == "__main__":
    main()
