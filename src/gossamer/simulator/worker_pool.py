"""Worker processes: each takes units of a stage, one after the other, and leaves the results in memory they share.

Because rows never meet in an algorithm, a block in a process of its own computes what it would anywhere else, to the
last bit; and because a block's state is on the board between stages, any process can run it. So they are handed out by
this process, which knows at every moment who is at what: a core that is slow or busy takes fewer. Only short commands
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
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NoReturn, Protocol

import torch

from gossamer.simulator.allocator import trim_heap, tune_malloc
from gossamer.training.block import NodeError

Run = Callable[[str, int, int], None]
"""Runs a unit: takes stage, round and the unit's number."""

END_SECONDS = 2.0


class Units(Protocol):
    """What there is to do."""

    def by_worker(self, stage: str) -> Sequence[Sequence[int]]:
        """The numbers of each worker's own units."""

    def name(self, stage: str, unit: int) -> str: ...


class WorkerError(RuntimeError):
    """A worker failed or died."""


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


class Workers:
    """Runs a stage: hands its units out, and waits for all."""

    def __init__(self, units: Units, workers: Sequence[Worker]):
        self._units = units
        self._workers = workers
        atexit.register(self.close)  # if nobody else does: multiprocessing would ask them to terminate, and wait

    def run(self, stage: str, round: int) -> None:
        """Of several units that fail, the first is told of, as it would be by one worker."""
        left = [deque(share) for share in self._units.by_worker(stage)]
        at: dict[Connection, tuple[int, int]] = {}  # the number of a worker and the unit that it has taken
        failures: dict[int, Exception] = {}

        def hand_out(number: int) -> None:
            unit = _next(left, number)
            if unit is not None and unit < min(failures, default=unit + 1):
                connection = self._workers[number].connection
                at[connection] = number, unit
                with suppress(OSError):  # it is dead, and its pipe has ended
                    connection.send_bytes(json.dumps([stage, round, unit]).encode())

        for number in range(len(self._workers)):
            hand_out(number)
        while at:
            for connection in wait(list(at)):
                assert isinstance(connection, Connection)
                number, unit = at.pop(connection)
                try:
                    answer = json.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    code, where = self._workers[number].exit_code(1), self._units.name(stage, unit)
                    told = f"a worker died in round {round + 1}, {stage}, at {where} (exit code {code})"
                    failures[unit] = WorkerError(told)
                    continue
                if answer:
                    failures[unit] = error_of(answer)
                hand_out(number)
        if failures:
            raise failures[min(failures)]

    def close(self) -> None:
        atexit.unregister(self.close)
        end(self._workers)
        self._workers = []


class InProcessPool:
    """Runs a stage in this process, one unit after the other."""

    def __init__(self, units: Units, run: Run):
        self._units, self._run = units, run

    def run(self, stage: str, round: int) -> None:
        for share in self._units.by_worker(stage):
            for unit in share:
                self._run(stage, round, unit)

    def close(self) -> None:
        pass


def _next(left: Sequence[deque[int]], number: int) -> int | None:
    """The first of the worker's own units; else the last of who has most of them left."""
    if left[number]:
        return left[number].popleft()
    most = max(left, key=len)
    return most.pop() if most else None


def error_of(answer: tuple[str, str]) -> Exception:
    """What a worker answers if a unit failed."""
    kind, text = answer
    return NodeError(text) if kind == "node" else WorkerError(text)


def end(workers: Sequence[Worker]) -> None:
    """All of them, and those that do not soon, by force."""
    for worker in workers:
        with suppress(OSError):  # it is dead
            worker.connection.send_bytes(b"null")  # the workers of a later simulation may hold the pipe open
        worker.connection.close()  # a worker whose pipe ends, ends
    until = time.monotonic() + END_SECONDS
    for worker in workers:
        if worker.exit_code(max(0.0, until - time.monotonic())) is None:
            worker.process.kill()
            worker.exit_code(END_SECONDS)


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
        end(workers)
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
            stage, round, unit = command
            answer = None
            try:
                run(stage, round, unit)
            except NodeError as error:
                answer = ["node", str(error)]
            except Exception:
                answer = ["error", traceback.format_exc()]
            connection.send_bytes(json.dumps(answer).encode())
    os._exit(0)
