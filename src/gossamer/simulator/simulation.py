"""The simulator: every node of an experiment on this machine, in as many processes as it has cores."""

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import Samples, Task
from gossamer.core.state import tensors_of
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.delivery import Links
from gossamer.runs.nodes import Nodes
from gossamer.simulator import spawned_worker as spawned
from gossamer.simulator.accounting import MassAccount, RoundBytes
from gossamer.simulator.block_runner import BlockRunners
from gossamer.simulator.clock import RunClock
from gossamer.simulator.evaluation import num_tested, scores_of, worst_decile
from gossamer.simulator.precompile import precompile
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.shared_state import Memory, SharedState
from gossamer.simulator.worker_pool import InProcessPool, WorkerPool, WorkPlan, forked
from gossamer.training.block import NodeError

log = logging.getLogger(__name__)
Start = Literal["fork", "spawn"]  # how workers begin: as copies of this process, or as fresh interpreters


class Simulation:
    """An experiment under way. `step` runs a round and returns its metrics; close it, or use it in a `with`."""

    def __init__(
        self,
        experiment: Experiment,
        workers: int | None = None,
        scratch: Path | None = None,
        start: Start | None = None,
        task: Task | None = None,
    ):
        """In so many processes; models and states in memory, or in files of a scratch directory.

        `task` is the experiment's, if it is loaded already: simulations can have one in common.
        """
        if start not in (None, "fork", "spawn") or (start == "fork" and not hasattr(os, "fork")):
            raise ExperimentError(f'start must be "fork", where there is such a thing, or "spawn", {start!r} was given')
        self._workers: WorkerPool | InProcessPool | None = None  # start with the first round, after a resume
        self._memory = Memory()
        self._torch_before = torch.get_num_threads(), torch.get_rng_state()
        torch.set_num_threads(1)  # one thread per worker is faster than two in one, and gives the same bits everywhere
        try:
            self._prepare(experiment, task, workers, scratch, start or default_start())
        except BaseException:
            self.close()
            raise

    def _prepare(
        self, experiment: Experiment, task: Task | None, workers: int | None, scratch: Path | None, start: Start
    ) -> None:
        self._prepared = PreparedExperiment.of(experiment, task)
        self.experiment, self.task = self._prepared.experiment, self._prepared.task
        self.round = 0  # rounds that are complete
        self.totals: dict[str, float] = {"sent": 0, "full": 0, "mass_lost": 0.0}  # bytes and push-sum mass so far
        self._delivery = self.experiment.delivery
        self._plan = WorkPlan.of(self._prepared, workers or default_workers())
        self._text: str | None = None  # the experiment, if workers are told it
        if start == "spawn" and self._plan.num_workers > 1:
            try:
                self._text = spawned.text_of(experiment)
            except ValueError as error:
                log.warning("one worker runs all nodes: %s", error)
                self._plan = WorkPlan.of(self._prepared, 1)
        self._shared = self._allocate(scratch)
        self._mass = MassAccount(self.experiment, self._shared)
        self._clock = RunClock(self.experiment, self.task)
        self._bytes: RoundBytes  # of the last round

    def _allocate(self, scratch: Path | None) -> SharedState:
        """The shared state; all of it in one file, if workers are no copies of this process and must be given it."""
        directory = gettempdir() if scratch is None and self._text is not None else scratch
        try:
            if directory is not None:
                self._memory = Memory.in_files(directory) if self._text is None else Memory.in_a_file(directory)
            small = Memory() if self._text is None else self._memory
            return SharedState.of(
                self.experiment, self.task, len(self._prepared.evaluation_shards), self._memory, small
            )
        except OSError as error:
            if directory is None:
                raise
            raise ExperimentError(
                f"scratch: {directory} cannot hold the models: {error.strerror}; name a directory with room for them"
            ) from error

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        if self._workers:
            self._workers.close()
            self._workers = None
        self._memory.close()
        torch.set_num_threads(self._torch_before[0])
        torch.set_rng_state(self._torch_before[1])

    def step(self) -> dict[str, Any]:
        """Run the next round; its metrics."""
        if self._workers is None:
            self._workers = self._start()
        started = time.perf_counter()  # what is compiled once is no part of the first round
        self._bytes = RoundBytes(self.experiment, self._shared)
        faults: dict[str, int] = {}
        first = self.round * self.experiment.exchanges
        for exchange in range(first, first + self.experiment.exchanges):
            deliveries = self._deliveries(exchange)
            self._workers.run("outgoing", exchange)
            self._bytes.add(exchange, *deliveries)
            if self._clock.on:
                self._clock.exchange(exchange, *deliveries, self._bytes.per_link())
            self._workers.run("incoming", exchange)
            self.totals["mass_lost"] += self._mass.lost(exchange)
            faults = self._faults(exchange, *deliveries, faults)
        self.totals["sent"] += sum(self._bytes.by_kind.values())
        self.totals["full"] += self._bytes.full
        metrics: dict[str, Any] = {"round": self.round + 1}
        if self.round < self.experiment.training_rounds:
            metrics["train_loss"] = self._train_loss()
        if self.round == 0:
            metrics["strategy"] = self._prepared.trainer.name
        metrics |= self._bytes.metrics() | {f"bytes_{kind}": self.totals[kind] for kind in ("sent", "full")}
        metrics |= self._mass.metrics(exchange, self.totals["mass_lost"]) | faults
        self.round += 1
        if self.experiment.evaluates_after(self.round):
            divergence = self._compare()
            self._workers.run("evaluate", self.round - 1)
            metrics |= {"divergence": divergence, **self._evaluation(divergence)}
        metrics |= self._clock.metrics()
        return metrics | {"seconds": time.perf_counter() - started}

    def evaluate_some(self, most: int | None) -> float:
        """Run at most so many work items per worker of an evaluation, to see how long it takes; their share of it."""
        assert self._workers is not None
        self._compare()
        self._workers.run("evaluate", self.round - 1, most)
        items = self._plan.by_worker("evaluate")
        return sum(len(of_worker[:most]) for of_worker in items) / sum(map(len, items))

    @property
    def shards(self) -> Sequence[Samples]:
        """The training samples of each node."""
        return self._prepared.shards

    def message_bytes(self) -> NDArray[np.int64]:
        """(n, 3): header, indices and values of each node's message in the last exchange."""
        return self._bytes.per_message()

    def _train_loss(self) -> float:
        """The mean over the nodes that took part; 0 if none did."""
        up = torch.from_numpy(self._delivery.up(self.round * self.experiment.exchanges))
        return self._shared.losses[up].mean().item() if up.any() else 0.0

    def nodes(self) -> Nodes:
        """Who is linked to whom, and what data each node has."""
        return Nodes.of(self.experiment, self._prepared.shards, self.task.labels)

    def ledger(self) -> list[dict[str, int]]:
        """The bytes of the last round on every link."""
        return [{"round": self.round, **line} for line in self._bytes.by_link()]

    def save(self) -> dict[str, Tensor]:
        """Everything that the next round depends on and changes, one row per node: what `restore` takes."""
        return dict(tensors_of(self._shared.state)) | self._beside_the_state()

    def _beside_the_state(self) -> dict[str, Tensor]:
        """The models' buffers, cumulative sums and whom they reached, messages that may still arrive, and the clock."""
        ledgers = enumerate(self._shared.resync_ledgers)
        beside = {name: tensor for channel, ledger in ledgers for name, tensor in ledger.saved(channel).items()}
        beside |= self._clock.saved
        if self._shared.buffers.numel():
            beside["buffers"] = self._shared.buffers
        for name, part in self._shared.messages.items():
            if self._delivery.kept > 1 or self.experiment.algorithm.parts[name].cumulative:
                beside[f"messages.{name}.values"] = part.values
                beside |= {} if part.sent is None else {f"messages.{name}.sent": part.sent}
        return beside

    def restore(self, tensors: Mapping[str, Tensor], round: int, totals: Mapping[str, float]) -> None:
        """Continue from a saved state; before the first step."""
        assert self._workers is None
        for name, target in (dict(tensors_of(self._shared.state)) | self._beside_the_state()).items():
            target.copy_(tensors[name])
        self.round = round
        self.totals = dict(totals)

    def models(self) -> Tensor:
        """(n, D): the model of every node now; where it is a part of the state, the next round changes it in place."""
        return self.experiment.optimizer.wrap(self.experiment.algorithm).model(self._shared.state)

    def _start(self) -> WorkerPool | InProcessPool:
        precompile(self.experiment, self.task, self._prepared.shards[0], self.experiment.wire.mode == "count")
        if self._text is not None:
            return WorkerPool(self._plan, spawned.spawned(self._text, self._prepared, self._plan, self._memory))
        run, number = BlockRunners(self._prepared, self._plan, self._shared).run, self._plan.num_workers
        return InProcessPool(self._plan, run) if number == 1 else WorkerPool(self._plan, forked(run, number))

    def _deliveries(self, exchange: int) -> tuple[Links, NDArray[np.bool_]]:
        """What is sent in the next exchange, and which of it arrives."""
        try:
            return self._delivery.deliveries(exchange)
        except ValueError as error:  # a random graph of a later round that cannot be had
            raise NodeError(f"in round {self.round + 1}, {error}") from error

    def _faults(
        self, exchange: int, links: Links, arrives: NDArray[np.bool_], so_far: dict[str, int]
    ) -> dict[str, int]:
        """What faults did to the messages of this exchange and of those before it in the round; {} without faults."""
        if not self.experiment.faults.any:
            return {}
        late = arrives & (self._delivery.lateness[links.senders] > 0)
        marks = {"sent": np.ones_like(arrives), "lost": ~arrives, "late": late}
        counts = {f"messages_{name}": int(marked.sum()) for name, marked in marks.items()}
        away = self.experiment.nodes - int(self._delivery.up(exchange).sum())
        return {name: so_far.get(name, 0) + count for name, count in counts.items()} | {"nodes_away": away}

    def _compare(self) -> float:
        """How far apart the nodes' models are; their mean goes to shared memory, to be evaluated."""
        models = self.models()
        mean = models.mean(0)
        torch.cat([mean, self._shared.buffers.mean(0)], out=self._shared.mean)
        distances: list[float] = [torch.linalg.vector_norm(model - mean).item() for model in models]
        return sum(distances) / len(distances)

    def _evaluation(self, divergence: float) -> dict[str, Any]:
        """Test loss and metric of the nodes that were tested, and the metric of the mean model."""
        metric, shards = self.task.metric, self._prepared.evaluation_shards
        of_rows = scores_of(shards, self._shared.scores)
        of_mean = of_rows.pop(self.experiment.nodes, None)
        scores = {f"node {row}": found for row, found in of_rows.items()}
        metrics: dict[str, Any] = {"tested_nodes": len(scores), "tested_samples": num_tested(shards)}
        metrics["test_samples"] = self.task.num_test_samples
        if of_mean is not None:
            metrics[f"{metric}_of_mean_model"] = of_mean[1]
            scores = scores or {"the mean model": of_mean}
        numbers = {"the distance between the nodes' models": divergence}
        for who, (loss, score) in scores.items():
            numbers |= {f"the test loss of {who}": loss, f"the {metric} of {who}": score}
        personal = scores_of(shards, self._shared.scores, personal=True)
        for row, (_, score) in personal.items():
            numbers[f"the {metric} of node {row} on its own distribution"] = score
        for what, number in numbers.items():
            if not isfinite(number):
                raise NodeError(
                    f"{what} became {number} in round {self.round}; a smaller optimizer.learning_rate would help"
                )
        losses, found = zip(*scores.values(), strict=True)
        metrics |= {
            "test_loss": sum(losses) / len(losses),
            f"{metric}_mean": sum(found) / len(found),
            f"{metric}_min": min(found),
            f"{metric}_max": max(found),
            **({f"{metric}_by_node": {str(row): score for row, (_, score) in of_rows.items()}} if of_rows else {}),
        }
        if not self.task.higher_is_better:
            metrics["higher_is_better"] = False
        if personal:
            own = [score for _, score in personal.values()]
            metrics[f"{metric}_personal_by_node"] = dict(zip(map(str, personal), own, strict=True))
            metrics[f"{metric}_worst_decile"] = worst_decile(found, self.task.higher_is_better)
            metrics[f"{metric}_personal_mean"] = sum(own) / len(own)
        return metrics


def default_start() -> Start:
    """Copies are quick to start and have the data in common, but elsewhere than on Linux system libraries with threads
    do not outlive it."""
    return "fork" if sys.platform.startswith("linux") else "spawn"


def default_workers() -> int:
    """As many as there are cores for this process."""
    if not spawned.AVAILABLE:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
