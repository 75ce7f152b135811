"""Pairs of settings of docs/faithfulness.md, what we do and what the authors' code or paper does, trained and compared.

    GOSSAMER_DATA=DIR python benchmarks/faithfulness.py [--only groups] [--seeds 0 1 2] [--json]

ResNet-20 is trained on one node with all of CIFAR-10 at 16 pixels per side, as in the small size of
low-precision-table2 (600 steps of 128 images), for groups with the paper's width; the others as in the small size of
their own table. A line per pair: test accuracy of the mean model with the first setting, with the second, and the
difference seed by seed.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from gossamer import Experiment, simulate
from gossamer.experiments.papers import TABLES

Pair = tuple[Experiment, Experiment]  # in the order of its words


def row(table: str, label: str) -> Experiment:
    return next(one.experiment for one in TABLES[table].rows("small") if one.label == label and one.experiment)


def with_model(experiment: Experiment, **settings: Any) -> Experiment:
    task: Any = experiment.task
    return replace(experiment, task=replace(task, model=replace(task.model, **settings)))


def resnet(precision: str = "float", **settings: Any) -> Experiment:
    """ResNet-20 on one node, tested on all images."""
    one = row("low-precision-table2", f"ResNet-20 one node {precision}")
    return with_model(replace(one, evaluation=replace(one.evaluation, every=one.rounds, samples="all")), **settings)


def warmup() -> Pair:
    with_it = resnet()
    schedule: Any = with_it.optimizer.schedule
    return replace(with_it, optimizer=replace(with_it.optimizer, schedule=replace(schedule, warmup=0))), with_it


def factorization() -> Pair:
    usual = row("jwins-target-movielens", "MovieLens JWINS")
    return usual, with_model(usual, biases=False, start=0.05)


def lstm() -> Pair:
    usual = row("jwins-target-shakespeare", "Shakespeare JWINS")
    return usual, with_model(usual, every_step=True)


PAIRS: dict[str, Callable[[], Pair]] = {
    "EvoNorm: 2 groups, and 8": lambda: (resnet(width=16, groups=2), resnet(width=16, groups=8)),
    "second norm of a block, float: gain 1 at the start, and 0": lambda: (
        resnet(zero_init_residual=False),
        resnet(zero_init_residual=True),
    ),
    "second norm of a block, eight bits: gain as everywhere at the start, and 0": lambda: (
        resnet("8-bit", zero_init_residual=False),
        resnet("8-bit", zero_init_residual=True),
    ),
    "first 200th of the rounds: the whole learning rate, and a tenth": warmup,
    "factorization: biases and a normal start, and neither": factorization,
    "LSTM: answers from the last state, and from all": lstm,
}


def accuracies(experiment: Experiment, seeds: list[int]) -> list[float]:
    found = []
    for seed in seeds:
        result = simulate(replace(experiment, seed=seed)).result
        found.append(100 * float(result["accuracy_of_mean_model"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="pairs whose words have this in them")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = {words: pair for words, pair in PAIRS.items() if options.only.lower() in words.lower()}
    if not chosen:
        parser.error(f"no pair has {options.only} in its words; they are {'; '.join(PAIRS)}")
    for words, pair in chosen.items():
        first, second = (accuracies(experiment, options.seeds) for experiment in pair())
        gaps = [b - a for a, b in zip(first, second, strict=True)]
        if options.json:
            told = json.dumps({"pair": words, "first": first, "second": second, "seeds": options.seeds})
        else:
            spread = f" ± {stdev(gaps):.1f}" if len(gaps) > 1 else ""
            told = f"{words}: {mean(first):.1f} and {mean(second):.1f} %, the second {mean(gaps):+.1f}{spread} points"
        print(told, flush=True)


if __name__ == "__main__":
    main()
