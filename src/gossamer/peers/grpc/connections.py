"""The connections that others hold to this peer: few, and none for long without having shown who they are.

Whoever reaches the port can open connections, and each takes a descriptor, of which a process has a limited number:
when none is left, nothing can be saved, and what privacy costs cannot be noted. gRPC bounds how many there are in all
and how long a handshake takes. It cannot count them per address or close those of callers that were refused, and tells
nobody when it accepts one. So they are looked for among this process's descriptors, and shut down there.
"""

import errno
import os
import socket
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote

try:
    import resource
except ImportError:  # pragma: no cover - on Windows, which has no such limit
    resource = None  # type: ignore[assignment]

DESCRIPTORS = "/dev/fd"  # the open ones of this process, on Linux and macOS
SWEEP_SECONDS = 0.5
BUSY_SWEEP_SECONDS = 0.05  # while there are too many
UNPROVEN_SECONDS = 10.0  # by then a listed peer has called
REFUSED_SECONDS = 2.0  # so long a connection stays after a call was refused: the caller is to read the answer
MOST_PER_PEER = 8  # a listed one needs one, and for a moment two
FEW = 16  # unproven ones from an address, besides two for each listed peer: several may be behind one address
ASSUMED_LIMIT = 1024  # of descriptors, where none is told


class Remote(NamedTuple):
    """The other end of a connection."""

    address: str
    port: int


class _Seen(NamedTuple):
    descriptor: int  # of gRPC, which may close it, and the number be given to something else, at any moment
    remote: Remote


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it is allowed."""
    if resource is not None:
        with suppress(OSError, ValueError):
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections(num_members: int) -> int:
    """How many others may hold in all: at most a quarter of the descriptors: the rest is for everything else."""
    limit = ASSUMED_LIMIT if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limit = ASSUMED_LIMIT if limit < 0 else limit
    return max(FEW, min(8 * _most_per_address(num_members), limit // 4))


def _most_per_address(num_members: int) -> int:
    return FEW + 2 * num_members


class Connections:
    """Those to one address and port of this process, at which nothing has been accepted yet. `is_listed` says whether a
    name still belongs to the group."""

    def __init__(self, host: str, port: int, num_members: int, is_listed: Callable[[str], bool]):
        self._addresses, self._port = _addresses_of(host), port
        self._most_per_address = _most_per_address(num_members)
        self._is_listed = is_listed
        self._first_seen: dict[Remote, float] = {}
        self._names: dict[Remote, str] = {}  # of the listed peers that have called
        self._refused: dict[Remote, float] = {}  # when a call was turned away
        self._clients: set[Remote] = set()  # this process called them from the same port, before it listened there
        with suppress(OSError):
            self._clients = {each.remote for each in self._seen()}  # no port that is listened on is given to a client
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="connections")
        self._thread.start()

    def called(self, peer: str, name: str) -> None:
        """A listed peer has called; `peer` is what gRPC says of the other end."""
        with self._lock, suppress(ValueError):
            self._names[_remote(peer)] = name

    def refused(self, peer: str) -> None:
        with self._lock, suppress(ValueError):
            self._refused.setdefault(_remote(peer), time.monotonic())

    def close(self) -> None:
        self._closing.set()
        self._thread.join(2)

    def _run(self) -> None:
        pause = SWEEP_SECONDS
        while not self._closing.wait(pause):
            with suppress(OSError):
                pause = BUSY_SWEEP_SECONDS if self.sweep() else SWEEP_SECONDS

    def sweep(self) -> int:
        """Shut down those that have been here too long or are too many; how many."""
        with self._lock:  # who calls meanwhile may not have been seen, and is noted after it
            seen = self._seen()
            remotes = {each.remote for each in seen}
            self._clients &= remotes
            too_many = self._too_many(remotes - self._clients)
        for descriptor, remote in seen:
            if remote in too_many:
                with suppress(OSError), _duplicate(descriptor) as connection:  # it may just have ended by itself
                    if self._other_end(connection) == remote:
                        connection.shutdown(socket.SHUT_RDWR)  # gRPC then reads its end, and closes it
        return len(too_many)

    def _seen(self) -> list[_Seen]:
        """All that have this local end. Never holds more than one descriptor; OSError if there is none for it."""
        found = []
        for descriptor in map(int, os.listdir(DESCRIPTORS)):
            try:
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    with _duplicate(descriptor) as connection:
                        if remote := self._other_end(connection):
                            found.append(_Seen(descriptor, remote))
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # else it was closed meanwhile
                    raise
        return found

    def _other_end(self, connection: socket.socket) -> Remote | None:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        with suppress(OSError):  # it listens, or has just ended
            here, port, *_ = connection.getsockname()
            if port == self._port and (not self._addresses or _plain(here) in self._addresses):
                address, number, *_ = connection.getpeername()
                return Remote(_plain(address), number)
        return None

    def _too_many(self, remotes: set[Remote]) -> set[Remote]:
        now = time.monotonic()
        self._first_seen = {remote: self._first_seen.get(remote, now) for remote in remotes}
        self._names = {remote: name for remote, name in self._names.items() if remote in remotes}
        self._refused = {remote: at for remote, at in self._refused.items() if remote in remotes}
        held: dict[tuple[str, int], list[Remote]] = defaultdict(list)  # by who holds them, and how many that one may
        found = set()
        for remote, since in self._first_seen.items():
            name = self._names.get(remote, "")
            listed = self._is_listed(name)
            held[(name, MOST_PER_PEER) if listed else (_network(remote.address), self._most_per_address)].append(remote)
            if not listed and now - since > UNPROVEN_SECONDS:
                found.add(remote)
            if now - self._refused.get(remote, now) > REFUSED_SECONDS:
                found.add(remote)
        for (_, most), theirs in held.items():
            found.update(sorted(theirs, key=lambda remote: self._first_seen[remote])[:-most])
        return found


@contextmanager
def _duplicate(descriptor: int) -> Iterator[socket.socket]:
    """A socket's descriptor as one of its own."""
    duplicate = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=duplicate)
    except BaseException:
        os.close(duplicate)
        raise
    with connection:
        yield connection


def _addresses_of(host: str) -> frozenset[str]:
    """Those that a host's name stands for; none if it is bound to all that this machine has."""
    try:
        found = frozenset(_plain(str(each[4][0])) for each in socket.getaddrinfo(host.strip("[]"), None))
    except OSError:
        return frozenset()
    return frozenset() if any(ip_address(each).is_unspecified for each in found) else found


def _network(address: str) -> str:
    """Whom to count as one: who has an address of IPv6 has at least the /64 around it."""
    return str(ip_network(f"{address}/64", strict=False)) if ":" in address else address


def _remote(peer: str) -> Remote:
    """Of "ipv4:10.0.0.5:4321" or "ipv6:%5B::1%5D:4321"; ValueError if it is none."""
    address, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return Remote(_plain(address.strip("[]")), int(port))


def _plain(address: str) -> str:
    found = ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
