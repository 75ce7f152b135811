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

from gossamer.core import Message, Samples, Task
from gossamer.core.rng import global_states, restore_global_states
from gossamer.core.state import tensors_of
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.delivery import Links
from gossamer.runs import checkpoint
from gossamer.runs.nodes import Nodes
from gossamer.simulator import spawned_worker as spawned
from gossamer.simulator.accounting import MassAccount, RoundBytes
from gossamer.simulator.block_runner import BlockRunners
from gossamer.simulator.clock import RunClock
from gossamer.simulator.crossing import Crossing
from gossamer.simulator.evaluation import known, num_tested, scores_of, worst_decile
from gossamer.simulator.precompile import precompile
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.ranks import Integers, OneRank, Ranks, mean_of_rows
from gossamer.simulator.shared_state import Memory, SharedState, push_sum_part
from gossamer.simulator.worker_pool import InProcessPool, WorkerPool, WorkPlan, forked
from gossamer.training.block import NodeError
from gossamer.wire import Codec

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
        ranks: Ranks | None = None,
    ):
        """In so many processes; models and states in memory, or in files of a scratch directory.

        `task` is the experiment's, if it is loaded already: simulations can have one in common. With `ranks` this
        process hosts a part of the nodes, and the others the rest.
        """
        if start not in (None, "fork", "spawn") or (start == "fork" and not hasattr(os, "fork")):
            raise ExperimentError(f'start must be "fork", where there is such a thing, or "spawn", {start!r} was given')
        self._workers: WorkerPool | InProcessPool | None = None  # start with the first round, after a resume
        self._memory = Memory()
        self._before = torch.get_num_threads(), global_states()
        torch.set_num_threads(1)  # one thread per worker is faster than two in one, and gives the same bits everywhere
        self.ranks = ranks or OneRank()
        try:
            self._prepare(experiment, task, workers, scratch, start or default_start())
        except BaseException:
            self.close()
            raise

    def _prepare(
        self, experiment: Experiment, task: Task | None, workers: int | None, scratch: Path | None, start: Start
    ) -> None:
        self._given = experiment
        self._prepared = PreparedExperiment.of(experiment, task)
        self.experiment, self.task = self._prepared.experiment, self._prepared.task
        self.round = 0  # rounds that are complete
        self.totals: dict[str, float] = {"sent": 0, "full": 0, "mass_lost": 0.0}  # bytes and push-sum mass so far
        self._delivery = self.experiment.delivery
        self._placement = self.ranks.placement(self._links, self.experiment.nodes, self._prepared.trainer.chunk)
        if self.ranks.number > 1 and start == "spawn":
            workers = 1  # what ranks have of each other's messages is not in a file
        self._plan = WorkPlan.of(self._prepared, _workers_on(experiment.device, workers), self._placement)
        self._text: str | None = None  # the experiment, if workers are told it
        if start == "spawn" and self._plan.num_workers > 1:
            try:
                self._text = spawned.text_of(experiment)
            except ValueError as error:
                log.warning("one worker runs all nodes: %s", error)
                self._plan = WorkPlan.of(self._prepared, 1)
        self._shared = self._allocate(scratch)
        codec = Codec(self.experiment.algorithm.parts, sum(self.task.layer_sizes), self.experiment.seed)
        self._crossing = Crossing(self.experiment, self._delivery, self._placement, self._shared, codec)
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
            num_shards = len(self._prepared.evaluation_shards)
            return SharedState.of(self.experiment, self.task, num_shards, self._memory, small, self._placement)
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
        torch.set_num_threads(self._before[0])
        restore_global_states(self._before[1])

    def begin(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the workers and then meet the other ranks: forked later, workers would hold on to its connections.

        Ranks must have the same experiment, the same data, and the same of these settings.
        """
        if self._workers is not None:
            return
        self._workers = self._start()
        if self.ranks.number > 1:
            told = {"experiment": toml.dumps(self._given), "data": self._prepared.fingerprint()}
            told["placement"] = str(self._placement.rank_of.tolist())
            self.ranks.begin({**told, **(settings or {})})

    def step(self) -> dict[str, Any]:
        """Run the next round; its metrics."""
        self.begin()
        assert self._workers is not None
        started = time.perf_counter()  # what is compiled once is no part of the first round
        self._bytes = RoundBytes(self.experiment, self._shared)
        faults: dict[str, int] = {}
        between_ranks = 0
        first = self.round * self.experiment.exchanges
        for exchange in range(first, first + self.experiment.exchanges):
            deliveries = self._deliveries(exchange)
            self._bytes.begin(exchange, deliveries[0])
            self._run("outgoing", exchange)
            arrive = self._crossing.start(exchange, self.ranks)
            between_ranks += self._crossing.num_bytes(exchange)
            self._bytes.add(exchange, *deliveries)
            if self._clock.on:
                self._clock.exchange(exchange, *deliveries, self._bytes.per_link())
            arrive()
            if self.ranks.number > 1:
                self._run("decode", exchange)
            self._run("incoming", exchange)
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
        if self.ranks.number > 1:
            metrics |= {"ranks": self.ranks.number, "bytes_between_ranks": between_ranks}
        metrics |= self._mass.metrics(exchange, self.totals["mass_lost"]) | faults
        self.round += 1
        if self.experiment.evaluates_after(self.round):
            metrics |= self.evaluate()
        metrics |= self._clock.metrics()
        return metrics | {"seconds": time.perf_counter() - started}

    def evaluate(self) -> dict[str, Any]:
        """Test the models as they are after the last round; the metrics of that."""
        divergence = self._compare()
        self._run("evaluate", self.round - 1)
        return {"divergence": divergence, **self._evaluation(divergence)}

    def _run(self, stage: str, number: int) -> None:
        """A stage, in all ranks; then all have each other's rows of what it leaves in tables."""
        assert self._workers is not None
        shared, rows = self._shared, self._placement.nodes
        with self.ranks.together():
            self._workers.run(stage, number)
        if stage == "outgoing":
            ledger, masses = shared.resync_ledger(number), shared.masses[number % self._delivery.kept]
            sizes = [shared.num_bytes, shared.full_bytes, shared.reference_bytes]
            self.ranks.share([shared.losses, *sizes, masses, *([] if ledger is None else [ledger.resync_bytes])], rows)
        elif stage == "incoming":
            self.ranks.share([shared.weights], rows)
        elif stage == "evaluate":
            tested = self._placement.items([shard.row for shard in self._prepared.evaluation_shards])
            self.ranks.share([shared.scores], tested)

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

    def messages(self) -> Message:
        """The messages of the last exchange, one row per node, where nothing is kept of those before it; of a
        cumulative part, the sums."""
        assert self._delivery.kept == 1
        return self._shared.messages

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
        """Everything that the next round depends on and changes, one row per node: what `restore` takes.

        In one of several ranks, the rows of its own nodes; the tables, which all have, in the first.
        """
        tensors = self._tensors()
        if self.ranks.number == 1:
            return tensors
        if self.ranks.rank > 0:
            tensors = {name: tensor for name, tensor in tensors.items() if not checkpoint.is_table(name)}
        for name, tensor in tensors.items():
            if name.startswith("messages."):
                rows = tensor.view(self._delivery.kept, -1, tensor.shape[1])[:, self._placement.hosted]
                tensors[name] = rows.reshape(-1, tensor.shape[1])
        return tensors

    def _tensors(self) -> dict[str, Tensor]:
        ledgers = enumerate(self._shared.resync_ledgers)
        accounts = {name: tensor for channel, ledger in ledgers for name, tensor in ledger.saved(channel).items()}
        return dict(tensors_of(self._shared.state)) | self._beside_the_state() | accounts

    @property
    def placement(self) -> Sequence[Integers]:
        """The nodes of each rank."""
        return self._placement.nodes

    def nodes_to_restore(self, round: int) -> Integers | None:
        """Whose rows `restore` takes after so many rounds; None: those of all nodes."""
        if self.ranks.number == 1:
            return None
        return np.union1d(self._placement.hosted, self._crossing.heard(round * self.experiment.exchanges))

    def restorable(self, nodes: Integers | None) -> dict[str, Tensor]:
        """What `restore` takes for these nodes, without the numbers."""
        found = self._tensors()
        for name, tensor in ({} if nodes is None else found).items():
            if nodes is not None and not checkpoint.is_table(name):
                number = self._delivery.kept * len(nodes) if name.startswith("messages.") else len(nodes)
                found[name] = torch.empty(number, *tensor.shape[1:], dtype=tensor.dtype, device="meta")
        return found

    def _beside_the_state(self) -> dict[str, Tensor]:
        """The models' buffers, cumulative sums, messages that may still arrive, and the clock."""
        beside = dict(self._clock.saved)
        if self._shared.buffers.numel():
            beside["buffers"] = self._shared.buffers
        for name, part in self._shared.messages.items():
            if self._delivery.kept > 1 or self.experiment.algorithm.parts[name].cumulative:
                beside[f"messages.{name}.values"] = part.values
                beside |= {} if part.sent is None else {f"messages.{name}.sent": part.sent}
        return beside

    def restore(
        self, tensors: Mapping[str, Tensor], round: int, totals: Mapping[str, float], nodes: Integers | None = None
    ) -> None:
        """Continue from a saved state of all nodes, or of those `nodes_to_restore` names; before the first step."""
        assert self.round == 0
        present = np.arange(self.experiment.nodes) if nodes is None else nodes
        kept, own = self._delivery.kept, np.searchsorted(present, self._placement.hosted)
        for channel, ledger in enumerate(self._shared.resync_ledgers):
            ledger.restore(tensors, channel)
        for name, target in (dict(tensors_of(self._shared.state)) | self._beside_the_state()).items():
            if checkpoint.is_table(name):
                target.copy_(tensors[name])
            elif name.startswith("messages."):
                width = target.shape[1]
                target.view(kept, -1, width)[:, present] = tensors[name].view(kept, -1, width)
            else:
                target.copy_(tensors[name][own])
        if (weights := push_sum_part(self.experiment)) is not None and kept > 1:
            values = self._shared.messages[weights].values.view(kept, self.experiment.nodes, -1)
            self._shared.masses[:, present] = values[:, present].double().mean(-1)
            for row in self._shared.masses:
                self.ranks.share([row], self._placement.nodes)
        self.round = round
        self.totals = dict(totals)

    def models(self) -> Tensor:
        """(n, D): the model of every node now; where it is a part of the state, the next round changes it in place."""
        return self.experiment.optimizer.wrap(self.experiment.algorithm).model(self._shared.state)

    def _start(self) -> WorkerPool | InProcessPool:
        counted = self.experiment.wire.mode == "count" and self.ranks.number == 1
        precompile(self.experiment, self.task, self._prepared.shards[0], counted)
        if self._text is not None:
            return WorkerPool(self._plan, spawned.spawned(self._text, self._prepared, self._plan, self._memory))
        runners = BlockRunners(self._prepared, self._plan, self._shared, self._placement)
        run, number = runners.run, self._plan.num_workers
        return InProcessPool(self._plan, run) if number == 1 else WorkerPool(self._plan, forked(run, number))

    def _links(self) -> tuple[Integers, Integers]:
        """Senders and receivers in the first exchange, by which nodes can be placed."""
        mixing = self._delivery.mixing(0)
        return mixing.senders, mixing.receivers

    def _deliveries(self, exchange: int) -> tuple[Links, NDArray[np.bool_]]:
        """What is sent in the next exchange, and which of it arrives."""
        try:
            return self._delivery.deliveries(exchange)
        except ValueError as error:  # a random graph of a later round that cannot be had
            raise NodeError(f"in round {self.round + 1}, {error}") from error

    def _faults(
        self, exchange: int, links: Links, arrives: NDArray[np.bool_], so_far: dict[str, int]
    ) -> dict[str, int]:
        """What became of the messages of this exchange and of those before it in the round; {} if all arrive in it."""
        if self._delivery.complete:
            return {}
        late = arrives & (self._delivery.taken_at(exchange) > exchange)
        marks = {"sent": np.ones_like(arrives), "lost": ~arrives, "late": late}
        counts = {f"messages_{name}": int(marked.sum()) for name, marked in marks.items()}
        away = self.experiment.nodes - int(self._delivery.up(exchange).sum())
        return {name: so_far.get(name, 0) + count for name, count in counts.items()} | {"nodes_away": away}

    def _compare(self) -> float:
        """How far apart the nodes' models are; their mean goes to shared memory, to be evaluated."""
        models = self.models()
        means = [mean_of_rows(rows, self._placement, self.ranks) for rows in (models, self._shared.buffers)]
        torch.cat(means, out=self._shared.mean)
        norms = [torch.linalg.vector_norm(model - means[0]).item() for model in models]
        self._shared.distances[self._placement.hosted] = torch.tensor(norms, dtype=torch.float64)
        self.ranks.share([self._shared.distances], self._placement.nodes)
        distances: list[float] = self._shared.distances.tolist()
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
            names = [metric, *self.task.more_metrics]
            metrics |= {f"{name}_of_mean_model": known(value) for name, value in zip(names, of_mean[1:], strict=True)}
            scores = scores or {"the mean model": of_mean}
        numbers = {"the distance between the nodes' models": divergence}
        for who, (loss, score, *_) in scores.items():
            numbers |= {f"the test loss of {who}": loss, f"the {metric} of {who}": score}
        personal = scores_of(shards, self._shared.scores, personal=True)
        for row, (_, score, *_) in personal.items():
            numbers[f"the {metric} of node {row} on its own distribution"] = score
        for what, number in numbers.items():
            if not isfinite(number):
                help_ = "a smaller optimizer.learning_rate would help"
                if metric in what and not self.task.scores_samples:
                    help_ = f"a run's metric must be a number: give a score, and {metric} as another of metrics"
                raise NodeError(f"{what} became {number} in round {self.round}; {help_}")
        losses, *measured = zip(*scores.values(), strict=True)
        found = measured[0]
        metrics["test_loss"] = sum(losses) / len(losses)
        for name, values in zip([metric, *self.task.more_metrics], measured, strict=True):
            numbers_of = [value for value in values if isfinite(value)]
            metrics |= {
                f"{name}_mean": sum(numbers_of) / len(numbers_of) if numbers_of else None,
                f"{name}_min": min(numbers_of, default=None),
                f"{name}_max": max(numbers_of, default=None),
            }
            if of_rows:
                metrics[f"{name}_by_node"] = dict(zip(map(str, of_rows), map(known, values), strict=True))
        if not self.task.higher_is_better:
            metrics["higher_is_better"] = False
        if personal:
            own = [score for _, score, *_ in personal.values()]
            metrics[f"{metric}_personal_by_node"] = dict(zip(map(str, personal), own, strict=True))
            metrics[f"{metric}_worst_decile"] = worst_decile(found, self.task.higher_is_better)
            metrics[f"{metric}_personal_mean"] = sum(own) / len(own)
        return metrics


def _workers_on(device: str, workers: int | None) -> int:
    """In how many processes: one where a device is in use, which a forked process cannot have too."""
    if device == "cpu":
        return workers or default_workers()
    if workers is not None and workers > 1:
        raise ExperimentError(f"workers: {workers} was given, and one process computes on {device}; leave it out")
    return 1


def default_start() -> Start:
    """Copies are quick to start and have the data in common, but elsewhere than on Linux system libraries with threads
    do not outlive it."""
    return "fork" if sys.platform.startswith("linux") else "spawn"


def default_workers() -> int:
    """As many as there are cores for this process."""
    if not spawned.AVAILABLE:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
