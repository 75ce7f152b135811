"""Simulated seconds to an accuracy: four algorithms on the digits, over 4G and over LoRa. The table of docs/clock.md.

    python benchmarks/clock.py --seeds 3

A local step takes 20 ms on the median node (lognormal, sigma 0.5). All models settle for four rounds at the end.
"""

import argparse
from dataclasses import replace
from statistics import mean

from rich.console import Console
from rich.table import Table

import gossamer as gs

RECIPES = ("dpsgd-digits", "jwins-digits", "silk-digits", "lace-digits")
STEP = gs.LogNormal(median=0.02, sigma=0.5)  # seconds of a local step, which differ from node to node


def experiment(recipe: str, network: str, seed: int, rounds: int) -> gs.Experiment:
    """With so many rounds of training, and four in which the models settle, for each."""
    clock = gs.Clock(network=network, step_seconds=STEP)  # type: ignore[arg-type]
    chosen = gs.recipes.RECIPES[recipe]()
    return replace(chosen, seed=seed, rounds=rounds + 4, settle=4, clock=clock)


def seconds_to(run: gs.Run, target: float) -> float | None:
    """Virtual seconds until the nodes' mean accuracy is first seen to be so high."""
    reached = (m["clock_seconds"] for m in run.metrics if m.get("accuracy_mean", 0) >= target)
    return next(reached, None)


def told(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--targets", type=float, nargs="+", default=[0.8, 0.88])
    parser.add_argument("--networks", nargs="+", default=["4g", "lora"])
    options = parser.parse_args()
    columns = [f"to {target:.0%}" for target in options.targets]
    table = Table("network", "algorithm", *columns, "whole run", "accuracy", "J per node", "of 10 Wh")
    for network in options.networks:
        for recipe in RECIPES:
            chosen = [experiment(recipe, network, seed, options.rounds) for seed in range(options.seeds)]
            runs = [gs.simulate(one, workers=1) for one in chosen]
            cells = []
            for target in options.targets:
                found = [seconds_to(run, target) for run in runs]
                times = [seconds for seconds in found if seconds is not None]
                cells.append(told(mean(times)) if len(times) == len(runs) else f"{len(times)} of {len(runs)}")
            keys = "clock_seconds", "accuracy_mean", "energy_joules_mean", "battery_share_mean"
            clock, accuracy, joules, share = (mean(dict(run.result)[key] for run in runs) for key in keys)
            name = recipe.removesuffix("-digits")
            table.add_row(network, name, *cells, told(clock), f"{accuracy:.1%}", f"{joules:,.1f}", f"{share:.2%}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
