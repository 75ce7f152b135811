"""Simulated seconds to an accuracy: four algorithms on the digits, over 4G and over LoRa. The table of docs/clock.md.

    python benchmarks/clock.py --seeds 3 [--plot docs/results/clock.svg]

A local step takes 20 ms on the median node (lognormal, sigma 0.5). All models settle for four rounds at the end.
"""

import argparse
from dataclasses import replace
from math import floor, log10
from pathlib import Path
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


TICKS = {
    "1 s": 1,
    "10 s": 10,
    "1 min": 60,
    "10 min": 600,
    "1 h": 3600,
    "10 h": 36000,
    "1 day": 86400,
    "10 days": 864000,
}
Line = list[tuple[float, float]]  # seconds and accuracy


def mean_line(runs: list[gs.Run]) -> Line:
    """At each test, the means over the seeds."""
    tests = zip(*([m for m in run.metrics if "accuracy_mean" in m] for run in runs), strict=True)
    return [(mean(m["clock_seconds"] for m in each), mean(m["accuracy_mean"] for m in each)) for each in tests]


def plot(lines: dict[str, dict[str, Line]]) -> str:
    """A picture: accuracy by seconds, on a logarithmic scale, one panel per network."""
    colours, body = dict(zip(RECIPES, ("#666", "#0b6fb8", "#d55e00", "#009e73"), strict=True)), []
    for panel, (network, of_network) in enumerate(lines.items()):
        left = 45 + 300 * panel
        seconds = [log10(x) for line in of_network.values() for x, _ in line]
        first, last = floor(min(seconds) * 2) / 2, max(seconds)

        def place(x: float, y: float, left: float = left, first: float = first, last: float = last) -> str:
            return f"{left + 190 * (x - first) / (last - first):.1f},{250 - 220 * y:.1f}"

        body.append(f'<text x="{left}" y="18" font-weight="bold">{network}</text>')
        for percent in range(0, 101, 20):
            x, y = place(first, percent / 100).split(",")
            body.append(f'<path d="M{x},{y}h190" stroke="#ddd"/>')
            body.append(f'<text x="{left - 5}" y="{y}" text-anchor="end" dy="4">{percent} %</text>')
        for words, tick in ((words, log10(seconds)) for words, seconds in TICKS.items()):
            if first <= tick <= last:
                body.append(f'<text x="{place(tick, 0).split(",")[0]}" y="266" text-anchor="middle">{words}</text>')
        for number, (recipe, line) in enumerate(of_network.items()):
            at = "L".join(place(log10(x), y) for x, y in line)
            body.append(f'<path d="M{at}" fill="none" stroke="{colours[recipe]}" stroke-width="2"/>')
            x, y = place(log10(line[-1][0]), 0).split(",")[0], 40 + 14 * number
            body.append(f'<circle cx="{x}" cy="{250 - 220 * line[-1][1]:.1f}" r="3" fill="{colours[recipe]}"/>')
            name = recipe.removesuffix("-digits")
            body.append(f'<text x="{left + 200}" y="{y}" fill="{colours[recipe]}">{name}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 284" font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="600" height="284" fill="#fff"/>', *body, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--targets", type=float, nargs="+", default=[0.8, 0.88])
    parser.add_argument("--networks", nargs="+", default=["4g", "lora"])
    parser.add_argument("--plot", type=Path, help="a picture of two networks, as SVG")
    options = parser.parse_args()
    columns = [f"to {target:.0%}" for target in options.targets]
    table = Table("network", "algorithm", *columns, "whole run", "accuracy", "J per node", "of 10 Wh")
    lines: dict[str, dict[str, Line]] = {network: {} for network in options.networks}
    for network in options.networks:
        for recipe in RECIPES:
            chosen = [experiment(recipe, network, seed, options.rounds) for seed in range(options.seeds)]
            runs = [gs.simulate(one, workers=1) for one in chosen]
            lines[network][recipe] = mean_line(runs)
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
    if options.plot:
        options.plot.write_text(plot(lines))


if __name__ == "__main__":
    main()
