"""The simulator: every node of an experiment on this machine, in as many processes as it has cores."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer import wire
from gossamer.core import Message, Part, PartSpec, Samples, State, Task
from gossamer.engines.block import Block, NodeError
from gossamer.engines.inbox import BlockInbox, Edges
from gossamer.engines.state import map_tensors, shared, tensors_of
from gossamer.engines.workers import Workers
from gossamer.experiment import Experiment
from gossamer.mixing import Mixing
from gossamer.rng import permutation, philox

FULL_SHARING = {"x": PartSpec()}


@dataclass
class Board:
    """Memory that all blocks see: the messages of the round, and what is reported of each node."""

    messages: Message  # (n, width) rows
    state: State  # (n, ...): where blocks start, and what `save` writes
    models: Tensor  # (n, D), as of the last evaluation
    losses: Tensor  # (n,) training loss of the round
    num_bytes: Tensor  # (n, number of parts, 3): header, indices, values of one message
    full_bytes: Tensor  # (n,): one message of full sharing
    scores: Tensor  # (n, 2): test loss and metric


@dataclass
class BlockHost:
    """A block and its place on the board."""

    block: Block
    board: Board
    experiment: Experiment
    codec: wire.Codec
    full_codec: wire.Codec
    evaluated: frozenset[int]  # nodes
    test_samples: Samples

    @property
    def nodes(self) -> Sequence[int]:
        return self.block.nodes

    @property
    def rows(self) -> slice:
        return slice(self.nodes[0], self.nodes[-1] + 1)

    def run(self, stage: str, round: int) -> None:
        {"outgoing": self.outgoing, "incoming": self.incoming, "evaluate": self.evaluate, "save": self.save}[stage](
            round
        )

    def outgoing(self, round: int) -> None:
        message, self.board.losses[self.rows] = self.block.outgoing(round)
        for name, part in message.items():
            target = self.board.messages[name]
            target.values[self.rows] = part.values
            if target.sent is not None:
                target.sent[self.rows] = part.sent if part.sent is not None else True
        for node, sizes in zip(self.nodes, self.codec.num_bytes(message), strict=True):
            for p, size in enumerate(sizes.values()):
                self.board.num_bytes[node, p] = torch.tensor(size)
        full = self.full_codec.num_bytes({"x": Part(self.block.models())})
        self.board.full_bytes[self.rows] = torch.tensor([sizes["x"].total for sizes in full])

    def incoming(self, round: int) -> None:
        mixing = self.experiment.topology.at(self.experiment.nodes, self.experiment.seed, round)
        self.block.incoming(round, BlockInbox(self.board.messages, edges_of(mixing, self.rows), self.nodes))

    def evaluate(self, round: int) -> None:
        models = self.block.models()
        self.board.models[self.rows] = models
        for node, model in zip(self.nodes, models, strict=True):
            if node in self.evaluated:
                scores = self.block.task.evaluate(model, self.test_samples)
                self.board.scores[node] = torch.tensor(scores, dtype=torch.float64)

    def save(self, round: int) -> None:
        rows = dict(tensors_of(self.block.state))
        for name, target in tensors_of(self.board.state):
            target[self.rows] = rows[name]


def edges_of(mixing: Mixing, rows: slice) -> Edges:
    """The edges into a run of nodes, where every node's message lies at its own number."""
    indptr = mixing.indptr[rows.start : rows.stop + 1]
    senders = mixing.senders[indptr[0] : indptr[-1]]
    return Edges(indptr - indptr[0], senders, senders, mixing.weights[indptr[0] : indptr[-1]])


class Simulation:
    """An experiment under way. `step` runs a round and returns its metrics; close it, or use it in a `with`."""

    def __init__(self, experiment: Experiment, workers: int | None = None):
        self.experiment = experiment
        self.task: Task = experiment.task.load()
        experiment.check(self.task)
        self._shards = experiment.shards(self.task)
        self.algorithm = experiment.optimizer.around(experiment.algorithm)
        self.round = 0  # rounds that are complete
        self.totals = {"header": 0, "indices": 0, "values": 0, "full": 0}  # bytes, all nodes and links
        self._torch_before = torch.get_num_threads(), torch.get_rng_state()
        torch.set_num_threads(1)  # one thread a worker is faster than two in one, and gives the same bits everywhere
        self._evaluated = self._choose_nodes()
        self._test_samples = self._choose_test_samples()
        self._board = self._make_board()
        self._num_workers = min(workers or default_workers(), experiment.nodes)
        self._workers: Workers | None = None  # started with the first round, after a resume has set the state

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        if self._workers:
            self._workers.close()
            self._workers = None
        torch.set_num_threads(self._torch_before[0])
        torch.set_rng_state(self._torch_before[1])

    def step(self) -> dict[str, Any]:
        """Run the next round; its metrics."""
        started = time.perf_counter()
        if self._workers is None:
            self._workers = self._start()
        self._workers.run("outgoing", self.round)
        metrics: dict[str, Any] = {"round": self.round + 1, "train_loss": self._board.losses.mean().item()}
        metrics |= self._count_bytes()
        self._workers.run("incoming", self.round)
        self.round += 1
        if self.experiment.evaluation.due(self.round, self.experiment.rounds):
            self._workers.run("evaluate", self.round - 1)
            metrics |= self._measure()
        return metrics | {"seconds": time.perf_counter() - started}

    def save(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, one row a node: what `restore` takes."""
        if self._workers:
            self._workers.run("save", self.round)
        return dict(tensors_of(self._board.state))

    def restore(self, tensors: Mapping[str, Tensor], round: int, totals: Mapping[str, int]) -> None:
        """Continue from a saved state; before the first step."""
        assert self._workers is None
        for name, target in tensors_of(self._board.state):
            target.copy_(tensors[name])
        self.round = round
        self.totals = dict(totals)

    def models(self) -> Tensor:
        """(n, D): the model of every node now."""
        self.save()
        return self.algorithm.model(self._board.state)

    def _start(self) -> Workers:
        experiment, task = self.experiment, self.task
        getattr(wire, "warm", lambda: None)()
        codec = wire.Codec(self.algorithm.parts, task.num_parameters, experiment.seed)
        full_codec = wire.Codec(FULL_SHARING, task.num_parameters, experiment.seed)
        hosts = []
        for numbers in np.array_split(np.arange(experiment.nodes), self._num_workers):
            nodes = range(int(numbers[0]), int(numbers[-1]) + 1)
            rows = slice(nodes.start, nodes.stop)
            block = Block(experiment, task, nodes, [self._shards[i] for i in nodes], self._board.models[rows])
            block.state = map_tensors(self._board.state, partial(_copy_rows, rows=rows))
            hosts.append(
                BlockHost(block, self._board, experiment, codec, full_codec, self._evaluated, self._test_samples)
            )
        return Workers(hosts)

    def _make_board(self) -> Board:
        n, d = self.experiment.nodes, self.task.num_parameters
        models = shared(n, d)
        models[:] = self.task.initial_model(self.experiment.seed)

        def moved(_: str, tensor: Tensor) -> Tensor:
            target = shared(*tensor.shape, dtype=tensor.dtype)
            return target.copy_(tensor)

        messages = {}
        for name, spec in self.algorithm.parts.items():
            width = d if spec.width is None else spec.width
            values = shared(n, width, dtype=torch.float64 if spec.values == "float64" else torch.float32)
            messages[name] = Part(values, shared(n, width, dtype=torch.bool) if spec.indexed or spec.drawn else None)
        return Board(
            messages=messages,
            state=map_tensors(self.algorithm.init(models), moved),
            models=models,
            losses=shared(n),
            num_bytes=shared(n, len(messages), 3, dtype=torch.int64),
            full_bytes=shared(n, dtype=torch.int64),
            scores=shared(n, 2, dtype=torch.float64),
        )

    def _choose_nodes(self) -> frozenset[int]:
        n, wanted = self.experiment.nodes, self.experiment.evaluation.nodes
        if wanted == "all":
            return frozenset(range(n))
        order = permutation(philox(self.experiment.seed, "evaluated nodes"), n)
        return frozenset(order[:wanted].tolist())

    def _choose_test_samples(self) -> Samples:
        n, wanted = self.task.num_test_samples, self.experiment.evaluation.samples
        if wanted == "all":
            return np.arange(n)
        return np.sort(permutation(philox(self.experiment.seed, "test samples"), n)[:wanted])

    def _count_bytes(self) -> dict[str, Any]:
        """The round's bytes over all links: a message is sent to each receiver, so it counts once for each."""
        mixing = self.experiment.topology.at(self.experiment.nodes, self.experiment.seed, self.round)
        copies = torch.from_numpy(mixing.num_receivers)
        parts = (self._board.num_bytes * copies[:, None, None]).sum(0)
        frames = wire.Codec.frame_bytes * int(copies.sum())
        header, indices, values = parts.sum(0).tolist()
        now = {"header": header + frames, "indices": indices, "values": values}
        full = int((self._board.full_bytes * copies).sum()) + frames
        for name, num_bytes in (now | {"full": full}).items():
            self.totals[name] += num_bytes
        return {
            **{f"bytes_{name}": num_bytes for name, num_bytes in now.items()},
            "bytes_total": sum(now.values()),
            "bytes_sent": sum(self.totals[name] for name in now),
            "bytes_full": self.totals["full"],
            "parts": {
                name: dict(zip(("header", "indices", "values"), row, strict=True))
                for name, row in zip(self._board.messages, parts.tolist(), strict=True)
            },
        }

    def _measure(self) -> dict[str, Any]:
        """Test loss and metric of the evaluated nodes and of the mean model, and how far apart the nodes are."""
        metric, models = self.task.metric, self._board.models
        mean = models.mean(0)
        distances = [torch.linalg.vector_norm(model - mean).item() for model in models]
        measured: dict[str, Any] = {"divergence": sum(distances) / len(distances)}
        scores = self._board.scores[sorted(self._evaluated)]
        if self.experiment.evaluation.mean_model:
            of_mean = self.task.evaluate(mean, self._test_samples)
            measured[f"{metric}_of_mean_model"] = of_mean[1]
            scores = scores if len(scores) else torch.tensor([of_mean], dtype=torch.float64)
        if not isfinite(loss := scores[:, 0].mean().item()):
            node = [i for i in sorted(self._evaluated) if not isfinite(self._board.scores[i, 0].item())]
            raise NodeError(
                f"the test loss of {f'node {node[0]}' if node else 'the mean model'} became {loss} in round "
                f"{self.round}; a smaller optimizer.learning_rate would help"
            )
        return measured | {
            "test_loss": loss,
            f"{metric}_mean": scores[:, 1].mean().item(),
            f"{metric}_min": scores[:, 1].min().item(),
            f"{metric}_max": scores[:, 1].max().item(),
        }


def _copy_rows(_: str, tensor: Tensor, rows: slice) -> Tensor:
    return tensor[rows].clone()


def default_workers() -> int:
    """As many as there are cores for this process, where processes can be forked."""
    if not hasattr(os, "fork"):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
