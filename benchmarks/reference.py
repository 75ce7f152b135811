"""The setting in which the JWINS authors' implementation was run, against what was measured of it: `reference-16`.

    GOSSAMER_DATA=DIR python benchmarks/reference.py [--graph FILE] [--cuts 1234] [--seeds 3] [--fast] [--json]

CIFAR-10, GN-LeNet, 16 nodes, 120 rounds, all nodes tested on all 10,000 images every 40 rounds. Who holds what is cut
as the reference cuts it, from a seed of its own: 1234 in its code, 90 in the tutorial with its graph of 16 nodes. The
graph is that one where a file of it is given. The reference ran on two cores, as one process per node. One JSON object
per line, of every seed and then of all:

    start         from the process's start to the first step
    gigabytes     of all processes at their most; without what is mapped from files, which is the libraries' code
    round         seconds of a round without a test, the median
    evaluation    seconds of testing every node on every image
    bytes         that a node sends in a round; accuracy after 40, 80 and 120 rounds
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import mean, median
from time import perf_counter
from typing import Any

import numpy as np
from processes import Watched

from gossamer.data.partition import Indices, LabelCuts, Samples, cut_out
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import EdgeList
from gossamer.simulator.simulation import Simulation

REFERENCE = {"start": 175, "gigabytes": 17 * 1.0737, "round": 0.57, "evaluation": 110, "bytes": 363_220}
ACCURACY = (0.228, 0.262, 0.309)


@dataclass(frozen=True)
class ReferenceCuts(LabelCuts):
    """The very cuts that the reference implementation makes, of the images in their published order, whatever the run's
    seed: Python's own generator with a seed that is set apart."""

    seed: int = 1234

    def place(self, data: Samples, nodes: int, bits: np.random.Philox) -> list[Indices]:
        assert data.labels is not None
        size = data.number // nodes // self.per_node
        generator = random.Random(self.seed)
        starts = [generator.randint(0, data.number - i * size - 1) for i in range(nodes * self.per_node)]
        shards = cut_out(np.argsort(data.labels, kind="stable"), starts, [size] * len(starts))
        return [np.concatenate(shards[at : at + self.per_node]) for at in range(0, len(shards), self.per_node)]


def child(seed: int, cuts: int, graph: str | None, fast: bool) -> None:
    """Run, and print what is measured of each round."""
    setting = replace(RECIPES["reference-16"](), seed=seed, fast=fast, partition=ReferenceCuts(seed=cuts))
    setting = replace(setting, topology=EdgeList(graph)) if graph else setting
    with Simulation(setting) as simulation:
        for _ in range(setting.rounds):
            start = perf_counter()
            measured = simulation.step()
            row = {"seconds": perf_counter() - start, "bytes": measured["bytes_total"] / setting.nodes}
            print(json.dumps(row | {"accuracy": measured.get("accuracy_mean")}), flush=True)


def run(seed: int, cuts: int, graph: str | None, fast: bool) -> dict[str, Any]:
    given = [str(seed), str(cuts), graph or "", "fast" if fast else ""]
    processes = Watched([sys.executable, __file__, "--child", *given])
    lines = list(processes.lines())
    rounds = [row for _, row in lines]
    plain = median(row["seconds"] for row in rounds if row["accuracy"] is None)
    tested = [row for row in rounds if row["accuracy"] is not None]
    return {
        "seed": seed,
        "start": lines[0][0] - plain,
        "gigabytes": processes.most["Pss"] / 1e9,
        "without_code": processes.most["unevictable"] / 1e9,
        "round": plain,
        "evaluation": median(row["seconds"] - plain for row in tested),
        "bytes": mean(row["bytes"] for row in rounds),
        "accuracy": [row["accuracy"] for row in tested],
    }


def report(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    found = []
    for seed in range(options.first, options.first + options.seeds):
        found.append(run(seed, options.cuts, options.graph, options.fast))
        yield {key: round(value, 4) if isinstance(value, float) else value for key, value in found[-1].items()}
    for key, theirs in REFERENCE.items():
        ours = mean(row[key] for row in found)
        yield {"measure": key, "ours": round(ours, 4), "reference": theirs, "times": round(theirs / ours, 2)}
    for at, theirs in enumerate(ACCURACY):
        each = [row["accuracy"][at] for row in found]
        yield {"measure": f"accuracy after {40 * (at + 1)}", "ours": round(mean(each), 4), "reference": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", help="a file of the reference's links")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cuts", type=int, default=1234, help="the seed of the reference's partition")
    parser.add_argument("--fast", action="store_true", help="with fast layers")
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        seed, cuts, graph, fast = options.child
        child(int(seed), int(cuts), graph or None, bool(fast))
        return
    for row in report(options):
        print(json.dumps(row) if options.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
