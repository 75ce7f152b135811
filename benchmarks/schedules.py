"""What Sparse-Push costs by the length of the schedule: the same network, rates of learning that fall in proportion.

    GOSSAMER_DATA=DIR python benchmarks/schedules.py [--model VGG-11] [--rounds 2000 8000 32000] [--kept 1] [--json]

The rows are those of the small size of sparse-push-table2 (a perceptron in place of VGG-11, or a narrow ResNet-20),
without skew: SGP, Sparse-Push that keeps so many percent at the rate of the paper's table 5, and every node alone. A
tenth of the training images is held out, and the nodes are tested on them. One line per length.
"""

import argparse
import json
from dataclasses import replace
from typing import Any

from gossamer import Experiment, simulate
from gossamer.experiments.papers import TABLES
from gossamer.training.schedules import Steps


def row(label: str) -> Experiment:
    return next(r.experiment for r in TABLES["sparse-push-table2"].rows("small") if r.label == label and r.experiment)


def shortened(experiment: Experiment, rounds: int, seed: int) -> Experiment:
    """With so many rounds, and the learning rate falling at the same shares of them."""
    before: Any = experiment.optimizer.schedule
    share = rounds / experiment.rounds
    schedule = Steps(tuple(round(at * share) for at in before.at), before.by, warmup=round(before.warmup * share))
    evaluation = replace(experiment.evaluation, every=rounds, samples="all", validation=0.1)
    optimizer = replace(experiment.optimizer, schedule=schedule)
    return replace(experiment, rounds=rounds, seed=seed, optimizer=optimizer, evaluation=evaluation)


def accuracy(experiment: Experiment) -> float:
    return 100 * float(simulate(experiment, workers=1).result["accuracy_mean"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["VGG-11", "ResNet-20"], default="VGG-11")
    parser.add_argument("--rounds", type=int, nargs="+", default=[2000, 8000, 32_000, 78_200])
    parser.add_argument("--kept", choices=["10", "1", "0.1"], default="1", help="percent")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for rounds in options.rounds:
        found: dict[str, float] = {}
        for name, kept in (("SGP", "100"), (f"top {options.kept} %", options.kept), ("alone", "0")):
            experiment = row(f"{options.model} SP top-{kept}")
            if name.startswith("top"):
                experiment = replace(experiment, algorithm=replace(experiment.algorithm, rate="table"))
            found[name] = accuracy(shortened(experiment, rounds, options.seed))
        if options.json:
            print(json.dumps({"model": options.model, "rounds": rounds, "seed": options.seed, **found}), flush=True)
        else:
            told = ", ".join(f"{name} {value:.1f} %" for name, value in found.items())
            print(f"{rounds:,} rounds: {told}", flush=True)


if __name__ == "__main__":
    main()
