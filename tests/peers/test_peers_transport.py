"""What two transports do with each other, over loopback, in one process."""

import os
import re
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import torch
from harness import DIGITS, Scripted, lone_node

from gossamer.core import Part, PartSpec, sparse_part
from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.grpc import failures
from gossamer.peers.grpc.failures import reason_of
from gossamer.peers.grpc.protocol import CHUNK, Envelope, Heartbeat
from gossamer.peers.grpc.transport import GrpcTransport
from gossamer.peers.identity import keys
from gossamer.peers.identity.greeting import greeting
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.local_group import free_ports
from gossamer.peers.logs import Log
from gossamer.peers.peer import Signals, _run_rounds
from gossamer.peers.privacy_ledger import PrivacyLedger
from gossamer.wire import Codec, Endpoint, WireError
from gossamer.wire.endpoint import check_values

OURS, THEIRS = (greeting(Group("run", {}), replace(DIGITS, seed=seed), 10, 3) for seed in (1, 2))


def transports(directory: Path, most_bytes: int, log: int) -> list[GrpcTransport]:
    names, ports = ["alice", "bob"], free_ports(2)
    keys.make(directory / "keys", names)
    members = {name: Member(name, node, "127.0.0.1", ports[node]) for node, name in enumerate(names)}
    return [
        GrpcTransport(
            members[name], Group("run", members), keys.load(directory / "keys", name),
            Timeouts(deadline_seconds=60, dead_seconds=60), Counters(), Log(log, peer=name),
            rounds=100, max_delivery_bytes=most_bytes, max_state_bytes=most_bytes,
            check=lambda delivery, sender, round: (delivery,),
            state=lambda receiver, exchange: None, greeting=OURS,
        )
        for name in names
    ]  # fmt: skip


def test_deliveries_of_one_message_and_of_many_arrive_whole_and_tell_who_is_there(tmp_path: Path) -> None:
    sizes = [1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK // 2]
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    alice, bob = transports(tmp_path, max(sizes), log)
    try:
        for round, size in enumerate(sizes):
            until = time.monotonic() + 60
            sent = torch.randint(0, 256, (size,), dtype=torch.uint8).numpy().tobytes()
            alice.begin(round)
            bob.begin(round)
            alice.publish(round, [1], lambda receiver, sent=sent: sent, until)
            (came,) = bob.collect(round, [0], until)
            assert (came.sender, came.round, came.frames) == (0, round, (sent,))
            assert bob.round_of(0) == round
        alice.outbox.flush(time.monotonic() + 60)
        assert alice.round_of(1) == len(sizes) - 1, "no one has asked: it was told with the answer to a message"
        assert alice.counters.totals()["bytes_out"] == bob.counters.totals()["bytes_in"] == sum(sizes)
    finally:
        for transport in (alice, bob):
            transport.close(time.monotonic())
        os.close(log)


def test_a_clock_that_jumps_to_and_fro_is_logged_once(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    alice, bob = transports(tmp_path, 100, log)
    try:
        for number in range(50):
            clock = time.time() + (1000 if number % 2 else 0)
            alice.take_heartbeat(1, Heartbeat(0, 0, False, clock, 0), 0.0)
        assert (tmp_path / "log").read_text().count("clocks differ") == 1
    finally:
        for transport in (alice, bob):
            transport.close(time.monotonic())
        os.close(log)


def test_a_neighbour_that_has_exchanged_a_message_cannot_end_a_peer_by_another_greeting(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    alice, bob = transports(tmp_path, 100, log)
    try:
        assert not alice.take_greeting(1, THEIRS.write())
        assert "not that of the others: bob differ in seed; start it" in (alice.outcast() or "")
        assert alice.take_greeting(1, OURS.write())
        assert alice.outcast() is None
        until = time.monotonic() + 60
        alice.publish(0, [1], lambda receiver: b"x", until)
        assert len(bob.collect(0, [0], until)) == 1
        alice.outbox.flush(until)
        for transport, other in ((alice, 1), (bob, 0)):
            assert not transport.take_greeting(other, THEIRS.write())
            assert transport.outcast() is None
    finally:
        for transport in (alice, bob):
            transport.close(time.monotonic())
        os.close(log)


def test_a_greeting_that_fits_again_while_another_thread_looks_ends_nothing(tmp_path: Path) -> None:
    log = os.open(os.devnull, os.O_WRONLY)
    alice, bob = transports(tmp_path, 100, log)
    ended, interval = threading.Event(), sys.getswitchinterval()

    def greet() -> None:
        while not ended.is_set():
            alice.take_greeting(1, THEIRS.write())
            alice.take_greeting(1, OURS.write())

    changing = threading.Thread(target=greet)
    sys.setswitchinterval(1e-6)
    changing.start()
    try:
        for _ in range(20_000):
            assert "None" not in (alice.outcast() or "")
    finally:
        ended.set()
        changing.join()
        sys.setswitchinterval(interval)
        for transport in (alice, bob):
            transport.close(time.monotonic())
        os.close(log)


class FitsAgain(Scripted):
    """Another experiment at the first look, and not at the next."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = iter(["this peer's experiment is not that of the others"])

    def outcast(self) -> str | None:
        return next(self.looks, None)


def test_a_peer_that_is_outcast_says_so_even_if_the_others_fit_the_next_moment(tmp_path: Path) -> None:
    config = PeerConfig("alice", tmp_path, tmp_path, tmp_path)
    with pytest.raises(ExperimentError, match="not that of the others"):
        _run_rounds(lone_node(DIGITS), FitsAgain(), config, 77, Signals(), PrivacyLedger(DIGITS.privacy, tmp_path, 0))


def test_the_state_of_a_peer_that_was_struck_from_the_group_is_not_to_be_had(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    alice, bob = transports(tmp_path, 100, log)
    try:
        assert alice.pull(1) is None
        alice.reload(Group("run", {"alice": alice.me}), alice.credentials)
        assert alice.pull(1) is None
        told = (tmp_path / "log").read_text()
        assert '"reason": "not now, or not for this peer"' in told
        assert "it is not in the group any more" in told
        for _ in range(1000):
            alice.pull(1)
        assert (tmp_path / "log").read_text().count("pull failed") < 1000, "it is rate-limited"
    finally:
        for transport in (alice, bob):
            transport.close(time.monotonic())
        os.close(log)


class Failure(grpc.RpcError):
    def __init__(self, details: str | None):
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str | None:
        return self._details


def test_why_a_call_failed_is_told_in_words_and_without_the_addresses_that_were_tried() -> None:
    tried = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: "
    assert reason_of(Failure(tried + "Connection refused")) == failures.REFUSED
    assert reason_of(Failure(tried + "No route to host")) == "No route to host"
    assert reason_of(Failure("x" * 5000)) == "x" * 300
    assert reason_of(Failure(None)) == "unavailable"
    assert reason_of(ValueError("too long")) == "too long"
    for reason in (failures.REFUSED, failures.NO_CONNECTION):
        assert failures.advice_for(reason).startswith("start it")
        assert "firewall" not in failures.advice_for(reason)
    assert "firewall" in failures.advice_for(failures.NO_ANSWER)


def test_the_words_of_grpc_are_recognized(tmp_path: Path) -> None:
    """By calls over real sockets: whatever release of gRPC is installed, its errors must be told apart."""
    for authority in ("ours", "theirs"):
        keys.make(tmp_path / authority, ["alice", "bob"])
    ours, theirs = (keys.load(tmp_path / authority, "bob") for authority in ("ours", "theirs"))
    alice = keys.load(tmp_path / "ours", "alice")

    def told(port: int, authority: bytes = ours.authority, seconds: float = 10.0) -> str:
        tls = grpc.ssl_channel_credentials(authority, alice.key, alice.certificate)
        options = [("grpc.ssl_target_name_override", "bob")]
        channel = grpc.secure_channel(f"127.0.0.1:{port}", tls, options)
        with channel, pytest.raises(grpc.RpcError) as found:
            channel.unary_unary("/gossamer.Peer/Beat")(b"", timeout=seconds)
        return reason_of(found.value)

    def serving(shown: keys.Credentials) -> tuple[grpc.Server, int]:
        server = grpc.server(ThreadPoolExecutor(1))
        tls = grpc.ssl_server_credentials([(shown.key, shown.certificate)], shown.authority, True)
        port = server.add_secure_port("127.0.0.1:0", tls)
        server.start()
        return server, port

    server, port = serving(theirs)
    assert told(port) == failures.OTHER_AUTHORITY
    assert told(port, authority=theirs.authority) == failures.CLOSED, "it does not take ours"
    server.stop(None).wait()
    assert told(port) == failures.REFUSED
    server, port = serving(alice)
    assert told(port) == failures.OTHER_NAME
    server.stop(None).wait()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert told(silent.getsockname()[1], seconds=0.3) == failures.NO_ANSWER


def test_envelopes_are_read_as_they_were_written_and_nothing_else_is() -> None:
    envelope = Envelope(7, 10**12, 123456, Heartbeat(8, 7, True, 1.5e9, 99))
    content = envelope.write()
    assert Envelope.read(content) == envelope
    for damaged in (b"", content[:-1], content[:10], content + b"x"):
        with pytest.raises(ValueError, match=r"envelope|heartbeat"):
            Envelope.read(damaged)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 7, 4999])
def test_one_value_that_is_not_finite_is_found_wherever_it_stands(value: float, at: int) -> None:
    values = torch.randn(1, 5000)
    check_values("x", values, limit=10.0)
    values[0, at] = value
    with pytest.raises(WireError, match="not all finite"):
        check_values("x", values, limit=10.0)


@pytest.mark.parametrize("value", [1e38, -1e38, 10.1])
def test_one_value_beyond_the_limit_is_found_and_told(value: float) -> None:
    values = torch.randn(1, 5000).clamp(-5, 5)
    values[0, 4000] = value
    with pytest.raises(WireError, match=re.escape(f"has a value of {abs(value):.3g}, and more than 10 cannot be")):
        check_values("x", values, limit=10.0)


def test_a_node_takes_its_own_message_as_others_decode_it() -> None:
    parts = {
        "a": PartSpec(sparse=True),
        "b": PartSpec(same_indices_as="a"),
        "c": PartSpec(),
        "u": PartSpec(1, values="float64"),
    }
    codec = Codec(parts, 50, 0)
    values, u = torch.randn(4, 1, 50), torch.rand(1, 1, dtype=torch.float64)
    some = torch.rand(1, 50) < 0.3
    for sent in (None, some, torch.zeros(1, 50, dtype=torch.bool)):
        a, b = (Part(v) if sent is None else sparse_part(v, sent) for v in values[:2])
        message = {"a": a, "b": b, "c": Part(values[2]), "u": Part(u)}
        heard, decoded = Endpoint(0, parts, 50, 0).send(message, 0).own, codec.decode(codec.encode(message, 0, 0))[2]
        assert heard.keys() == decoded.keys()
        for name, part in decoded.items():
            assert torch.equal(part.values, heard[name].values)
            assert (part.sent is None) == (heard[name].sent is None)
            assert part.sent is None or torch.equal(part.sent, heard[name].sent)
