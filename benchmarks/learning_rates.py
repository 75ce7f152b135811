"""Is a method ahead because it shares better, or because it moves further per round?

    GOSSAMER_DATA=DIR python benchmarks/learning_rates.py [--task digits] [--rounds 150] [--factors 1 2 4] [--json]

Every method of accuracy_per_byte.py that is named is run with its task's learning rate times each factor, on training
samples that are held out. A line each: nodes before and after the last phase, and how far the mean model has moved from
the common start after ten rounds, against full sharing's.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import torch
from accuracy_per_byte_methods import Method, setting

from gossamer import Evaluation, Experiment, simulate

EARLY_ROUNDS = 10


def scaled(experiment: Experiment, factor: float) -> Experiment:
    optimizer = experiment.optimizer
    return replace(experiment, optimizer=replace(optimizer, learning_rate=factor * optimizer.learning_rate))


def moved(experiment: Experiment) -> float:
    """How far the mean model is from the start after a few rounds."""
    early = replace(experiment, rounds=EARLY_ROUNDS, settle=0, evaluation=Evaluation(every=EARLY_ROUNDS))
    still = replace(scaled(early, 1e-30), rounds=1, evaluation=Evaluation(every=1))
    start, end = (simulate(each).models for each in (still, early))
    assert start is not None
    assert end is not None
    return torch.linalg.vector_norm(end.mean(0) - start[0]).item()


def accuracies(experiment: Experiment) -> tuple[float, float]:
    """Of nodes, before and after the last phase."""
    run = simulate(experiment)
    return run.metrics[experiment.training_rounds - 1]["accuracy_mean"], run.result["accuracy_mean"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--methods", nargs="+", default=["full", "random-sampling", "jwins", "lace:kept=0.1"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    base = setting(options.task, rounds=options.rounds, validation=0.1, test_nodes=8)

    def over_seeds(experiment: Experiment) -> Sequence[Experiment]:
        return [replace(experiment, seed=seed) for seed in options.seeds]

    of_full = mean(map(moved, over_seeds(base)))
    for method in map(Method.parse, options.methods):
        experiment = method.on(base)
        further = mean(map(moved, over_seeds(experiment))) / of_full
        for factor in options.factors:
            found = [accuracies(scaled(each, factor)) for each in over_seeds(experiment)]
            before, after = (mean(each) for each in zip(*found, strict=True))
            row = {"method": method.label, "factor": factor, "before": before, "after": after, "moved": further}
            words = f"{method.label}, learning rate x {factor:g}: {before:.1%} before, {after:.1%} after"
            print(json.dumps(row) if options.json else f"{words}; moves {further:.2f} times as far", flush=True)


if __name__ == "__main__":
    main()
