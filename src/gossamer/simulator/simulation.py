"""The simulator: every node of an experiment on this machine, in as many processes as it has cores."""

import logging
import os
import sys
import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import wire
from gossamer.core import Round
from gossamer.core.rng import Streams
from gossamer.core.state import tensors_of
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.delivery import Links
from gossamer.simulator import spawned_worker as spawned
from gossamer.simulator.block_runner import BlockRunners
from gossamer.simulator.evaluation import num_tested, scores_of
from gossamer.simulator.precompile import precompile
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.shared_memory import Memory
from gossamer.simulator.shared_state import SharedState
from gossamer.simulator.worker_pool import InProcessPool, WorkerPool, WorkPlan, forked
from gossamer.training.block import NodeError
from gossamer.wire.resync import Resend

log = logging.getLogger(__name__)
KINDS = ("header", "indices", "values")  # of bytes
Start = Literal["fork", "spawn"]  # how workers begin: as copies of this process, or as fresh interpreters


class Simulation:
    """An experiment under way. `step` runs a round and returns its metrics; close it, or use it in a `with`."""

    def __init__(
        self,
        experiment: Experiment,
        workers: int | None = None,
        scratch: Path | None = None,
        start: Start | None = None,
    ):
        """In so many processes; models and states in memory, or in files of a scratch directory."""
        if start not in (None, "fork", "spawn") or (start == "fork" and not hasattr(os, "fork")):
            raise ExperimentError(f'start must be "fork", where there is such a thing, or "spawn", {start!r} was given')
        self._workers: WorkerPool | InProcessPool | None = None  # start with the first round, after a resume
        self._memory = Memory()
        self._torch_before = torch.get_num_threads(), torch.get_rng_state()
        torch.set_num_threads(1)  # one thread a worker is faster than two in one, and gives the same bits everywhere
        try:
            self._prepare(experiment, workers, scratch, start or default_start())
        except BaseException:
            self.close()
            raise

    def _prepare(self, experiment: Experiment, workers: int | None, scratch: Path | None, start: Start) -> None:
        self._prepared = PreparedExperiment.of(experiment)
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
        self._board = self._lay_out(scratch)
        self._last: tuple[Links, Resend]  # what the last round sent

    def _lay_out(self, scratch: Path | None) -> SharedState:
        """The board; of workers that are no copies of this process, all of it in a file that they are given."""
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
        started = time.perf_counter()
        if self._workers is None:
            self._workers = self._start()
        deliveries = self._deliveries()
        self._workers.run("outgoing", self.round)
        metrics: dict[str, Any] = {"round": self.round + 1, "train_loss": self._train_loss()}
        if self.round == 0:
            metrics["strategy"] = self._prepared.trainer.name
        metrics |= self._count_bytes(*deliveries)
        self._workers.run("incoming", self.round)
        metrics |= self._weigh()
        self.round += 1
        if self.experiment.evaluation.due(self.round, self.experiment.rounds):
            divergence = self._compare()
            self._workers.run("evaluate", self.round - 1)
            metrics |= {"divergence": divergence, **self._evaluation(divergence)}
        return metrics | {"seconds": time.perf_counter() - started}

    def _train_loss(self) -> float:
        """The mean over the nodes that took part; 0 if none did."""
        up = torch.from_numpy(self.experiment.faults.up(self.experiment.nodes, self.round))
        return self._board.losses[up].mean().item() if up.any() else 0.0

    def ledger(self) -> list[dict[str, int]]:
        """The bytes of the last round on every link."""
        message_bytes = self._board.num_bytes.sum(1)
        message_bytes[:, 0] += wire.Codec.frame_bytes
        rows = message_bytes.tolist()
        sent, resend = self._last
        lines = []
        columns = sent.receivers, sent.senders, resend.is_resync, resend.num_bytes
        for receiver, sender, is_resync, resent in zip(*(column.tolist() for column in columns), strict=True):
            line = {"round": self.round, "sender": sender, "receiver": receiver}
            line |= dict(zip(KINDS, (0, 0, 0) if is_resync else rows[sender], strict=True))
            lines.append(line if self._board.resync_ledger is None else line | {"resync": resent})
        return lines

    def save(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, one row a node: what `restore` takes. It changes with the next."""
        return dict(tensors_of(self._board.state)) | self._beside_the_state()

    def _beside_the_state(self) -> dict[str, Tensor]:
        """The models' buffers, cumulative sums and whom they reached, and messages that may still arrive."""
        ledger = self._board.resync_ledger
        beside = {} if ledger is None else ledger.saved()
        if self._board.buffers.numel():
            beside["buffers"] = self._board.buffers
        for name, part in self._board.messages.items():
            if self.experiment.faults.depth > 1 or self.experiment.algorithm.parts[name].cumulative:
                beside[f"messages.{name}.values"] = part.values
                beside |= {} if part.sent is None else {f"messages.{name}.sent": part.sent}
        return beside

    def restore(self, tensors: Mapping[str, Tensor], round: int, totals: Mapping[str, float]) -> None:
        """Continue from a saved state; before the first step."""
        assert self._workers is None
        for name, target in (dict(tensors_of(self._board.state)) | self._beside_the_state()).items():
            target.copy_(tensors[name])
        self.round = round
        self.totals = dict(totals)

    def models(self) -> Tensor:
        """(n, D): the model of every node now; where it is a part of the state, the next round changes it in place."""
        return self.experiment.optimizer.wrap(self.experiment.algorithm).model(self._board.state)

    def _start(self) -> WorkerPool | InProcessPool:
        precompile(self.experiment)
        if self._text is not None:
            return WorkerPool(self._plan, spawned.spawned(self._text, self._prepared, self._plan, self._memory))
        run, number = BlockRunners(self._prepared, self._plan, self._board).run, self._plan.num_workers
        return InProcessPool(self._plan, run) if number == 1 else WorkerPool(self._plan, forked(run, number))

    def _deliveries(self) -> tuple[Links, NDArray[np.bool_]]:
        """What is sent in the next round, and which of it arrives."""
        try:
            return self._delivery.deliveries(self.round)
        except ValueError as error:  # a random graph of a later round that cannot be had
            raise NodeError(f"in round {self.round + 1}, {error}") from error

    def _count_bytes(self, sent: Links, arrives: NDArray[np.bool_]) -> dict[str, Any]:
        """The round's bytes over all links: a message is sent to each receiver, so it counts once for each."""
        board, n = self._board, self.experiment.nodes
        resend = self._resend(sent, arrives)
        copies = torch.from_numpy(np.bincount(sent.senders, minlength=n))
        frames = torch.from_numpy(np.bincount(sent.senders[~resend.is_resync], minlength=n))
        parts = (board.num_bytes * frames[:, None, None]).sum(0)
        now = dict(zip(KINDS, parts.sum(0).tolist(), strict=True))
        now["header"] += wire.Codec.frame_bytes * int(frames.sum()) if board.messages else 0
        if board.resync_ledger is not None:
            now["resync"] = int(resend.num_bytes.sum())
        self.totals["sent"] += sum(now.values())
        self.totals["full"] += int(((board.full_bytes + wire.Codec.frame_bytes) * copies).sum())
        self._last = sent, resend
        compared = (board.reference_bytes * copies[:, None]).sum(0).tolist()
        return {
            **{f"bytes_{kind}": num_bytes for kind, num_bytes in now.items()},
            "bytes_total": sum(now.values()),
            "bytes_sent": self.totals["sent"],
            "bytes_full": self.totals["full"],
            "parts": {
                name: dict(zip(KINDS, row, strict=True))
                for name, row in zip(board.messages, parts.tolist(), strict=True)
            },
            **{f"bytes_{name}": num for name, num in zip(self.experiment.wire.compare, compared, strict=True)},
        }

    def _resend(self, sent: Links, arrives: NDArray[np.bool_]) -> Resend:
        """What goes to receivers that missed some of a cumulative part; whom the exchange reaches is recorded."""
        ledger, frame_bytes = self._board.resync_ledger, self._board.frame_bytes
        if ledger is None:
            return Resend.nothing(len(arrives))
        resend = ledger.resend(sent.senders, sent.receivers, frame_bytes)
        reached = sent.where(arrives)
        ledger.record(np.where(self._delivery.up(self.round), frame_bytes, 0), reached.senders, reached.receivers)
        return resend

    def _weigh(self) -> dict[str, float]:
        """Where the push-sum weights of an algorithm with faults are: on nodes, on their way, or lost."""
        masses = [name for name, spec in self.experiment.algorithm.parts.items() if spec.push_sum_weight]
        if not masses or not self.experiment.faults.any:
            return {}
        values = self._board.messages[masses[0]].values

        def mass(links: Links) -> float:
            if not len(links.ages):
                return 0.0
            sent_at = self.round - links.ages
            rates = {t: self._averaging_rate(t) for t in np.unique(sent_at).tolist()}
            shares = torch.from_numpy(links.weights * [rates[t] for t in sent_at.tolist()])
            return float(values[self._delivery.slot(sent_at, links.senders)].double().mean(-1) @ shares)

        self.totals["mass_lost"] += mass(self._delivery.lost(self.round))
        return {
            "mass_on_nodes": self._board.weights.sum().item(),
            "mass_in_flight": sum(mass(links) for links in self._delivery.in_flight(self.round)),
            "mass_lost": self.totals["mass_lost"],
        }

    def _averaging_rate(self, number: int) -> float:
        rng = Streams(self.experiment.seed, [], number)
        return self.experiment.algorithm.averaging_rate(Round(number, 0.0, rng, self.experiment.rounds))

    def _compare(self) -> float:
        """How far apart the nodes' models are; their mean goes to shared memory, to be evaluated."""
        models = self.models()
        mean = models.mean(0)
        torch.cat([mean, self._board.buffers.mean(0)], out=self._board.mean)
        distances: list[float] = [torch.linalg.vector_norm(model - mean).item() for model in models]
        return sum(distances) / len(distances)

    def _evaluation(self, divergence: float) -> dict[str, Any]:
        """Test loss and metric of the nodes that were tested, and the metric of the mean model."""
        metric, shards = self.task.metric, self._prepared.evaluation_shards
        of_rows = scores_of(shards, self._board.scores)
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
        for what, number in numbers.items():
            if not isfinite(number):
                raise NodeError(
                    f"{what} became {number} in round {self.round}; a smaller optimizer.learning_rate would help"
                )
        losses, found = zip(*scores.values(), strict=True)
        return metrics | {
            "test_loss": sum(losses) / len(losses),
            f"{metric}_mean": sum(found) / len(found),
            f"{metric}_min": min(found),
            f"{metric}_max": max(found),
        }


def default_start() -> Start:
    """Copies are quick to start and have the data in common, but elsewhere than on Linux system libraries with threads
    do not outlive it."""
    return "fork" if sys.platform.startswith("linux") else "spawn"


def default_workers() -> int:
    """As many as there are cores for this process."""
    if not spawned.AVAILABLE:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
