"""Starts peers on this machine quickly: a process that has everything imported, and forks one for each.

Importing torch takes seconds and most of a peer's memory; forked peers have both in common. A peer that was killed is
forked again as it was the first time. On standard input comes a line a peer, {"arguments": [...], "out": path, "log":
path}; on standard output go {"started": pid} and {"ended": pid, "code": number}. When standard input ends, so do all.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

END_SECONDS = 10.0


def main(experiment: str) -> None:
    """Fork the peers of an experiment file."""
    import gossamer.peers.peer  # noqa: F401 - what every peer needs, and what takes long
    from gossamer import wire
    from gossamer.experiments import toml

    wire.precompile()
    toml.read(toml.load(Path(experiment))).load_task()  # imports what the task needs
    children: set[int] = set()
    pending = b""
    _say(ready=True)
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
                _become_peer(json.loads(line))
            children.add(pid)
            _say(started=pid)
    _end(children)


def _become_peer(order: dict[str, Any]) -> NoReturn:
    from gossamer.cli.main import main

    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor, target in ((nothing, 0), (out, 1), (log, 2)):
            os.dup2(descriptor, target)
        sys.argv = ["gossamer", "peer", *order["arguments"]]
        main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def _reap(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _say(ended=pid, code=os.waitstatus_to_exitcode(status))


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


def _say(**told: object) -> None:
    with suppress(BrokenPipeError):  # whoever asked is gone; standard input ends too
        os.write(1, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they reach the whole group; who started this decides
    main(sys.argv[1])
