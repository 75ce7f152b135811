"""Start ranks on this machine: copies of this process, which has torch, the experiment and the data already."""

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from gossamer.cluster.environment import Environment
from gossamer.experiments.experiment import ExperimentError
from gossamer.simulator.allocator import of_glibc

Work = Callable[[Environment], int]  # what a rank does; its exit code
_PR_SET_PDEATHSIG = 1  # of prctl(2)
HUNG = 124  # the exit code of a rank that had to be killed, as of timeout(1)
GRACE_SECONDS = 10.0  # for the others to end, once a rank has failed: they find their connections to it closed


def launch(number: int, work: Work) -> dict[int, int]:
    """Do this work in so many ranks, and wait for all: the exit code of each that did not end well.

    Ctrl-C and SIGTERM are for the ranks to act on. Once one has failed, those that do not end soon are killed.
    """
    if not hasattr(os, "fork"):
        raise ExperimentError("--ranks copies this process, which this system cannot; start the ranks with torchrun")
    context = multiprocessing.get_context("fork")
    ranks: list[BaseProcess] = []
    hung: set[BaseProcess] = set()

    def pass_on(signal_number: int, frame: object) -> None:
        for each in ranks:
            if each.is_alive() and each.pid is not None:
                os.kill(each.pid, signal_number)

    with TemporaryDirectory(prefix="gossamer-") as directory:
        method = f"file://{Path(directory) / 'rendezvous'}"
        environments = [Environment(rank, number, method, loopback=True) for rank in range(number)]
        gc.collect()
        gc.freeze()  # copies share what neither writes to
        before = [(s, signal.signal(s, pass_on)) for s in (signal.SIGINT, signal.SIGTERM)]
        try:
            for environment in environments:
                process = context.Process(target=_become_rank, args=(work, environment, os.getpid()))
                process.start()
                ranks.append(process)
            _wait(ranks)
        finally:
            gc.unfreeze()
            for signal_number, handler in before:
                signal.signal(signal_number, handler)
            for each in ranks:
                if each.is_alive():
                    hung.add(each)
                    each.kill()
                    each.join()
    codes = {rank: HUNG if process in hung else process.exitcode or 0 for rank, process in enumerate(ranks)}
    return {rank: code for rank, code in codes.items() if code}


def _wait(ranks: Sequence[BaseProcess]) -> None:
    """Until all have ended, or one has failed and the others have had time to."""
    until: float | None = None
    while running := [each.sentinel for each in ranks if each.is_alive()]:
        if until is None and any(each.exitcode for each in ranks):
            until = time.monotonic() + GRACE_SECONDS
        if not wait(running, None if until is None else max(0.0, until - time.monotonic())):
            return


def _become_rank(work: Work, environment: Environment, parent: int) -> None:
    os.setpgid(0, 0)  # Ctrl-C reaches the first process, which passes it on
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    prctl = of_glibc("prctl")
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # it saves, and ends
    if os.getppid() != parent:
        os._exit(1)
    code = work(environment)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
