"""A group of peers on this machine, one process per peer, with keys of its own: to try things, and for tests."""

import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.data import prepare
from gossamer.peers.identity import group, keys
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.forkserver import END_SECONDS, Order
from gossamer.runs import files
from gossamer.simulator.precompile import precompile
from gossamer.training.block import NodeError

PORTS = range(10_000, 32_000)  # below those that systems give to outgoing connections


class LocalGroup:
    """The processes of a group. Use it in a `with`: at its end all of them are gone."""

    def __init__(
        self,
        experiment: Experiment,
        directory: Path,
        timeouts: Timeouts = Timeouts(),
        seen: Callable[[str, Member], str] | None = None,
        **options: Any,
    ):
        """`options` are further fields of `PeerConfig`, the same for all peers. `seen` says at which address a peer
        finds another, if not at its own: behind a proxy, for one."""
        prepared = prepare(experiment, 0, None)  # refuses what cannot run before a directory is made
        precompile(*prepared)  # compiles once, and not in every process
        if os.path.exists(directory):
            raise ExperimentError(f"{directory} exists already; name another directory")
        self.experiment, self.directory = experiment, directory.absolute()
        self.timeouts, self.options = timeouts, options
        self.directory.mkdir(parents=True)
        names = [f"peer-{node}" for node in range(experiment.nodes)]
        ports = free_ports(len(names))
        members = {name: Member(name, i, "127.0.0.1", ports[i]) for i, name in enumerate(names)}
        self.group = Group(f"up-{random.SystemRandom().getrandbits(64):016x}", members)
        keys.make(self.keys, names)
        files.replace(self.directory / "experiment.toml", toml.dumps(experiment).encode())
        for name in names:
            self.directory_of(name).mkdir(mode=0o700)
            self.write_group(name, self.group, seen)
        self.pids: dict[str, int] = {}  # of peers that were started
        self.codes: dict[int, int] = {}  # exit codes of those that have ended
        self._forkserver: subprocess.Popen[bytes] | None = None
        self._pending = b""

    @property
    def names(self) -> list[str]:
        return list(self.group.members)

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    def directory_of(self, name: str) -> Path:
        return self.directory / name

    def write_group(self, name: str, of: Group, seen: Callable[[str, Member], str] | None = None) -> None:
        """What this peer is to know of the group."""
        members = dict(of.members)
        if seen is not None:
            for other, member in members.items():
                if other != name:
                    host, port = group.address_of(seen(name, member))
                    members[other] = replace(member, host=host, port=port)
        files.replace(self.directory_of(name) / "peers.toml", group.dumps(Group(of.run, members)).encode())

    def __enter__(self) -> "LocalGroup":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *names: str) -> None:
        """Start these peers; all, if none is named."""
        if self._forkserver is None:
            command = [sys.executable, "-m", "gossamer.peers.local.forkserver", str(self.directory / "experiment.toml")]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "GRPC_ENABLE_FORK_SUPPORT": "0"}
            pipe = subprocess.PIPE
            self._forkserver = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
            )
            self._wait_for("ready")
        for name in names or self.names:
            out = self.directory_of(name)
            config = PeerConfig(name, out / "peers.toml", self.keys, out, with_parent=True, **self.options)
            assert self._forkserver.stdin is not None
            self._forkserver.stdin.write(Order(config, self.timeouts, str(out / "log.jsonl")).write())
            self._forkserver.stdin.flush()
            self.pids[name] = self._wait_for("started")

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a peer that runs; after SIGKILL, wait until it is gone."""
        if name in self.running:
            os.kill(self.pids[name], number)
        while number == signal.SIGKILL and name in self.running:
            time.sleep(0.01)

    @property
    def running(self) -> list[str]:
        self._read(0)
        return [name for name, pid in self.pids.items() if pid not in self.codes]

    def wait(self, seconds: float) -> None:
        """TimeoutError if some are still running after so long."""
        until = time.monotonic() + seconds
        while self.running:
            if time.monotonic() > until:
                raise TimeoutError(f"{', '.join(self.running)} did not end within {seconds} seconds")
            self._read(0.1)

    def close(self) -> None:
        """End what still runs, and leave no process behind."""
        if self._forkserver is not None:
            assert self._forkserver.stdin is not None
            assert self._forkserver.stdout is not None
            with suppress(OSError):
                self._forkserver.stdin.close()
            if self._forkserver.poll() is not None:  # it cannot end them any more
                self._end_peers()
            for _ in self._forkserver.stdout:
                pass  # until it ends
            self._forkserver.wait()
            self._forkserver.stdout.close()
            self._forkserver = None

    def _end_peers(self) -> None:
        """Wait for all to leave, as peers do whose parent is gone, and kill those that do not."""
        assert self._forkserver is not None
        assert self._forkserver.stdout is not None
        running = [pid for pid in self.pids.values() if pid not in self.codes]
        for number, seconds in ((signal.SIGCONT, END_SECONDS), (signal.SIGKILL, 0.0)):
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0 and select.select([self._forkserver.stdout], [], [], left)[0]:
                if not os.read(self._forkserver.stdout.fileno(), 65536):
                    return

    def _wait_for(self, what: str) -> int:
        """What the forkserver tells next of this kind."""
        while True:
            for told in self._read(1.0):
                if what in told:
                    return int(told[what])

    def _read(self, seconds: float) -> list[dict[str, Any]]:
        """What the forkserver has told, and who has ended; NodeError if it is gone."""
        if self._forkserver is None or self._forkserver.stdout is None:
            return []
        descriptor = self._forkserver.stdout.fileno()
        content = os.read(descriptor, 65536) if select.select([descriptor], [], [], seconds)[0] else b""
        if not content:
            if self._forkserver.poll() is not None:
                raise NodeError("the process that starts peers was killed, so all peers end; is there enough memory?")
            return []
        *lines, self._pending = (self._pending + content).split(b"\n")
        told = [msgspec.json.decode(line) for line in lines]
        for row in told:
            if "started" in row:
                self.codes.pop(row["started"], None)  # numbers of processes are given out again
            elif "ended" in row:
                self.codes[row["ended"]] = row["code"]
        return told

    def last_round(self, name: str) -> dict[str, Any]:
        """The metrics of the last round, with the last evaluation; only the end of the file is read."""
        found: dict[str, Any] = {}
        with suppress(OSError), (self.directory_of(name) / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16_384))
            for line in file.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    with suppress(msgspec.DecodeError):
                        found |= msgspec.json.decode(line)
        return found

    def result(self, name: str) -> dict[str, Any] | None:
        """A peer's report, once it has one."""
        path = self.directory_of(name) / "result.json"
        return msgspec.json.decode(path.read_bytes()) if path.exists() else None

    def log(self, name: str) -> list[dict[str, Any]]:
        path = self.directory_of(name) / "log.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        found = []
        for line in lines:
            with suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(line))
        return [row for row in found if isinstance(row, dict)]


def free_ports(number: int) -> list[int]:
    """Ports of this machine on which nothing listens now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == number:
            return found
    raise ExperimentError(f"{number} free ports were needed, and only {len(found)} found")
