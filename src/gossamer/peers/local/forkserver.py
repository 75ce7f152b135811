"""Starts peers on this machine quickly: a process that has everything imported, and forks one for each.

Importing torch takes seconds and most of a peer's memory; forked peers have both in common. A peer that was killed is
forked again as it was the first time. On standard input comes one line per peer, an `Order` as JSON; on standard output
go {"started": pid} and {"ended": pid, "code": number}. When standard input ends, so do all. Peers keep standard output
open, so that it ends when all are gone, even if this process was killed.
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.training.block import NodeError

END_SECONDS = 10.0


class Order(msgspec.Struct):
    """A peer to start. What it logs is added to the file `log`."""

    config: PeerConfig
    timeouts: Timeouts
    log: str

    def write(self) -> bytes:
        """As one line."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"  # paths as text

    @classmethod
    def read(cls, line: bytes) -> "Order":
        return msgspec.json.decode(line, type=cls, dec_hook=lambda kind, text: kind(text))


def main(path: str) -> None:
    """Fork the peers of an experiment file."""
    import gossamer.peers.peer  # noqa: F401 - what every peer needs, and what takes long
    from gossamer.experiments import toml
    from gossamer.peers.data import prepare
    from gossamer.simulator.precompile import precompile

    experiment = toml.read(toml.load(Path(path)))
    precompile(*prepare(experiment, 0, None))  # imports what the task needs, and loads kernels
    children: set[int] = set()
    pending = b""
    _tell(ready=True)
    while True:
        ready, _, _ = select.select([0], [], [], 0.05)
        _reap(children)
        if not ready:
            continue
        content = os.read(0, 65536)
        if not content:
            break
        *lines, pending = (pending + content).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                _become_peer(experiment, Order.read(line))
            children.add(pid)
            _tell(started=pid)
    _end(children)


def _become_peer(experiment: Experiment, order: Order) -> NoReturn:
    from gossamer.peers.peer import run_process

    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup(1)
        for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        run_process(experiment, order.config, order.timeouts)
        code = 0
    except (ExperimentError, NodeError) as error:
        print(f"gossamer: {error}", file=sys.stderr)
        code = 2 if isinstance(error, ExperimentError) else 1
    except OSError as error:
        print(f"gossamer: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:  # a second request to leave
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _reap(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _tell(ended=pid, code=os.waitstatus_to_exitcode(status))


def _end(children: set[int]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + END_SECONDS
    while children and time.monotonic() < until:
        _reap(children)
        time.sleep(0.05)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    while children:
        _reap(children)
        time.sleep(0.01)


def _tell(**what: Any) -> None:
    with suppress(BrokenPipeError):  # whoever asked is gone; standard input ends too
        os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they reach the whole group; who started this decides
    main(sys.argv[1])
