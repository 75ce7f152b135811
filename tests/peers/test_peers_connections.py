"""Strangers that hold as many connections as they can: they take nothing that training, saving or privacy needs."""

import os
import resource
import signal
import socket
import ssl
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from harness import DIGITS, events, until

from gossamer.graphs.topologies import Ring
from gossamer.peers.config import Timeouts
from gossamer.peers.counters import MOST_READERS, Counters, serve
from gossamer.peers.grpc import connections
from gossamer.peers.grpc.connections import Connections, most_connections
from gossamer.peers.identity import keys
from gossamer.peers.local.local_group import LocalGroup
from gossamer.training.privacy import Privacy

NUM = 2000  # connections of each kind
LIMIT = 1024  # descriptors of each peer
ELSEWHERE = "127.0.0.2"  # where the strangers come from
EXPERIMENT = replace(
    DIGITS, nodes=3, rounds=100_000, topology=Ring(), local_steps=1, privacy=Privacy(clip=1.0, noise=0.05)
)
TIMEOUTS = Timeouts(deadline_seconds=60, dead_seconds=30)

Open = Callable[[], socket.socket]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 3 * NUM:
        pytest.skip(f"the strangers need {3 * NUM} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def held(open_one: Open) -> Iterator[list[int]]:
    """Hold so many connections; whatever is closed at the other end is opened again."""
    kept: deque[socket.socket] = deque()
    opened, ended = [0], threading.Event()

    def hold() -> None:
        while not ended.is_set():
            with suppress(OSError):
                kept.append(open_one())
                opened[0] += 1
            if len(kept) > NUM:
                kept.popleft().close()

    threads = [threading.Thread(target=hold, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield opened
    finally:
        ended.set()
        for thread in threads:
            thread.join(10)
        for connection in kept:
            connection.close()


def plain(port: int) -> Open:
    return lambda: socket.create_connection(("127.0.0.1", port), 5, (ELSEWHERE, 0))


def secured(port: int, authority: Path, directory: Path, name: str) -> Open:
    """With somebody's certificate, and the first bytes of HTTP/2: to gRPC, a connection like any other."""
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    context.set_alpn_protocols(["h2"])

    def open_one() -> socket.socket:
        connection = context.wrap_socket(plain(port)(), server_hostname="peer-0", do_handshake_on_connect=False)
        try:
            connection.do_handshake()
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        except OSError:
            connection.close()
            raise
        return connection

    return open_one


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def num_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextmanager
def most_of(number: Callable[[], int]) -> Iterator[list[int]]:
    """The most that it comes to meanwhile."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            most[0] = max(most[0], number())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join(10)


def goes_on(peers: LocalGroup) -> None:
    """Training, checkpoints, metrics and privacy's account of peer-0, from now on."""

    def releases() -> int:
        return int(msgspec.json.decode((peers.directory_of("peer-0") / "privacy.json").read_bytes())["releases"])

    def saved() -> int:
        return len(events(peers, "peer-0", "saved"))

    round, noted, checkpoints = peers.last_round("peer-0")["round"], releases(), saved()
    until(lambda: peers.last_round("peer-0")["round"] >= round + 10)
    assert peers.last_round("peer-0")["alive"] == 2
    assert releases() >= noted + 9, "it is noted before its round, and was read after it"
    until(lambda: saved() > checkpoints)
    address = events(peers, "peer-0", "metrics")[-1]["address"]
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert b"gossamer_round" in answer.read()


def comes_back(peers: LocalGroup, name: str) -> None:
    """A peer that is started again finds a way in past all the strangers."""
    peers.send(name, signal.SIGKILL)
    until(lambda: peers.last_round("peer-0")["alive"] == 1)
    peers.start(name)
    until(lambda: peers.last_round("peer-0")["alive"] == 2)


@pytest.mark.slow
def test_thousands_of_idle_and_unlisted_connections_hinder_no_one(tmp_path: Path, many_descriptors: None) -> None:
    options = {"round_seconds": 0.05, "checkpoint_every": 5}
    with LocalGroup(EXPERIMENT, tmp_path / "up", TIMEOUTS, **options) as peers:
        peers.start()
        until(lambda: all(peers.last_round(name).get("round", 0) >= 3 for name in peers.names))
        for pid in peers.pids.values():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        keys.make(peers.keys, ["mallory"])
        keys.make(tmp_path / "other", ["peer-1"])
        port, pid = peers.group.member("peer-0").port, peers.pids["peer-0"]
        before, its_own = resident_bytes(pid), num_descriptors(pid)
        for kind in (
            plain(port),
            secured(port, peers.keys, peers.keys, "mallory"),
            secured(port, peers.keys, tmp_path / "other", "peer-1"),
        ):
            with held(kind) as opened, most_of(lambda: num_descriptors(pid)) as most:
                until(lambda opened=opened: opened[0] >= NUM)
                goes_on(peers)
                comes_back(peers, "peer-1")
            assert most[0] <= its_own + most_connections(EXPERIMENT.nodes) + 16, "and files, and what is being closed"
        assert peers.running == peers.names
        assert resident_bytes(pid) < before + 100e6


Ends = tuple[Connections, list[socket.socket], list[socket.socket]]


@contextmanager
def accepted(
    number: int,
    is_listed: Callable[[str], bool] = lambda name: False,
    host: str = "127.0.0.1",
    port: int = 0,
    clients: tuple[str, ...] = ("127.0.0.1",),
) -> Iterator[Ends]:
    """What watches a port of this process for a group of two, swept only when asked, and both ends of so many
    connections to it, from these addresses in turn."""
    with ExitStack() as at_the_end:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = at_the_end.enter_context(socket.create_server((host, port), family=family))
        kept = Connections(host, listening.getsockname()[1], 2, is_listed)
        at_the_end.callback(kept.close)
        near, far = [], []
        for index in range(number):
            source = (clients[index % len(clients)], 0)
            far.append(at_the_end.enter_context(socket.create_connection(listening.getsockname()[:2], 5, source)))
            near.append(at_the_end.enter_context(listening.accept()[0]))
        yield kept, near, far


def port_free_at(*hosts: str) -> int:
    """A port below those that the kernel gives to outgoing connections, so that no other test takes it meanwhile."""
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in range(lowest_given - 1, 1024, -1):
        with ExitStack() as listening, suppress(OSError):
            for host in hosts:
                listening.enter_context(socket.create_server((host, port)))
            return port
    raise AssertionError("no port is free at all of these addresses")


def is_open(far: socket.socket) -> bool:
    far.setblocking(False)
    try:
        return far.recv(1) != b""
    except BlockingIOError:
        return True


def peer_of(far: socket.socket) -> str:
    """As gRPC tells it."""
    host, port = far.getsockname()
    return f"ipv4:{host}:{port}"


def test_connections_end_that_are_refused_unproven_for_long_or_of_a_peer_struck_from_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 3600)
    clock, members = [100.0], {"alice", "bob"}
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with accepted(4, members.__contains__) as (kept, _, (listed, struck, refused, silent)):
        kept.called(peer_of(listed), "alice")
        kept.called(peer_of(struck), "bob")
        kept.refused(peer_of(refused))
        assert kept.sweep() == 0, "the refusal is on its way, and the silent one may be slow"
        clock[0] += connections.REFUSED_SECONDS + 1
        assert kept.sweep() == 1
        assert [is_open(far) for far in (listed, struck, refused, silent)] == [True, True, False, True]
        members.remove("bob")
        clock[0] += connections.UNPROVEN_SECONDS
        kept.sweep()
        assert [is_open(far) for far in (listed, struck, refused, silent)] == [True, False, False, False]
        monkeypatch.undo()


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 3600)


def test_no_address_and_no_peer_holds_more_connections_than_it_may(no_sweeps: None) -> None:
    with accepted(60, lambda name: name == "alice") as (kept, _, far), accepted(40) as (_, _, elsewhere):
        for each in far[:30]:
            kept.called(peer_of(each), "alice")
        kept.sweep()
        assert sum(map(is_open, far[:30])) == connections.MOST_PER_PEER
        assert sum(map(is_open, far[30:])) == connections.FEW + 2 * 2
        assert all(map(is_open, elsewhere)), "they are to another port"
    assert most_connections(10_000) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4


@pytest.fixture
def two_descriptors() -> Iterator[Callable[[], None]]:
    """Leaves two to this process when it is called."""
    before, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []

    def leave() -> None:
        most = max(map(int, os.listdir("/dev/fd"))) + 3
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(2):
            os.close(taken.pop())

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for each in taken:
        os.close(each)


def test_a_sweep_needs_hardly_any_descriptors(no_sweeps: None, two_descriptors: Callable[[], None]) -> None:
    with accepted(60) as (kept, _, far):
        two_descriptors()
        assert kept.sweep() == 60 - connections.FEW - 2 * 2
        assert sum(map(is_open, far)) == connections.FEW + 2 * 2


def test_a_peer_at_another_address_with_the_same_port_keeps_its_connections(no_sweeps: None) -> None:
    port = port_free_at("127.0.0.1", ELSEWHERE)
    with accepted(30, port=port) as (kept, _, far), accepted(30, host=ELSEWHERE, port=port) as (other, _, others):
        assert kept.sweep() == 30 - connections.FEW - 2 * 2
        assert all(map(is_open, others))
        assert other.sweep() == 30 - connections.FEW - 2 * 2
        assert sum(map(is_open, far)) == connections.FEW + 2 * 2
    with accepted(60, host="0.0.0.0", clients=("127.0.0.1", ELSEWHERE)) as (kept, _, _):
        assert kept.sweep() == 2 * (30 - connections.FEW - 2 * 2), "whichever address of this machine they are to"


def test_calls_that_this_process_makes_from_the_same_port_are_not_taken_for_accepted_ones(
    monkeypatch: pytest.MonkeyPatch, no_sweeps: None
) -> None:
    clock = [100.0]
    with socket.create_server(("127.0.0.1", 0)) as elsewhere, socket.socket() as calling:
        calling.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
        calling.bind(("127.0.0.1", 0))
        calling.connect(elsewhere.getsockname())
        with elsewhere.accept()[0] as called:
            monkeypatch.setattr(time, "monotonic", lambda: clock[0])
            with accepted(1, port=calling.getsockname()[1]) as (kept, _, (silent,)):
                kept.sweep()
                clock[0] += connections.UNPROVEN_SECONDS + 1
                assert kept.sweep() == 1
                assert not is_open(silent)
                assert is_open(called)
                monkeypatch.undo()


def test_addresses_of_ipv6_count_by_the_network_of_64_bits_that_one_caller_has() -> None:
    with accepted(1) as (kept, _, _):
        near = {connections.Remote(f"2001:db8:0:1::{number:x}", number) for number in range(1, 41)}
        far = {connections.Remote("2001:db8:0:2::1", 1), connections.Remote("192.0.2.1", 1)}
        ended = kept._too_many(near | far)
        assert ended < near
        assert len(near - ended) == connections.FEW + 2 * 2


def test_who_calls_during_a_sweep_is_not_forgotten(no_sweeps: None) -> None:
    """Both ends are there, and seen, before the call; the sweep has looked at the descriptors, or waits to."""
    with accepted(1, lambda name: name == "alice") as (kept, _, (far,)):
        looking, looked, seen = threading.Event(), threading.Event(), kept._seen

        def slowly() -> list[connections._Seen]:
            looking.set()
            looked.wait(0.5)
            return [each for each in seen() if each.remote != connections._remote(peer_of(far))]

        kept._seen = slowly  # type: ignore[method-assign]
        sweep = threading.Thread(target=kept.sweep)
        sweep.start()
        looking.wait()
        kept.called(peer_of(far), "alice")
        looked.set()
        sweep.join()
        assert list(kept._names.values()) == ["alice"]


@pytest.mark.slow
def test_readers_that_hold_the_page_of_metrics_open_are_few_and_must_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from gossamer.peers import counters

    def hold(number: int) -> list[socket.socket]:
        return [at_the_end.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(number)]

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            return b"gossamer_round 7.0" in page.read()
        return False

    monkeypatch.setattr(counters._PageHandler, "timeout", 600)
    end, port = serve("127.0.0.1", 0, Counters(), lambda: {"round": 7.0})
    with ExitStack() as at_the_end:
        at_the_end.callback(end)
        readers = hold(20 * MOST_READERS)
        until(lambda: sum(map(is_open, readers)) == MOST_READERS, 30)
        assert len([thread for thread in threading.enumerate() if "process_request" in thread.name]) == MOST_READERS
        for reader in readers:
            reader.close()
        monkeypatch.setattr(counters._PageHandler, "timeout", 0.5)
        hold(20 * MOST_READERS)
        until(answers, 30)
