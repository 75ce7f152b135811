"""Peers that nobody can open a connection to: over connections that they open themselves, and through a relay."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from harness import lines, until
from proxies import Proxies, Weather

from gossamer.peers.config import Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.grpc.protocol import TO_KEY
from gossamer.peers.grpc.transport import GrpcTransport
from gossamer.peers.grpc.tunnels import MOST_PER_PAIR, Pipe, most_calls_per_peer
from gossamer.peers.identity import keys
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.local_group import free_ports
from gossamer.peers.logs import Log

MOST_BYTES = 1 << 24
PATIENT = Timeouts(deadline_seconds=60, dead_seconds=60)


def members_of(*hidden: str, relay: str = "", names: tuple[str, ...] = ("alice", "bob", "carol")) -> dict[str, Member]:
    """All on loopback, at ports of their own; those that are hidden have none."""
    ports = free_ports(len(names))
    return {
        name: Member(name, node, relay=relay) if name in hidden else Member(name, node, "127.0.0.1", ports[node])
        for node, name in enumerate(names)
    }


@contextmanager
def running(
    directory: Path, members: dict[str, Member], seen: dict[tuple[str, str], int] | None = None
) -> Iterator[list[GrpcTransport]]:
    """The transports of these peers, which watch each other; `seen`: the port at which one finds another, if that is
    not its own."""
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT)
    if not (directory / "keys").exists():
        keys.make(directory / "keys", list(members))
    found: list[GrpcTransport] = []
    try:
        for name in members:
            ports = {other: port for (viewer, other), port in (seen or {}).items() if viewer == name}
            known = {other: replace(it, port=ports.get(other, it.port)) for other, it in members.items()}
            transport = GrpcTransport(
                members[name], Group("run", known), keys.load(directory / "keys", name), PATIENT, Counters(),
                Log(log, peer=name), rounds=100, max_delivery_bytes=MOST_BYTES, max_state_bytes=MOST_BYTES,
                check=lambda delivery, sender, round: (delivery,), state=lambda receiver, exchange: None,
            )  # fmt: skip
            found.append(transport)
        for transport in found:
            transport.watch([node for node in transport.group.nodes if node != transport.me.node])
        yield found
    finally:
        for transport in found:
            transport.close(time.monotonic())
        os.close(log)


def meet(transports: list[GrpcTransport]) -> None:
    def all_met() -> bool:
        return all(one.answered(other.me.node) for one in transports for other in transports if one is not other)

    until(all_met, 60)


def exchange(one: GrpcTransport, other: GrpcTransport, round: int, num_bytes: int = 1000) -> None:
    """A message from one to the other arrives whole."""
    sent, end = secrets.token_bytes(num_bytes), time.monotonic() + 60
    one.begin(round)
    other.begin(round)
    one.publish(round, [other.me.node], lambda receiver: sent, end)
    (came,) = other.collect(round, [one.me.node], end)
    assert (came.sender, came.round, came.frames) == (one.me.node, round, (sent,))


def test_one_without_an_address_is_called_over_connections_that_it_opens(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", names=("alice", "bob"))) as (alice, bob):
        meet([alice, bob])
        assert bob.outbox.way(0) == "over its own connection"
        assert alice.outbox.way(1) == f"at {bob.me.address}"
        for round, num_bytes in enumerate((1, 100_000, 10_000_000)):
            exchange(alice, bob, round, num_bytes)
            exchange(bob, alice, round, num_bytes)


def test_two_without_an_address_meet_through_their_relay(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", "bob", relay="carol")) as (alice, bob, carol):
        meet([alice, bob, carol])
        ways = [alice.outbox.way(1), bob.outbox.way(0), carol.outbox.way(0), carol.outbox.way(1)]
        assert ways == ["through carol"] * 2 + ["over its own connection"] * 2
        for round, num_bytes in enumerate((1, 100_000, 10_000_000)):
            exchange(alice, bob, round, num_bytes)
            exchange(bob, alice, round, num_bytes)
            exchange(carol, alice, round, num_bytes)
        assert carol.counters.totals()["relayed_bytes"] > 2 * 10_100_001
        assert carol.counters.totals()["bytes_in"] == 0, "nothing of it was for carol"


def told(directory: Path, event: str) -> list[dict[str, Any]]:
    return [row for row in lines(directory / "log") if row["event"] == event]


@pytest.mark.slow
def test_one_whose_address_does_not_work_is_called_over_connections_that_it_opens(tmp_path: Path) -> None:
    (nowhere,) = free_ports(1)
    members = members_of(names=("alice", "bob"))
    with running(tmp_path, members, {("bob", "alice"): nowhere}) as (alice, bob):
        meet([alice, bob])
        assert bob.outbox.way(0) == "over its own connection"
        exchange(bob, alice, 0)
        assert [(row["peer"], row["neighbour"]) for row in told(tmp_path, "cannot reach")] == [("bob", "alice")]
        assert [(row["peer"], row["neighbour"]) for row in told(tmp_path, "not reached by")] == [("alice", "bob")]
        until(lambda: bool(told(tmp_path, "reached again")), 10)


@pytest.mark.slow
def test_two_whose_addresses_do_not_work_meet_through_their_relay(tmp_path: Path) -> None:
    (nowhere,) = free_ports(1)
    members = members_of()
    members |= {name: replace(members[name], relay="carol") for name in ("alice", "bob")}
    hidden = {(one, other): nowhere for one in members for other in ("alice", "bob") if one != other}
    with running(tmp_path, members, hidden) as (alice, bob, carol):
        meet([alice, bob, carol])
        assert [alice.outbox.way(1), bob.outbox.way(0)] == ["through carol"] * 2
        exchange(alice, bob, 0)
        exchange(bob, alice, 0)


@pytest.mark.slow
def test_one_relay_is_enough_for_two(tmp_path: Path) -> None:
    """What has none reaches the other through its relay, and is called over that connection."""
    members = members_of("alice", "bob")
    members["alice"] = replace(members["alice"], relay="carol")
    with running(tmp_path, members) as (alice, bob, carol):
        meet([alice, bob, carol])
        assert [alice.outbox.way(1), bob.outbox.way(0)] == ["over its own connection", "through carol"]
        exchange(alice, bob, 0, 1_000_000)
        exchange(bob, alice, 0, 1_000_000)


@pytest.mark.slow
def test_a_tunnel_that_breaks_in_the_middle_of_a_message_is_opened_again_and_nothing_is_lost(tmp_path: Path) -> None:
    members = members_of("alice", names=("alice", "bob"))
    with Proxies(seed=3) as proxies:
        port, weather = proxies.add(members["bob"].port)
        with running(tmp_path, members, {("alice", "bob"): port}) as (alice, bob):
            meet([alice, bob])
            for round in range(6):
                breaking = threading.Thread(target=break_once, args=(weather,))
                breaking.start()
                exchange(bob, alice, round, 4_000_000)
                exchange(alice, bob, round, 4_000_000)
                breaking.join()
            assert weather.num_broken >= 6
            assert alice.counters.totals()["messages_in"] == bob.counters.totals()["messages_in"] == 6


def break_once(weather: Weather) -> None:
    """After some of the next pieces."""
    before, weather.break_probability = weather.num_broken, 0.05
    while weather.num_broken == before:
        time.sleep(0.001)
    weather.break_probability = 0.0


class Meddler:
    """What a relay does to the bytes that it forwards."""

    def __init__(self, how: Callable[[bytes], list[bytes]]):
        self.how, self.active, self.meddled = how, False, 0

    def __call__(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            if self.active:
                self.meddled += 1
            yield from self.how(piece) if self.active else [piece]


MEDDLING: dict[str, Callable[[bytes], list[bytes]]] = {
    "alters": lambda piece: [piece[:-1] + bytes([piece[-1] ^ 1])],
    "drops": lambda piece: [],
    "cuts off": lambda piece: [piece[: len(piece) // 2]],
    "repeats": lambda piece: [piece, piece],
    "swaps": lambda piece: [piece[len(piece) // 2 :], piece[: len(piece) // 2]],
}


@pytest.mark.slow
@pytest.mark.parametrize("how", MEDDLING)
def test_a_relay_that_meddles_is_noticed_and_harms_nobody(how: str, tmp_path: Path) -> None:
    meddler = Meddler(MEDDLING[how])
    with running(tmp_path, members_of("alice", "bob", relay="carol")) as (alice, bob, carol):
        carol.tunnels._counted = meddler  # type: ignore[method-assign]
        meet([alice, bob, carol])
        exchange(alice, bob, 0)
        meddler.active = True
        sent, end = secrets.token_bytes(100_000), time.monotonic() + 60
        for transport in (alice, bob):
            transport.begin(1)
        alice.publish(1, [1], lambda receiver: sent, end)
        until(lambda: meddler.meddled > 2, 30)
        exchange(carol, alice, 1)
        assert not bob.collect(1, [0], time.monotonic() + 1), "it arrived, and not as it was sent"
        meddler.active = False
        (came,) = bob.collect(1, [0], end)
        assert came.frames == (sent,)
        assert bob.counters.totals()["bad_frames"] == 0, "TLS has let something through"
        assert bob.counters.totals()["messages_in"] == 2


def test_a_relay_that_connects_with_someone_else_is_found_out(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", "bob", relay="carol")) as (alice, bob, carol):
        hand_over = carol.tunnels.hand_over
        reached = threading.Event()

        def to_carol(node: int, connection: socket.socket, seconds: float) -> bool:
            """Whoever is to be connected with alice by this relay, is with the relay itself."""
            if node != 0 or connection.family != socket.AF_UNIX or connection.getsockname():  # carol's own calls
                return hand_over(node, connection, seconds)
            reached.set()
            own, bobs = Pipe(carol.server.connection()), Pipe(connection)
            for one, other in ((own, bobs), (bobs, own)):
                threading.Thread(target=one.feed, args=(other.pieces(),), daemon=True).start()
            return True

        carol.tunnels.hand_over = to_carol  # type: ignore[method-assign]
        meet([carol, alice])
        assert reached.wait(20), "bob never tried"
        time.sleep(0.5)
        assert bob.ways.reached.get(0) != "", "bob takes carol for alice"
        assert 1 not in alice.callers


def test_two_without_an_address_or_a_relay_are_told_what_to_do_and_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", "bob")) as (alice, bob, carol):
        meet([alice, bob, carol])
        assert not alice.alive(1)
        advice = {row["peer"]: row["advice"] for row in told(tmp_path, "no way to")}
        assert set(advice) == {"alice", "bob"}
        assert advice["alice"].startswith("neither alice nor bob has an address in peers.toml")
        began = time.monotonic()
        assert alice.collect(0, [1], began + 30) == []
        assert time.monotonic() < began + 5


# Who may open such calls, and how many.


@contextmanager
def channel(directory: Path, to: Member, name: str) -> Iterator[grpc.Channel]:
    """A connection to a peer, with someone's keys."""
    own = [(directory / "keys" / f"{name}.{kind}").read_bytes() for kind in ("key", "pem")]
    tls = grpc.ssl_channel_credentials((directory / "keys" / "ca.pem").read_bytes(), *own)
    options = [("grpc.ssl_target_name_override", to.name), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(to.address, tls, options) as found:
        yield found


def code_of(call: Any) -> grpc.StatusCode:
    """With which it is refused; it is ended if it is not."""
    try:
        call.cancel() if next(call) else None
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return grpc.StatusCode.OK


def tunnel(connection: grpc.Channel, kind: str, to: str = "", ended: threading.Event | None = None) -> Any:
    def requests() -> Iterator[bytes]:
        if ended is not None:
            ended.wait()
        yield from ()

    return connection.stream_stream(f"/gossamer.Peer/{kind}")(requests(), metadata=((TO_KEY, to),) if to else None)


def test_only_listed_peers_open_tunnels_and_only_where_the_group_says_so(tmp_path: Path) -> None:
    members = members_of("alice", relay="carol")
    with running(tmp_path, members) as (_alice, bob, carol):
        keys.make(tmp_path / "keys", ["mallory"])
        with channel(tmp_path, carol.me, "mallory") as connection:
            for kind in ("Listen", "Connect"):
                assert code_of(tunnel(connection, kind, to="alice")) is grpc.StatusCode.PERMISSION_DENIED
        assert carol.counters.totals()["refused"] == 2
        with channel(tmp_path, bob.me, "carol") as connection:
            for to in ("alice", "carol", "bob", "mallory", "x" * 1000):
                assert code_of(tunnel(connection, "Connect", to=to)) is grpc.StatusCode.FAILED_PRECONDITION
        with channel(tmp_path, carol.me, "alice") as connection:
            assert code_of(tunnel(connection, "Connect", to="alice")) is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.slow
def test_a_relay_says_so_if_the_one_to_be_reached_does_not_listen(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", relay="carol")) as (alice, _bob, carol):
        until(lambda: carol.tunnels.listens(0), 10)
        alice.ways.close()
        until(lambda: not carol.tunnels.listens(0), 10)
        with channel(tmp_path, carol.me, "bob") as connection:
            assert code_of(tunnel(connection, "Connect", to="alice")) is grpc.StatusCode.UNAVAILABLE


def test_a_listed_peer_that_opens_many_tunnels_gets_few_and_others_are_served(tmp_path: Path) -> None:
    with running(tmp_path, members_of()) as (alice, bob, carol):
        ended = threading.Event()
        with channel(tmp_path, carol.me, "bob") as connection:
            calls = [tunnel(connection, "Listen", ended=ended) for _ in range(100)]
            most = most_calls_per_peer(3)
            until(lambda: sum(call.code() is not None for call in calls if call.done()) == 100 - most, 20)
            assert {call.code() for call in calls if call.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            meet([alice, bob, carol])
            exchange(bob, carol, 0)
            carol.reload(Group("run", {name: m for name, m in carol.group.members.items() if name != "bob"}),
                         carol.credentials)  # fmt: skip
            until(lambda: all(call.done() for call in calls), 10)
            ended.set()


def test_a_listed_peer_that_holds_all_it_gets_of_a_relay_keeps_nobody_else_out(tmp_path: Path) -> None:
    members = members_of("alice", "dave", relay="carol", names=("alice", "bob", "carol", "dave"))
    with running(tmp_path, members) as (alice, _bob, carol, dave), channel(tmp_path, carol.me, "bob") as connection:
        until(lambda: carol.tunnels.listens(0), 10)
        ended = threading.Event()
        calls = [tunnel(connection, "Connect", "alice", ended) for _ in range(50)]
        until(lambda: sum(call.done() for call in calls) >= 50 - MOST_PER_PAIR, 10)
        meet([alice, carol, dave])
        assert [dave.outbox.way(0), alice.outbox.way(3)] == ["through carol"] * 2
        for call in calls:
            call.cancel()
        ended.set()


def test_a_peer_that_is_struck_from_the_group_loses_its_tunnels_at_once(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", "bob", relay="carol")) as (alice, bob, carol):
        meet([alice, bob, carol])
        left = {name: member for name, member in carol.group.members.items() if name != "bob"}
        carol.reload(Group("run", left), carol.credentials)
        until(lambda: not carol.tunnels._relaying, 10)
        exchange(carol, alice, 0)
        until(lambda: "bob is not a peer of this group" in str(told(tmp_path, "refused")), 10)


def pump(send: Callable[[bytes], object]) -> int:
    """How many bytes go in before nothing more does, for a second."""
    taken = [0]

    def run() -> None:
        with suppress(OSError, grpc.RpcError):
            while taken[0] < 1 << 28:
                send(bytes(1 << 16))
                taken[0] += 1 << 16

    threading.Thread(target=run, daemon=True).start()
    before = -1
    while before != taken[0]:
        before = taken[0]
        time.sleep(1)
    return taken[0]


@pytest.mark.slow
def test_what_is_on_its_way_to_one_that_does_not_read_is_bounded(tmp_path: Path) -> None:
    with running(tmp_path, members_of("alice", names=("alice", "bob"))) as (alice, bob):
        unread: list[tuple[socket.socket, socket.socket]] = []

        def connection() -> socket.socket:
            unread.append(socket.socketpair())
            return unread[-1][0]

        alice.server.connection = connection  # type: ignore[method-assign]
        here, there = socket.socketpair()
        assert bob.tunnels.hand_over(0, there, 20)
        assert 1 << 16 < pump(here.sendall) < 1 << 25
        here.close()
