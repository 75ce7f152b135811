"""The tables of docs/results/digits.md: python benchmarks/digits.py TABLE [--seeds 5] [--json]

TABLE is budgets, directed, new, faults or rates.

Budgets: full sharing, random sampling, JWINS, CHOCO and Silk on sixteen nodes at given shares of full sharing's bytes.
CHOCO's kept fraction is what makes its bytes fit the share; its rate was chosen on seeds 100 and 101 by `tune`.
Directed: SGP, Sparse-Push and SCSP on the directed ring of four nodes. New: what docs/algorithms.md says of our own.
Faults: Silk and full sharing when messages are lost or late, a node is away, or the graph changes.
Rates: "auto" against Sparse-Push's table of averaging rates, also on quadratics.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from gossamer import Evaluation, Experiment, simulate
from gossamer.algorithms import (
    Choco,
    DeepSqueeze,
    Dpsgd,
    Jwins,
    LocalOnly,
    QuantizedJwins,
    RandomSampling,
    RelativeToInit,
    Silk,
    SparsePush,
)
from gossamer.compressors import Chain, Sign, TopK
from gossamer.core import Algorithm, Round
from gossamer.core.rng import Streams
from gossamer.data import Quadratic
from gossamer.data.partition import LabelShards
from gossamer.experiments.experiment import named
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRandom, RandomRegular, Redrawn, Topology
from gossamer.training.block import NodeError
from gossamer.training.optimizer import Optimizer
from gossamer.transforms import Wavelet

SIXTEEN = RECIPES["jwins-digits"]()
RATES = (1.0, 0.85, 0.7, 0.5, 0.35, 0.2)
KEPT = {0.37: 0.335, 0.2: 0.178, 0.1: 0.086}  # of CHOCO, by share of bytes


def results(experiment: Experiment, seeds: Iterable[int]) -> list[dict[str, Any]]:
    once = replace(experiment, evaluation=Evaluation(every=experiment.rounds, samples="all", nodes="all"))
    return [simulate(replace(once, seed=seed)).result for seed in seeds]


def row(name: str, experiment: Experiment, seeds: Iterable[int]) -> dict[str, Any]:
    found = results(experiment, seeds)
    accuracies = [r["accuracy_mean"] for r in found]
    return {
        "case": name,
        "accuracy": round(mean(accuracies), 4),
        "deviation": round(stdev(accuracies), 4) if len(found) > 1 else 0.0,
        "accuracy_of_mean_model": round(mean(r["accuracy_of_mean_model"] for r in found), 4),
        "bytes_share_of_full": round(mean(r["bytes_share_of_full"] for r in found), 4),
        "resync_share_of_bytes": round(mean(r.get("bytes_resync", 0) / r["bytes_total"] for r in found), 4),
        "seconds": round(mean(r["seconds"] for r in found), 1),
    }


def tuned_rate(share: float) -> float:
    """The rate that did best on two other seeds."""
    scores = {}
    for rate in RATES:
        try:
            found = results(replace(SIXTEEN, algorithm=Choco(TopK(KEPT[share]), rate)), (100, 101))
            scores[rate] = mean(r["accuracy_mean"] for r in found)
        except NodeError:  # diverged
            scores[rate] = 0.0
    print(f"# CHOCO at {share:.0%}, accuracy by rate on seeds 100, 101: {scores}", flush=True)
    return max(scores, key=lambda rate: scores[rate])


def budgets() -> Iterable[tuple[str, Experiment]]:
    algorithms: dict[str, Algorithm] = {"full sharing": Dpsgd(), "silk": Silk()}
    for share in KEPT:
        algorithms[f"random sampling, {share:.0%}"] = RandomSampling(share)
        algorithms[f"jwins, {share:.0%}"] = Jwins() if share == 0.37 else Jwins(budget=share)
        rate = tuned_rate(share)
        algorithms[f"choco, {share:.0%}, rate {rate}"] = Choco(TopK(KEPT[share]), rate)
    return ((name, replace(SIXTEEN, algorithm=algorithm)) for name, algorithm in algorithms.items())


def directed() -> Iterable[tuple[str, Experiment]]:
    return ((name, RECIPES[name]()) for name in ("sgp-ring", "sparse-push-ring", "scsp-ring"))


def new() -> Iterable[tuple[str, Experiment]]:
    signs = Chain(TopK(0.2), Sign())
    algorithms: dict[str, Algorithm] = {
        "jwins-quantized, 8 bits": QuantizedJwins(8),
        "jwins-quantized, 4 bits": QuantizedJwins(4),
        "relative-to-init of deep-squeeze, signs, rate 0.3": RelativeToInit(DeepSqueeze(signs, 0.3, Wavelet())),
    }
    return ((name, replace(SIXTEEN, algorithm=algorithm)) for name, algorithm in algorithms.items())


def faults() -> Iterable[tuple[str, Experiment]]:
    disturbances: dict[str, dict[str, Any]] = {
        "undisturbed": {},
        "5 % of the messages lost": {"faults": Faults(drop=0.05)},
        "20 % of the messages lost": {"faults": Faults(drop=0.2)},
        "node 3 down in rounds 30 to 60": {"faults": Faults(down=((3, 30, 60),))},
        "node 3 one round late, node 7 two": {"faults": Faults(late=((3, 1), (7, 2)))},
        "graph drawn anew every round": {"topology": Redrawn(SIXTEEN.topology)},
    }
    for name, changes in disturbances.items():
        for algorithm in (Silk(), Dpsgd()):
            yield f"{named(algorithm)}, {name}", replace(SIXTEEN, algorithm=algorithm, **changes)
    for name in ("undisturbed", "node 3 one round late, node 7 two"):
        yield f"silk, rate 0.85, {name}", replace(SIXTEEN, algorithm=Silk(rate=0.85), **disturbances[name])


TABLES = {"budgets": budgets, "directed": directed, "new": new, "faults": faults}


QUADRATIC = Experiment(
    rounds=400,
    local_steps=1,
    task=Quadratic(dimension=400, num_samples=640, condition=2),
    partition=LabelShards(per_node=2),
    optimizer=Optimizer(0.03),
)


def rates(seeds: Sequence[int]) -> Iterable[dict[str, Any]]:
    """Distance to the optimum of a quadratic, accuracy on the digits; both with the rate of the paper's table and auto.

    Sparse-Push is on a directed graph, the others on an undirected one.
    """
    kinds: dict[str, tuple[type, Topology]] = {
        "choco": (Choco, RandomRegular(4)),
        "deep-squeeze": (DeepSqueeze, RandomRegular(4)),
        "sparse-push": (SparsePush, DirectedRandom(4)),
    }
    tasks = {"quadratic": QUADRATIC, "digits": SIXTEEN}
    yield {
        "algorithm": "local-only",
        **{task: score(replace(base, algorithm=LocalOnly()), seeds) for task, base in tasks.items()},
    }
    for name, (kind, topology) in kinds.items():
        for kept in (0.5, 0.1, 0.01):
            for rate in ("table", "auto"):
                algorithm = kind(TopK(kept), rate)
                line: dict[str, Any] = {"algorithm": name, "kept": kept, "rate": rate}
                for task, base in tasks.items():
                    experiment = replace(base, algorithm=algorithm, topology=topology)
                    line[f"{task}_rate"] = round(rate_of(experiment), 4)
                    line[task] = score(experiment, seeds)
                yield line


def rate_of(experiment: Experiment) -> float:
    """The averaging rate that is used on seed 0's graph."""
    prepared = experiment.prepared(experiment.task.load()).algorithm
    return prepared.averaging_rate(Round(0, 0.0, Streams(0, [0], 0)))


def score(experiment: Experiment, seeds: Sequence[int]) -> float | None:
    """The mean over nodes and seeds of the task's metric; None if a run diverged."""
    try:
        return round(mean(r[r["metric"] + "_mean"] for r in results(experiment, seeds)), 4)
    except NodeError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=[*TABLES, "rates"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    seeds = range(options.seeds)
    if options.table == "rates":
        for line in rates(seeds):
            print(json.dumps(line) if options.json else "| " + " | ".join(map(str, line.values())) + " |", flush=True)
        return
    for name, experiment in TABLES[options.table]():
        line = row(name, experiment, seeds)
        if options.json:
            print(json.dumps(line), flush=True)
        else:
            again = f" {line['resync_share_of_bytes']:.1%} |" if options.table == "faults" else ""
            print(
                f"| {name} | {line['accuracy']:.1%} ± {100 * line['deviation']:.1f} "
                f"| {line['accuracy_of_mean_model']:.1%} | {line['bytes_share_of_full']:.1%} |{again}",
                flush=True,
            )


if __name__ == "__main__":
    main()
