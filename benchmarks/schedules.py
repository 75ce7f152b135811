"""Rows of a paper's table by the length of the schedule, to tell what is the method's from what is the few rounds'.

    GOSSAMER_DATA=DIR python benchmarks/schedules.py sparse-push-table2 --rows "VGG*top-1*" --rounds 2000 8000
    GOSSAMER_DATA=DIR python benchmarks/schedules.py low-precision-table2 --rows "ResNet-20*" --rounds 3000

The rows are those of the small size; learning rates fall at the same shares of the rounds. A tenth of the training
samples is held out, and models are tested on them: the nodes', and their mean model. A line per row and length.
"""

import argparse
import json
from dataclasses import replace
from typing import Any

from gossamer import Experiment, simulate
from gossamer.experiments.papers import TABLES
from gossamer.simulator.reproduce import matching
from gossamer.training.schedules import Steps


def of_length(experiment: Experiment, rounds: int, seed: int, rate: str | None) -> Experiment:
    schedule, share = experiment.optimizer.schedule, rounds / experiment.rounds
    if isinstance(schedule, Steps):
        milestones = tuple(round(at * share) for at in schedule.at)
        schedule = replace(schedule, at=milestones, warmup=round(schedule.warmup * share))
    evaluation = replace(experiment.evaluation, every=rounds, samples="all", validation=0.1)
    optimizer: Any = replace(experiment.optimizer, schedule=schedule)
    algorithm: Any = experiment.algorithm
    if rate is not None and hasattr(algorithm, "rate"):
        algorithm = replace(algorithm, rate=rate if rate in ("auto", "table") else float(rate))
    changes = {"algorithm": algorithm, "optimizer": optimizer, "evaluation": evaluation}
    return replace(experiment, rounds=rounds, seed=seed, **changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[name for name in TABLES if TABLES[name].rows("small")[0].experiment])
    parser.add_argument(
        "--rows", metavar="PATTERN", help="as for gossamer reproduce; those with a last phase are passed over"
    )
    parser.add_argument("--rounds", type=int, nargs="+", required=True)
    parser.add_argument("--rate", help="another averaging rate than the row's: a number, auto or table")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for rounds in options.rounds:
        for row in matching(TABLES[options.table].rows("small"), options.rows):
            if row.experiment is None or row.experiment.training_rounds < row.experiment.rounds:
                continue
            run = simulate(of_length(row.experiment, rounds, options.seed, options.rate), workers=1)
            nodes, mean = (100 * float(run.result[f"accuracy_{whose}"]) for whose in ("mean", "of_mean_model"))  # type: ignore[literal-required]
            if options.json:
                told = json.dumps({"row": row.label, "rounds": rounds, "nodes": nodes, "mean_model": mean})
            else:
                told = f"{rounds:>7,} rounds  {row.label}: nodes {nodes:.1f} %, mean model {mean:.1f} %"
            print(told, flush=True)


if __name__ == "__main__":
    main()
