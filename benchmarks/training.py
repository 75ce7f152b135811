"""How fast local training is, beside the machine's arithmetic and beside plainer ways to train many nodes.

    python benchmarks/training.py [--json] [--quick] [--repeat 5]

    gn-lenet                  96 nodes, batch 8, CIFAR-10's sizes: the simulator's own workers, one per core, against
        against_processes     one OS process per node, as other implementations have it: a module, torch.optim.SGD and a
                              thread of its own, and a barrier after every 3 steps. The network is the same in its
                              published form (ReLU before the pooling, torch's default layout). --quick starts 16 of
                              them, because two cores take as many steps per second of 16 as of 96.
        share_of_limit        of what the cores can do at all: the matrix products of its convolutions and linear layer,
                              forward and backward, as plain torch.mm in as many processes at once
    gn-lenet, fast            the same with `fast = true`
    mlp                       1,024 nodes on digits, batch 16, in one process, against a loop over modules
    matrix-factorization      96 nodes, batch 64, MovieLens' sizes, in one process, against a loop over modules

Only local steps are timed: no messages, no tests. Ours are those of the simulator's blocks: a few megabytes of models
take all the steps of a round before the next do. All that is compared runs in turn, several times, and every ratio is
the median of those of each turn: on a shared machine trust them and not the node-steps per second. Where others use the
cores too, 16 processes get a larger share of them than two workers; the ratio of processor times (Linux) is free of
that, and of whatever the processes spend waiting.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from threading import BrokenBarrierError
from time import perf_counter, process_time
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gossamer import wire
from gossamer.data import Digits, Supervised
from gossamer.data.arrays import Normalize
from gossamer.experiments.experiment import Experiment
from gossamer.models import GnLeNet, MatrixFactorization
from gossamer.simulator.allocator import tune_malloc
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.simulation import default_workers
from gossamer.simulator.worker_pool import InProcessPool, WorkerPool, WorkPlan, forked
from gossamer.training.block import Block
from gossamer.training.optimizer import Optimizer

LOCAL_STEPS = 3
USERS, ITEMS = 610, 9724  # of MovieLens' small data set
GOALS = {
    ("gn-lenet", "against_processes"): 1.4,
    ("gn-lenet", "share_of_limit"): 0.5,
    ("gn-lenet, fast", "against_processes"): 1.7,
    ("gn-lenet, fast", "share_of_limit"): 0.6,
    ("mlp", "against_modules"): 15,
    ("matrix-factorization", "against_modules"): 10,
}


class Contender(Protocol):
    """A way to take local steps."""

    num_steps: int  # of nodes, in a round

    def round(self) -> None: ...
    def close(self) -> None: ...


def workers_of(run: Callable[[str, int, int], Any], number: int) -> WorkerPool | InProcessPool:
    """As the simulator has them, one in this process, several forked; each has one work item of its own."""
    plan = WorkPlan([[range(item, item + 1)] for item in range(number)])
    return InProcessPool(plan, run) if number == 1 else WorkerPool(plan, forked(run, number))


class Engine:
    """The simulator's way: blocks of rows in workers, as large as it has them; each worker keeps to its own."""

    def __init__(self, experiment: Experiment, workers: int):
        prepared = PreparedExperiment.of(experiment)
        start = prepared.task.initial_model(0)

        def block(nodes: range) -> Block:
            shards = [prepared.shards[i] for i in nodes]
            x0 = start.repeat(len(nodes), 1)
            return Block(prepared.experiment, prepared.trainer, nodes, shards, x0, in_place=True)

        blocks = [[block(nodes) for nodes in own] for own in WorkPlan.of(prepared, workers).blocks]

        def train(stage: str, round: int, item: int) -> None:
            for block in blocks[item]:
                block.train(round)
                block.send(round)

        self.num_steps = experiment.nodes * experiment.local_steps
        self._workers, self._number = workers_of(train, len(blocks)), 0

    def round(self) -> None:
        self._workers.run("train", self._number)
        self._number += 1

    def close(self) -> None:
        self._workers.close()


class Node:
    """A node of the plain kind: a module, an optimizer and data of its own."""

    def __init__(self, build: Callable[[], nn.Module], data: tuple[Tensor, Tensor], batch: int, loss: Any, rate: float):
        self.module, self.loss, self.batch = build(), loss, batch
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=rate)
        self.inputs, self.targets = data
        self._order: Sequence[Tensor] = ()

    def step(self) -> None:
        if not self._order:
            self._order = list(torch.randperm(len(self.targets)).split(self.batch))
        chosen, *self._order = self._order
        self.optimizer.zero_grad()
        self.loss(self.module(self.inputs[chosen]), self.targets[chosen]).backward()
        self.optimizer.step()


class Processes:
    """One OS process per node."""

    def __init__(self, make: Callable[[], Node], number: int):
        context = multiprocessing.get_context("fork")
        self.num_steps = number * LOCAL_STEPS
        self._barrier = context.Barrier(number + 1)
        self._processes = [
            context.Process(target=_live, args=(make, self._barrier), daemon=True) for _ in range(number)
        ]
        for process in self._processes:
            process.start()

    def round(self) -> None:
        self._barrier.wait()  # begin
        self._barrier.wait()  # all have ended

    def close(self) -> None:
        self._barrier.abort()
        for process in self._processes:
            process.join()


def _live(make: Callable[[], Node], barrier: Any) -> None:
    torch.set_num_threads(1)
    node = make()
    try:
        while True:
            barrier.wait()
            for _ in range(LOCAL_STEPS):
                node.step()
            barrier.wait()
    except BrokenBarrierError:
        os._exit(0)


class Modules:
    """One module after the other."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes, self.num_steps = nodes, len(nodes) * LOCAL_STEPS

    def round(self) -> None:
        for node in self.nodes:
            for _ in range(LOCAL_STEPS):
                node.step()

    def close(self) -> None:
        pass


class Products:
    """The matrix products of a step, in a worker: the sizes (outputs, inputs, rows) of every layer."""

    def __init__(self, sizes: Sequence[tuple[int, int, int]], steps: int):
        self.steps = steps
        self.layers = [
            (torch.randn(rows, width), torch.randn(out, width), torch.randn(rows, out)) for out, width, rows in sizes
        ]

    def run(self, stage: str, round: int, unit: int) -> None:
        for _ in range(self.steps):
            for at, (inputs, weights, slopes) in enumerate(self.layers):
                torch.mm(inputs, weights.t())
                torch.mm(slopes.t(), inputs)
                if at:  # nobody asks for the gradient of the data
                    torch.mm(slopes, weights)


class Limit:
    """Nothing but the matrix products, on every core at once."""

    def __init__(self, sizes: Sequence[tuple[int, int, int]], workers: int, steps: int):
        self.num_steps = workers * steps
        self._workers = workers_of(Products(sizes, steps).run, workers)

    def round(self) -> None:
        self._workers.run("multiply", 0)

    def close(self) -> None:
        self._workers.close()


def product_sizes(module: nn.Module, sample: Tensor) -> list[tuple[int, int, int]]:
    """(outputs, inputs, rows) of the products that the convolutions and linear layers of a model are."""
    sizes: list[tuple[int, int, int]] = []

    def note(layer: nn.Module, _: Any, output: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        sizes.append((len(weight), weight[0].numel(), output.numel() // len(weight)))

    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        module(sample)
    for hook in hooks:
        hook.remove()
    return sizes


def published() -> nn.Module:
    """GN-LeNet as published, of torch's own layers."""
    layers: list[nn.Module] = []
    for channels, out in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(channels, out, 5, padding=2), nn.GroupNorm(2, out), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


class Rates(NamedTuple):
    """Node-steps per second in each turn."""

    elapsed: list[float]
    processor: list[float]  # a second of processor time of all processes; empty where that is not known


def processor_seconds() -> float | None:
    """Of this process and those it has started."""
    try:
        children = [Path(f"/proc/{child.pid}/schedstat").read_text() for child in multiprocessing.active_children()]
    except OSError:
        return None
    return process_time() + sum(int(text.split()[0]) for text in children) / 1e9


def rates(contenders: dict[str, Contender], repeat: int, seconds: float) -> dict[str, Rates]:
    """Of each, so many times in turn, each time for so long at least."""
    found = {name: Rates([], []) for name in contenders}
    for contender in contenders.values():
        contender.round()  # to warm up
    for _ in range(repeat):
        for name, contender in contenders.items():
            begun, used, rounds = perf_counter(), processor_seconds(), 0
            while rounds == 0 or perf_counter() - begun < seconds:
                contender.round()
                rounds += 1
            num_steps = rounds * contender.num_steps
            found[name].elapsed.append(num_steps / (perf_counter() - begun))
            now = processor_seconds()
            if used is not None and now is not None:
                found[name].processor.append(num_steps / (now - used))
    return found


def compare(contenders: dict[str, Callable[[], Contender]], repeat: int, seconds: float) -> dict[str, Rates]:
    with ExitStack() as stack:
        started = {}
        for name, start in contenders.items():
            started[name] = start()
            stack.callback(started[name].close)
        return rates(started, repeat, seconds)


def line(case: str, measure: str, found: dict[str, Rates], of: str, to: str, **more: Any) -> dict[str, Any]:
    """The ratio of two contenders, with its goal if it has one."""
    elapsed, processor = (
        [a / b for a, b in zip(ours, theirs, strict=True)] for ours, theirs in zip(found[of], found[to], strict=True)
    )
    ratio, goal = median(elapsed), GOALS.get((case, measure))
    row: dict[str, Any] = {"case": case, "measure": measure, "ratio": round(ratio, 3)}
    row |= {} if goal is None else {"goal": goal, "reached": ratio >= goal}
    row |= {"lowest": round(min(elapsed), 3), "highest": round(max(elapsed), 3)}
    row |= {"ratio_of_processor_time": round(median(processor), 3)} if processor else {}
    row |= {
        "node_steps_per_second": round(median(found[of].elapsed)),
        "node_steps_per_second_of_the_other": round(median(found[to].elapsed)),
    }
    return row | more


def gn_lenet(quick: bool, repeat: int) -> Iterator[dict[str, Any]]:
    nodes, batch, workers = 96, 8, default_workers()
    processes = 16 if quick else nodes
    images = torch.randint(0, 256, (100 * nodes, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(0, 10, (len(images),))
    normalize = Normalize(0.5, 0.5)
    task = Supervised(lambda: GnLeNet().build((3, 32, 32), 10), (images, labels), (images, labels), prepare=normalize)
    experiment = Experiment(
        task=task, nodes=nodes, batch_size=batch, local_steps=LOCAL_STEPS, optimizer=Optimizer(0.01)
    )

    def node() -> Node:
        own = torch.randperm(len(images))[:100]
        return Node(published, (normalize(images[own]), labels[own]), batch, nn.functional.cross_entropy, 0.01)

    sizes = product_sizes(published(), torch.zeros(batch, 3, 32, 32))
    contenders: dict[str, Callable[[], Contender]] = {
        "processes": lambda: Processes(node, processes),
        "limit": lambda: Limit(sizes, workers, 50),
        "gn-lenet": lambda: Engine(experiment, workers),
        "gn-lenet, fast": lambda: Engine(replace(experiment, fast=True), workers),
    }
    found = compare(contenders, repeat, 1.0)
    for case in list(contenders)[2:]:
        yield line(case, "against_processes", found, case, "processes", workers=workers, processes=processes)
        yield line(case, "share_of_limit", found, case, "limit", workers=workers)


def small(case: str, task: Supervised, nodes: int, batch: int, rate: float, repeat: int) -> Iterator[dict[str, Any]]:
    """A model whose nodes are trained together, against a loop over their modules; both with memory kept, as in the
    simulator's workers."""
    tune_malloc()
    experiment = Experiment(
        task=task, nodes=nodes, batch_size=batch, local_steps=LOCAL_STEPS, optimizer=Optimizer(rate)
    )
    assert callable(task.model)
    build, shards = task.model, experiment.shards(task)
    inputs, targets = task.train

    def modules() -> Modules:
        data = [(inputs[torch.from_numpy(shard)], targets[torch.from_numpy(shard)]) for shard in shards]
        return Modules([Node(build, own, batch, task.loss, rate) for own in data])

    contenders: dict[str, Callable[[], Contender]] = {"modules": modules, case: lambda: Engine(experiment, 1)}
    found = compare(contenders, repeat, 0.5)
    strategy = experiment.trainer_for(experiment.load_task()).name
    yield line(case, "against_modules", found, case, "modules", nodes=nodes, strategy=strategy)


def movielens() -> Supervised:
    """Made-up ratings of as many users and items as MovieLens' small data set has."""
    number = 100_000
    pairs = torch.stack([torch.randint(0, USERS, (number,)), torch.randint(0, ITEMS, (number,))], dim=1)
    stars = torch.randint(1, 11, (number,)) / 2
    model = MatrixFactorization()
    return Supervised(
        lambda: model.build((USERS, ITEMS), 1),
        (pairs, stars),
        (pairs, stars),
        loss=nn.functional.mse_loss,
        score=lambda output, target: -((output - target) ** 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per line in place of a table")
    parser.add_argument("--quick", action="store_true", help="fewer processes and turns: under a minute")
    parser.add_argument("--repeat", type=int, help="turns; 5, or 3 with --quick")
    options = parser.parse_args()
    repeat = options.repeat or (3 if options.quick else 5)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    wire.precompile()
    digits = Digits().load()
    for rows in (
        gn_lenet(options.quick, repeat),
        small("mlp", digits, 1024, 16, 0.1, repeat),
        small("matrix-factorization", movielens(), 96, 64, 0.05, repeat),
    ):
        for row in rows:
            print(json.dumps(row) if options.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
