"""How time and memory grow with the number of nodes and the size of the model.

    python benchmarks/scale.py [--quick] [--json] [--out docs/results]
    python benchmarks/scale.py --only large | ranks [--json]

Linear: the communication part of a JWINS round (see communication.py; training is replaced by steps that cost nothing,
the cut-off is the mean of the paper's law) for more nodes of 90,000 parameters, and for larger models, in the simulator
with one worker. Sizes take turns. Processor time for a node and parameter; `ratio` is to that of the smallest size.

Memory: the most that all processes of a run take together, pages that they share counted once: GN-LeNet on CIFAR-10,
JWINS, two workers; from the directory that GOSSAMER_DATA names, or made-up files of the same layout and size. `start`
is the time from the process's start to the first round's, with warm caches, and for how much of it the processor was
busy. Digits: seconds of a round of 4,096 MLPs. Scratch: memory that must be resident, for 32 models of a million
parameters and what JWINS keeps of them (4.25 copies), with all of it in memory and with all of it in files.

Large: seconds of a round of 16,384 MLPs of the digits; and of GN-LeNet with JWINS on 96 and on 1,024 nodes, per node,
with the memory of all processes. Ranks: the same 96 nodes with two workers, and with two ranks of one worker, in turn;
and the bytes that travelled between ranks.

One JSON object per line. --out writes the table and a plot there. On a shared machine trust the ratios.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from communication import COMMUNICATION, Clock, clocks
from processes import Watched
from torch import Tensor

from gossamer import Digits, Evaluation, Experiment, Supervised
from gossamer.algorithms import Jwins
from gossamer.cluster.environment import Environment
from gossamer.cluster.group import RankGroup
from gossamer.cluster.launch import launch
from gossamer.core import Samples, Task
from gossamer.data.cifar import CIFAR10
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import RandomRegular
from gossamer.models import Mlp
from gossamer.simulator.allocator import tune_malloc
from gossamer.simulator.simulation import Simulation

Row = dict[str, Any]
WIDTH = 90_000


@dataclass(frozen=True)
class Walk(Task):
    """A task of any size whose gradients cost next to nothing: noise, from another place for every node and step."""

    width: int = WIDTH
    num_samples: int = 1

    metric, num_test_samples = "nothing", 1

    def load(self) -> "Walk":
        return self

    @property
    def layer_sizes(self) -> list[int]:
        return [self.width]

    def initial_model(self, seed: int) -> Tensor:
        return 0.05 * NOISE[torch.arange(self.width) % len(NOISE)]

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        gradients, length = torch.empty_like(models), len(NOISE)
        for row, seed in enumerate(seeds):
            for start in range(-(seed % length), self.width, length):
                stop = min(start + length, self.width)
                gradients[row, max(start, 0) : stop] = NOISE[max(-start, 0) : stop - start]
        return torch.zeros(len(models)), gradients

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor) -> tuple[float, float]:
        return 0.0, 0.0


NOISE = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))


def walk(nodes: int, width: int) -> Experiment:
    return Experiment(
        nodes=nodes,
        rounds=1000,
        local_steps=1,
        batch_size=1,
        task=Walk(width, nodes),
        topology=RandomRegular(degree=4),
        algorithm=Jwins(randomize=False),
        evaluation=Evaluation(every=1000, nodes=0),
    )


def turn(simulation: Simulation, clock: Clock) -> list[float]:
    """The seconds of rounds one after the other, for a third of a second or once; a first one finds no cache warm."""
    seconds: list[float] = []
    while sum(seconds) < 0.3 and len(seconds) < 9:
        clock.seconds.clear()
        simulation.step()
        seconds.append(sum(clock.seconds[stage] for stage in COMMUNICATION))
    return seconds[1:] or seconds


def linear(sizes: Sequence[tuple[str, int, int]], rounds: int) -> Iterator[Row]:
    """The cost of each size, all in turn."""
    taken: dict[tuple[str, int, int], list[float]] = {size: [] for size in sizes}
    with clocks() as clock:
        running = {size: Simulation(walk(*size[1:]), workers=1) for size in sizes}
        for number in range(rounds + 1):
            for size, simulation in running.items():
                found = turn(simulation, clock)
                taken[size] += found if number else []
        for simulation in running.values():
            simulation.close()
    first: dict[str, float] = {}
    for (grows, nodes, width), seconds in taken.items():
        cost = 1e9 * median(seconds) / (nodes * width)
        yield {
            "measure": "linear",
            "grows": grows,
            "nodes": nodes,
            "parameters": width,
            "seconds": round(median(seconds), 4),
            "nanoseconds": round(cost, 2),
            "ratio": round(cost / first.setdefault(grows, cost), 3),
        }


# -- whole runs, in processes of their own -----------------------------------------------------------------------------


def child(task: str, *settings: int | str) -> None:
    """Run rounds and print a line after each."""
    scratch, workers = None, 2
    if task == "cifar":
        nodes, rounds, samples = map(int, settings)
        experiment = replace(RECIPES["jwins-cifar10"](), nodes=nodes, rounds=rounds)
        experiment = replace(experiment, evaluation=replace(experiment.evaluation, samples=samples))
    elif task == "digits":
        nodes, rounds = map(int, settings)
        experiment = digits(nodes, rounds)
    elif task == "ranks":
        in_ranks(*map(int, settings))
        return
    else:
        experiment, rounds, workers = walk(int(settings[0]), int(settings[1])), 2, 1
        scratch = Path(str(settings[2])) if len(settings) > 2 else None
    with Simulation(experiment, workers, scratch) as simulation:
        for _ in range(rounds):
            start = perf_counter()
            simulation.step()
            print(json.dumps({"seconds": perf_counter() - start, "processor": process_time()}), flush=True)


def in_ranks(nodes: int, rounds: int, number: int) -> None:
    """Run rounds in so many ranks of one worker; the first prints."""
    experiment = replace(RECIPES["jwins-cifar10"](), nodes=nodes, rounds=rounds + 1)
    experiment = replace(experiment, evaluation=replace(experiment.evaluation, every=rounds + 2))
    torch.set_num_threads(1)
    task = experiment.load_task()

    def work(environment: Environment) -> int:
        with RankGroup(environment) as group, Simulation(experiment, 1, task=task, ranks=group) as simulation:
            for _ in range(rounds):
                metrics = simulation.step()
                if group.rank == 0:
                    line = {"seconds": metrics["seconds"], "between": metrics["bytes_between_ranks"]}
                    print(json.dumps(line), flush=True)
        return 0

    assert not launch(number, work)


def digits(nodes: int, rounds: int) -> Experiment:
    """The digits, as often as gives every node some; the MLP is that of the task."""
    task = Digits().load()
    assert isinstance(task.train, tuple)
    times = -(-4 * nodes // task.num_samples)
    train = task.train[0].repeat(times, 1), task.train[1].repeat(times)
    repeated = Supervised(lambda: Mlp().build((64,), 10), train, task.test)
    evaluation = Evaluation(every=rounds + 1, nodes=0)
    return Experiment(nodes=nodes, rounds=rounds + 1, task=repeated, algorithm=Jwins(), evaluation=evaluation)


def watched(*settings: object) -> tuple[Watched, list[tuple[float, Row]]]:
    """A child's processes, and of each round when it was over and what was printed."""
    processes = Watched([sys.executable, __file__, "--child", *map(str, settings)])
    return processes, list(processes.lines())


def memory(nodes: int, goal: float, quick: bool) -> Iterator[Row]:
    rounds = 2 if quick or nodes > 96 else 4
    processes, done = watched("cifar", nodes, rounds, 1000 if quick else 10_000)
    row = {"measure": "memory", "nodes": nodes, "gigabytes": round(processes.most["Pss"] / 1e9, 3), "goal": goal}
    yield row | {"resident_gigabytes": round(processes.most["unevictable"] / 1e9, 3)}
    if nodes == 96:  # the last round tests, and the first starts the workers
        start = done[0][0] - min(line["seconds"] for _, line in done[:-1])
        processor = round(done[0][1]["processor"], 2)  # of the first process, which waits while workers train
        yield {"measure": "start", "nodes": nodes, "seconds": round(start, 2), "processor": processor, "goal": 5}


def small_models(nodes: int, rounds: int, goal: float = 2) -> Iterator[Row]:
    seconds = [line["seconds"] for _, line in watched("digits", nodes, rounds)[1][1:]]
    yield {"measure": "digits", "nodes": nodes, "seconds": round(median(seconds), 3), "goal": goal}


def large() -> Iterator[Row]:
    """Thousands of nodes; the first round is left out."""
    yield from small_models(16_384, 4, 1.5)
    first: float | None = None
    for nodes in (96, 1024):
        processes, done = watched("cifar", nodes, 4, 100)
        seconds = median([line["seconds"] for _, line in done[1:-1]]) / nodes  # the last one tests
        first = first or seconds
        row = {"measure": "large", "nodes": nodes, "seconds_per_node": round(seconds, 4), "goal": 1.15}
        yield row | {"ratio": round(seconds / first, 3), "gigabytes": round(processes.most["Pss"] / 1e9, 3)}


def ranks(turns: int = 3, rounds: int = 4) -> Iterator[Row]:
    """Two ranks of one worker against two workers, which take turns."""
    taken: dict[str, list[float]] = {"workers": [], "ranks": []}
    for _ in range(turns):
        _, of_workers = watched("cifar", 96, rounds + 1, 100)
        taken["workers"] += [line["seconds"] for _, line in of_workers[1:-1]]  # the last one tests
        _, of_ranks = watched("ranks", 96, rounds, 2)
        taken["ranks"] += [line["seconds"] for _, line in of_ranks[1:]]
    workers, in_two = (median(taken[name]) for name in ("workers", "ranks"))
    row = {"measure": "ranks", "nodes": 96, "workers_seconds": round(workers, 3), "ranks_seconds": round(in_two, 3)}
    yield row | {"speed": round(workers / in_two, 3), "goal": 0.9, "bytes_between_ranks": of_ranks[-1][1]["between"]}


def in_files(nodes: int, width: int) -> Iterator[Row]:
    with TemporaryDirectory() as scratch:
        found = [watched("walk", nodes, width, *where)[0].most["unevictable"] for where in ((), (scratch,))]
    row = {"measure": "scratch", "nodes": nodes, "parameters": width, "kept_gigabytes": 4.25 * 4e-9 * nodes * width}
    yield row | {"memory_gigabytes": round(found[0] / 1e9, 3), "files_gigabytes": round(found[1] / 1e9, 3)}


def make_up_cifar(root: Path) -> None:
    """Files of CIFAR-10's binary layout and size."""
    layout = CIFAR10.layouts[1]
    (root / layout.folder).mkdir()
    random = np.random.default_rng(0)
    for name in layout.files:
        records = random.integers(0, 256, (10_000, 3073), np.uint8)
        records[:, 0] %= 10
        records.tofile(root / layout.folder / name)


# -- the command -------------------------------------------------------------------------------------------------------


def run(quick: bool) -> Iterator[Row]:
    nodes = (96, 192, 384) if quick else (96, 192, 384, 768, 1536)
    few, widths = (16, (WIDTH, 1_000_000, 4_000_000)) if quick else (24, (WIDTH, 1_000_000, 10_000_000))
    yield from linear([("nodes", n, WIDTH) for n in nodes], 3 if quick else 7)
    yield from linear([("parameters", few, width) for width in widths], 3 if quick else 7)
    with TemporaryDirectory() as made_up:
        if "GOSSAMER_DATA" not in os.environ:
            make_up_cifar(Path(made_up))
            os.environ["GOSSAMER_DATA"] = made_up
        yield from memory(96, 1.2, quick)
        if not quick:
            yield from memory(384, 2.5, quick)
    yield from small_models(4096, 5 if quick else 9)
    yield from in_files(32, 250_000 if quick else 1_000_000)


def plot(rows: Sequence[Row]) -> str:
    """Seconds of a round by nodes and by parameters, both in powers of ten, with what is exactly linear beside it."""
    body = []
    for at, grows in enumerate(("nodes", "parameters")):
        points = [(row[grows], row["seconds"]) for row in rows if row.get("grows") == grows]
        (x0, y0), (x1, _) = points[0], points[-1]
        places = np.log10(np.array(points))
        low, high = places.min(0), places[:, :].max(0)
        high = low + np.maximum(high - low, np.log10(x1 / x0))
        scaled = (places - low) / (high - low) * (200, -160) + (70 + 330 * at, 190)
        ideal = np.log10([[x0, y0], [x1, y0 * x1 / x0]])
        ends = (ideal - low) / (high - low) * (200, -160) + (70 + 330 * at, 190)
        body.append(f'<path d="M{ends[0, 0]:.1f} {ends[0, 1]:.1f}L{ends[1, 0]:.1f} {ends[1, 1]:.1f}" stroke="#999"/>')
        for (x, y), (left, top) in zip(points, scaled, strict=True):
            body.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="#06c"/>')
            body.append(f'<text x="{left:.1f}" y="210" text-anchor="middle">{x:,}</text>')
            body.append(f'<text x="{left - 8:.1f}" y="{top - 6:.1f}" text-anchor="end">{y:.3g} s</text>')
        body.append(f'<text x="{170 + 330 * at}" y="230" text-anchor="middle">{grows}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 240" font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="640" height="240" fill="#fff"/>', *body, "</svg>\n"])


def table(rows: Sequence[Row]) -> str:
    lines = ["| nodes | parameters | seconds | ns per node and parameter | ratio |", "| --- | --- | --- | --- | --- |"]
    keys = ("nodes", "parameters", "seconds", "nanoseconds", "ratio")
    lines += [f"| {' | '.join(f'{row[key]:,}' for key in keys)} |" for row in rows if row["measure"] == "linear"]
    others = [row for row in rows if row["measure"] != "linear"]
    lines += ["", *(f"- {', '.join(f'{key} {value}' for key, value in row.items())}" for row in others)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes, in less than a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object per line in place of a table")
    parser.add_argument("--out", type=Path, help="a directory for scale-table.md and scale.svg")
    parser.add_argument("--only", choices=["large", "ranks"], help="thousands of nodes, or ranks against workers")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    torch.set_num_threads(1)
    tune_malloc()  # as workers do
    rows = []
    measures = {"large": large, "ranks": ranks, None: lambda: run(options.quick)}
    for row in measures[options.only]():
        rows.append(row)
        print(json.dumps(row) if options.json else ", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    if options.out:
        (options.out / "scale-table.md").write_text(table(rows))
        (options.out / "scale.svg").write_text(plot(rows))


if __name__ == "__main__":
    main()
