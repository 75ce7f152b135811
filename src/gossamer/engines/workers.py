"""Worker processes: each hosts a block of the nodes, all write into memory they share.

Because rows never meet in an algorithm, a block in a process of its own computes what it would anywhere else, to the
last bit. Only short commands go through the pipes.
"""

import atexit
import json
import multiprocessing
import os
import signal
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Protocol

import torch

from gossamer.engines.allocator import keep_freed_memory
from gossamer.engines.block import NodeError


class Host(Protocol):
    """What a worker runs: one block."""

    @property
    def nodes(self) -> Sequence[int]: ...

    def run(self, stage: str, round: int) -> None: ...


class WorkerError(RuntimeError):
    """A worker failed or died."""


class Workers:
    """Runs a stage on every host at once, and waits for all. One host runs in this process, several in forked ones."""

    def __init__(self, hosts: Sequence[Host]):
        self._hosts = hosts
        self._connections: list[Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        if len(hosts) == 1:
            return
        context = multiprocessing.get_context("fork")
        for host in hosts:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(host, there, [*self._connections, here]), daemon=True)
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)
        atexit.register(self.close)  # if nobody else does: multiprocessing would ask them to terminate, and wait

    def run(self, stage: str, round: int) -> None:
        if not self._processes:
            self._hosts[0].run(stage, round)
            return
        failures: list[Exception] = []
        for connection in self._connections:
            with suppress(OSError):  # it is dead, and the next lines say so
                connection.send_bytes(json.dumps([stage, round]).encode())
        for connection, process, host in zip(self._connections, self._processes, self._hosts, strict=True):
            try:
                answer = json.loads(connection.recv_bytes())
            except (EOFError, OSError):
                process.join(1)
                where = f"nodes {host.nodes[0]} to {host.nodes[-1]}"
                failures.append(
                    WorkerError(
                        f"the worker of {where} died in round {round + 1}, {stage} (exit code {process.exitcode})"
                    )
                )
                continue
            if answer:
                kind, text = answer
                failures.append(NodeError(text) if kind == "node" else WorkerError(text))
        if failures:
            raise failures[0]

    def close(self) -> None:
        atexit.unregister(self.close)
        for connection in self._connections:
            connection.close()  # a worker whose pipe ends, ends
        for process in self._processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
        self._connections, self._processes = [], []


def _serve(host: Host, connection: Connection, inherited: Sequence[Connection]) -> None:
    for other in inherited:
        other.close()  # so that a pipe ends when the parent does, whatever way that is
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they reach the whole group; the parent decides, and ends the pipe
    torch.set_num_threads(1)
    keep_freed_memory()
    while True:
        try:
            stage, round = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        answer = None
        try:
            host.run(stage, round)
        except NodeError as error:
            answer = ["node", str(error)]
        except Exception:
            answer = ["error", traceback.format_exc()]
        connection.send_bytes(json.dumps(answer).encode())
