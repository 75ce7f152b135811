"""Workers that are fresh interpreters, for systems on which a process with threads must not be forked.

    python -m gossamer.simulator.spawned_worker DESCRIPTOR

Nothing is pickled, and the program that started them is not run again. Standard input is a socket, on which come the
experiment as TOML and then the stages; DESCRIPTOR is that of the open file that is the shared memory. Everything else
follows from the experiment, and that it did is checked.
"""

import json
import os
import signal
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.block_runner import BlockRunners
from gossamer.simulator.precompile import precompile
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.shared_state import Memory, SharedState
from gossamer.simulator.worker_pool import Run, Worker, WorkerError, WorkPlan, serve, stop

AVAILABLE = os.name == "posix"  # elsewhere a socket cannot be standard input


def text_of(experiment: Experiment) -> str:
    """The experiment as TOML; ValueError if it cannot be told to a new process."""
    if not AVAILABLE:
        raise ValueError("on this system a new process cannot be given a socket")
    try:
        text = toml.dumps(experiment)
        told = toml.read(tomllib.loads(text)) == experiment
    except (TypeError, ValueError):
        told = False
    if not told:
        raise ValueError("what is your own, given from Python, cannot be told to a new process")
    return text


def spawned(experiment: str, prepared: PreparedExperiment, plan: WorkPlan, memory: Memory) -> list[Worker]:
    """As many fresh interpreters as the plan has workers, once they too have prepared the experiment, which is TOML."""
    blocks = [[(nodes.start, nodes.stop) for nodes in own] for own in plan.blocks]
    workers: list[Worker] = []
    try:
        for _ in plan.blocks:
            workers.append(_start(memory))
        for worker in workers:
            with suppress(OSError):  # it is dead, and the next lines say so
                worker.connection.send_bytes(json.dumps([experiment, blocks]).encode())
        fingerprint = prepared.fingerprint()
        for worker in workers:
            _check(worker, fingerprint)
    except BaseException:
        stop(workers)
        raise
    return workers


def _start(memory: Memory) -> Worker:
    assert memory.file is not None
    descriptor = memory.file.fileno()
    here, there = Pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gossamer.simulator.spawned_worker", str(descriptor)],
            stdin=there.fileno(),
            pass_fds=[descriptor],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(str(path) or os.getcwd() for path in sys.path)},
            process_group=0,  # Ctrl-C reaches the whole group of a terminal; the parent decides
        )
    except BaseException:
        here.close()
        raise
    finally:
        there.close()
    return Worker(process, here)


def _check(worker: Worker, fingerprint: str) -> None:
    """Wait until a worker has prepared the same experiment."""
    try:
        found, trouble = json.loads(worker.connection.recv_bytes())
    except (EOFError, OSError):
        raise WorkerError(f"a worker died before the first round (exit code {worker.exit_code(1)})") from None
    if trouble:
        raise WorkerError(f"a worker could not begin: {trouble}")
    if found != fingerprint:
        raise WorkerError("a worker found other data than this process, so files changed; start the run again")


def main(descriptor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    torch.set_num_threads(1)  # before anything is computed: one thread gives the same bits everywhere
    run: Run | None = None
    fingerprint = trouble = ""
    with suppress(EOFError, OSError):  # the pipe has ended, because the parent has
        experiment, blocks = json.loads(connection.recv_bytes())
        try:
            prepared = PreparedExperiment.of(toml.read(tomllib.loads(experiment)))
            fingerprint = prepared.fingerprint()
            run = _block_runners(prepared, [[range(*nodes) for nodes in own] for own in blocks], descriptor).run
        except Exception:
            trouble = traceback.format_exc()
        connection.send_bytes(json.dumps([fingerprint, trouble]).encode())
    if run is not None:
        serve(run, connection)


def _block_runners(prepared: PreparedExperiment, blocks: Sequence[Sequence[range]], descriptor: int) -> BlockRunners:
    with os.fdopen(descriptor, "r+b") as file:
        memory = Memory(file, is_new=False)
        num_shards = len(prepared.evaluation_shards)
        shared = SharedState.of(prepared.experiment, prepared.task, num_shards, memory, memory)
    precompile(prepared.experiment, prepared.task, prepared.shards[0], prepared.experiment.wire.mode == "count")
    return BlockRunners(prepared, WorkPlan(blocks, num_shards), shared)


if __name__ == "__main__":
    main(int(sys.argv[1]))
