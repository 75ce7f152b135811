"""Runs side by side, in processes of their own: copies of this one, which has torch, kernels and data already."""

import gc
import json
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from gossamer.core import Task
from gossamer.data import TASKS
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import sweep as sweeps
from gossamer.runs.run import Metrics, OnRound
from gossamer.runs.sweep import Failure, PlannedRun
from gossamer.simulator import simulation
from gossamer.simulator.allocator import of_glibc, trim_heap, tune_malloc
from gossamer.simulator.simulate import StopRequest, run_or_resume, stop_requests
from gossamer.simulator.worker_pool import WorkerError
from gossamer.training.block import NodeError

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class News:
    """What happened to a run.

    "kept": it was complete, or had failed for good, before. "preparing": data are read and kernels compiled for its
    setting, and so for all its seeds.
    """

    run: PlannedRun
    what: Literal["kept", "waiting", "preparing", "started", "round", "complete", "failed", "stopped"]
    metrics: Metrics | None = None  # of a round
    error: str = ""  # if it failed


OnNews = Callable[[News], None]
_Running = dict[Connection, tuple[PlannedRun, BaseProcess]]  # by the pipe from each


class Tasks:
    """The task of the last experiment that was asked for: others often have the same, and need not read it again."""

    def __init__(self) -> None:
        self._last: tuple[Experiment, Task] | None = None

    def of(self, experiment: Experiment) -> Task:
        if self._last is None or not _same_task(self._last[0], experiment):
            self._last = None  # not two data sets in memory
            self._last = experiment, experiment.load_task()
        return self._last[1]


def _same_task(a: Experiment, b: Experiment) -> bool:
    same = a.task is b.task or (type(a.task) in TASKS.values() and a.task == b.task)
    return same and (a.evaluation.validation, a.device, a.fast) == (b.evaluation.validation, b.device, b.fast)


@dataclass(frozen=True)
class RunPool:
    """Runs what there is to run, and keeps what failed."""

    out: Path | None  # None: failures are kept in no file
    tasks: Tasks
    failures: dict[str, Failure]
    checkpoint_every: int
    on_news: OnNews

    def run(self, todo: Sequence[PlannedRun], jobs: int, workers: int) -> None:
        """So many at a time. KeyboardInterrupt if it was asked to stop, once all that ran have saved their state."""
        if simulation.default_start() == "fork":
            stopped = self._side_by_side(deque(todo), jobs, workers)
        else:
            stopped = self._one_by_one(todo, workers)
        if stopped:
            raise KeyboardInterrupt

    def _one_by_one(self, todo: Sequence[PlannedRun], workers: int) -> bool:
        for run in todo:
            self.on_news(News(run, "started"))
            what, error = carry_on(run, self.tasks, workers, self.checkpoint_every, self._on_round(run))
            self._ended(run, what, error)
            if what == "stopped":
                return True
        return False

    def _on_round(self, run: PlannedRun) -> OnRound:
        return lambda metrics: self.on_news(News(run, "round", metrics))

    def _side_by_side(self, todo: deque[PlannedRun], jobs: int, workers: int) -> bool:
        running: _Running = {}
        told = False
        with _sharing_memory(), stop_requests() as stop_requested:
            try:
                while running or (todo and not stop_requested()):
                    while todo and len(running) < jobs and not stop_requested():
                        self._start(todo.popleft(), workers, running)
                    if stop_requested() and not told:
                        told = True
                        for _, process in running.values():
                            process.terminate()  # it saves, and ends after its round
                    for connection in wait(list(running), _SECONDS_BETWEEN_LOOKS):
                        assert isinstance(connection, Connection)
                        self._listen(connection, running, stop_requested())
            finally:
                for connection, (_, process) in running.items():  # a second Ctrl-C, or a mistake of our own
                    process.kill()
                    process.join()
                    connection.close()
        return told or bool(todo)

    def _start(self, run: PlannedRun, workers: int, running: _Running) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        with suppress(Exception):  # the run itself will tell
            self.tasks.of(run.experiment)  # read here, it is there for the next run, too
        arguments = (run, self.tasks, workers, self.checkpoint_every, there, [*running, here], os.getpid())
        process = context.Process(target=_become_run, args=arguments)
        with there:
            process.start()
        running[here] = run, process
        self.on_news(News(run, "started"))

    def _listen(self, connection: Connection, running: _Running, stopping: bool) -> None:
        run, process = running[connection]
        try:
            what, *rest = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            process.join()
            what, rest = "stopped", [""]
            if not stopping:
                what, rest = "failed", [f"its process died (exit code {process.exitcode})"]
        if what == "round":
            self.on_news(News(run, "round", rest[0]))
            return
        process.join()
        connection.close()
        del running[connection]
        self._ended(run, what, rest[0])

    def _ended(self, run: PlannedRun, what: str, error: str) -> None:
        name = run.directory.name
        if what in ("diverged", "failed"):
            self.failures[name] = Failure(error, final=what == "diverged")
            if self.out is not None:
                sweeps.write_failures(self.out, self.failures)
            self.on_news(News(run, "failed", error=error))
        elif what == "stopped":
            self.on_news(News(run, "stopped"))
        else:
            self.on_news(News(run, "complete"))


@contextmanager
def _sharing_memory() -> Iterator[None]:
    """Copies of this process share what neither writes to, and collecting garbage writes to every object."""
    gc.collect()
    gc.freeze()
    trim_heap()
    try:
        yield
    finally:
        gc.unfreeze()


def _become_run(
    run: PlannedRun,
    tasks: Tasks,
    workers: int,
    checkpoint_every: int,
    connection: Connection,
    inherited: Sequence[Connection],
    parent: int,
) -> None:
    """In a process of its own: carry the run out, and say how it goes."""
    os.setpgid(0, 0)  # Ctrl-C reaches the first process only, and that decides
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    prctl = of_glibc("prctl")
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # else the lock of the run would be held on
    if os.getppid() != parent:
        os._exit(1)
    for other in inherited:
        other.close()
    tune_malloc()

    def say(*what: Any) -> None:
        connection.send_bytes(json.dumps(what).encode())

    say(*carry_on(run, tasks, workers, checkpoint_every, lambda metrics: say("round", metrics)))


def carry_on(run: PlannedRun, tasks: Tasks, workers: int, checkpoint_every: int, on_round: OnRound) -> tuple[str, str]:
    """Run it, or continue it; how that ended, and what is to be said of it."""
    try:
        task = tasks.of(run.experiment)
        run_or_resume(run.experiment, run.directory, workers, checkpoint_every, on_round, task)
    except StopRequest:
        return "stopped", ""
    except NodeError as error:
        return "diverged", str(error)
    except (ExperimentError, WorkerError) as error:
        return "failed", str(error)
    except OSError as error:
        return "failed", f"{error.filename or 'a file'}: {error.strerror or error}"
    except Exception:
        return "failed", traceback.format_exc()
    return "complete", ""
