"""Worker processes: each takes work items of a stage, one after the other, and leaves the results in shared memory.

Because rows never meet in an algorithm, a block in a process of its own computes what it would anywhere else, to the
last bit; and because a block's state is in shared memory between stages, any process can run it. So this process hands
the items out, and knows at every moment who is at what: a core that is slow or busy takes fewer. Only short commands
go through the pipes.
"""

import atexit
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NoReturn

import numpy as np
import torch

from gossamer.simulator.allocator import trim_heap, tune_malloc
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.ranks import Placement
from gossamer.training.block import NodeError

BLOCK_BYTES = 4 << 20  # of a block's models: so that what is computed from them is small, and near the processor
LEAST_BYTES = 1 << 20  # where more blocks are wanted, none is smaller: each takes some tenths of a millisecond itself
ITEMS_PER_WORKER = 8  # where none gets too small: the last one is what others wait for
STOP_SECONDS = 2.0  # for a worker to end by itself

Run = Callable[[str, int, int], None]
"""Runs a work item: takes stage, round and the item's number."""


class WorkerError(RuntimeError):
    """A worker failed or died."""


@dataclass(frozen=True)
class WorkPlan:
    """The work items of every stage, and whose they are at first: blocks of nodes, or some shards of an evaluation.

    An item is at first one worker's own, so that what it keeps of its nodes is used again; who has done its own takes
    what others have not begun.
    """

    blocks: Sequence[Sequence[range]]  # each worker's: places among the nodes that are hosted here, ascending
    num_shards: int = 0  # of an evaluation, that are tested here
    nodes: Sequence[int] = ()  # that are hosted here; none are named: all

    @classmethod
    def of(cls, prepared: PreparedExperiment, num_workers: int, placement: Placement | None = None) -> "WorkPlan":
        chunk = prepared.trainer.chunk
        chunk_bytes = 4 * sum(prepared.task.layer_sizes) * chunk
        nodes = np.arange(prepared.experiment.nodes) if placement is None else placement.hosted
        num_shards = len(prepared.evaluation_shards)
        if placement is not None:
            num_shards = len(placement.items([shard.row for shard in prepared.evaluation_shards])[placement.rank])
        runs = split(range(len(nodes)), num_workers, chunk)
        numbers = [_num_blocks(-(-len(run) // chunk), chunk_bytes, len(runs)) for run in runs]
        blocks = [split(run, number, chunk) for run, number in zip(runs, numbers, strict=True)]
        return cls(blocks, num_shards, nodes.tolist())

    @property
    def num_workers(self) -> int:
        return len(self.blocks)

    def by_worker(self, stage: str) -> list[range]:
        """The numbers of each worker's own items."""
        if stage in ("evaluate", "decode"):
            number = self._num_evaluations if stage == "evaluate" else self.num_decodes
            return [range(worker, number, self.num_workers) for worker in range(self.num_workers)]
        ends = np.cumsum([0, *map(len, self.blocks)]).tolist()
        return [range(start, end) for start, end in pairwise(ends)]

    def evaluation_shards(self, item: int) -> range:
        """The numbers of the shards in an item of an evaluation."""
        return range(item, self.num_shards, self._num_evaluations)

    @property
    def num_decodes(self) -> int:
        """Items in which frames of other ranks are decoded."""
        return 1 if self.num_workers == 1 else ITEMS_PER_WORKER * self.num_workers

    @property
    def _num_evaluations(self) -> int:
        return min(self.num_shards, ITEMS_PER_WORKER * self.num_workers)

    def name(self, stage: str, item: int) -> str:
        """What an error says of an item."""
        if stage == "evaluate":
            return f"item {item + 1} of {self._num_evaluations}"
        if stage == "decode":
            return f"item {item + 1} of {self.num_decodes}"
        places = [block for blocks in self.blocks for block in blocks][item]
        nodes = [self.nodes[place] for place in places] if self.nodes else places
        return f"nodes {nodes[0]} to {nodes[-1]}"


def _num_blocks(num_chunks: int, chunk_bytes: int, num_workers: int) -> int:
    """Of one of so many workers, whose nodes are so many chunks."""
    needed = -(-num_chunks // max(1, BLOCK_BYTES // chunk_bytes))
    wanted = min(ITEMS_PER_WORKER, num_chunks * chunk_bytes // LEAST_BYTES)
    return needed if num_workers == 1 else max(needed, wanted)


def split(nodes: range, number: int, chunk: int) -> list[range]:
    """The nodes in so many runs of whole chunks, as even as can be; fewer, if there are not enough chunks."""
    firsts = np.arange(nodes.start, nodes.stop, chunk)
    starts = [int(part[0]) for part in np.array_split(firsts, min(number, len(firsts)))]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], nodes.stop], strict=True)]


class InProcessPool:
    """Runs a stage in this process, one item after the other."""

    def __init__(self, plan: WorkPlan, run: Run):
        self._plan, self._run = plan, run

    def run(self, stage: str, round: int, most: int | None = None) -> None:
        for items in self._plan.by_worker(stage):
            for item in items[:most]:
                self._run(stage, round, item)

    def close(self) -> None:
        pass


@dataclass
class Worker:
    """A process, and the pipe to it."""

    process: BaseProcess | subprocess.Popen[bytes]
    connection: Connection

    def exit_code(self, seconds: float) -> int | None:
        """Once it has ended; None if it has not after so long."""
        if isinstance(self.process, BaseProcess):
            self.process.join(seconds)
            return self.process.exitcode
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode


class WorkerPool:
    """Runs a stage: hands its items out, and waits for all."""

    def __init__(self, plan: WorkPlan, workers: Sequence[Worker]):
        self._plan = plan
        self._workers = workers
        atexit.register(self.close)  # if nobody else does: multiprocessing would ask them to terminate, and wait

    def run(self, stage: str, round: int, most: int | None = None) -> None:
        """If several items fail, raises the error of the first, as one worker would. With `most`, only so many items
        for each worker are run."""
        left = [deque(items[:most]) for items in self._plan.by_worker(stage)]
        busy: dict[Connection, tuple[int, int]] = {}  # the number of a worker and the item that it has taken
        failures: dict[int, Exception] = {}

        def hand_out(number: int) -> None:
            item = _next(left, number)
            if item is not None and item < min(failures, default=item + 1):
                connection = self._workers[number].connection
                busy[connection] = number, item
                with suppress(OSError):  # it is dead, and its pipe has ended
                    connection.send_bytes(json.dumps([stage, round, item]).encode())

        for number in range(len(self._workers)):
            hand_out(number)
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                number, item = busy.pop(connection)
                try:
                    answer = json.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    code, where = self._workers[number].exit_code(1), self._plan.name(stage, item)
                    told = f"a worker died in round {round + 1}, {stage}, at {where} (exit code {code})"
                    failures[item] = WorkerError(told)
                    continue
                if answer:
                    failures[item] = _error_of(answer)
                hand_out(number)
        if failures:
            raise failures[min(failures)]

    def close(self) -> None:
        atexit.unregister(self.close)
        stop(self._workers)
        self._workers = []


def _next(left: Sequence[deque[int]], number: int) -> int | None:
    """The first of the worker's own items; else the last of who has most of them left."""
    if left[number]:
        return left[number].popleft()
    most = max(left, key=len)
    return most.pop() if most else None


def _error_of(answer: tuple[str, str]) -> Exception:
    """What a worker answers if an item failed."""
    kind, text = answer
    return NodeError(text) if kind == "node" else WorkerError(text)


def stop(workers: Sequence[Worker]) -> None:
    """Stop all of them; those that do not end soon, by force."""
    for worker in workers:
        with suppress(OSError):  # it is dead
            worker.connection.send_bytes(b"null")  # the workers of a later simulation may hold the pipe open
        worker.connection.close()  # a worker whose pipe ends, ends
    until = time.monotonic() + STOP_SECONDS
    for worker in workers:
        if worker.exit_code(max(0.0, until - time.monotonic())) is None:
            worker.process.kill()
            worker.exit_code(STOP_SECONDS)


def forked(run: Run, number: int) -> list[Worker]:
    """So many copies of this process."""
    context = multiprocessing.get_context("fork")
    workers: list[Worker] = []
    gc.collect()
    gc.freeze()  # the copies share what is not written to, and collecting garbage writes to every object
    trim_heap()  # to read data takes more than it leaves, and copies of free pages are of no use
    try:
        for _ in range(number):
            here, there = context.Pipe()
            inherited = [*(worker.connection for worker in workers), here]
            process = context.Process(target=_become_worker, args=(run, there, inherited), daemon=True)
            with there:
                try:
                    process.start()
                except BaseException:
                    here.close()
                    raise
            workers.append(Worker(process, here))
    except BaseException:
        stop(workers)
        raise
    finally:
        gc.unfreeze()
    return workers


def _become_worker(run: Run, connection: Connection, inherited: Sequence[Connection]) -> None:
    for other in inherited:
        other.close()  # so that a pipe ends when the parent does, whatever way that is
    serve(run, connection)


def serve(run: Run, connection: Connection) -> NoReturn:
    """Run what is asked for until that is nothing, or the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they reach the whole group; the parent decides, and ends the pipe
    torch.set_num_threads(1)
    tune_malloc()
    with suppress(EOFError, OSError):
        while (command := json.loads(connection.recv_bytes())) is not None:
            stage, round, item = command
            answer = None
            try:
                run(stage, round, item)
            except NodeError as error:
                answer = ["node", str(error)]
            except Exception:
                answer = ["error", traceback.format_exc()]
            connection.send_bytes(json.dumps(answer).encode())
    os._exit(0)
