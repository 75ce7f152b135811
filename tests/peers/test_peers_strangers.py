"""Who may not take part, and what may not be said: refused, counted, logged, and without effect on the training."""

import os
import random
import re
import socket
import struct
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from harness import DIGITS, PATIENT, events, results, until

from gossamer.experiments import toml
from gossamer.graphs.topologies import Ring
from gossamer.peers.grpc.protocol import ENVELOPE_KEY, Envelope, Heartbeat
from gossamer.peers.identity import group, keys
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.local_group import LocalGroup

THREE = replace(DIGITS, nodes=3, rounds=30, topology=Ring(), local_steps=1)


def channel(peers: LocalGroup, to: str, directory: Path | None, name: str) -> grpc.Channel:
    """A connection to a peer with someone's keys; without any if there is no directory."""
    member = peers.group.member(to)
    authority = (peers.keys / "ca.pem").read_bytes()
    own = (
        [None, None] if directory is None else [(directory / f"{name}.{kind}").read_bytes() for kind in ("key", "pem")]
    )
    options = [("grpc.ssl_target_name_override", to), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(member.address, grpc.ssl_channel_credentials(authority, *own), options)


def refusals(connection: grpc.Channel) -> list[grpc.StatusCode | None]:
    """The codes with which a heartbeat, a message and a request for the state are refused; None for one that is not."""

    def state(_: bytes, timeout: float) -> list[bytes]:
        return list(connection.unary_stream("/gossamer.Peer/Pull")(b"", timeout=timeout))

    heartbeat = Heartbeat(0, 0, False, 0.0, 0).write()
    calls = [connection.unary_unary("/gossamer.Peer/Beat"), connection.unary_unary("/gossamer.Peer/Put"), state]
    found: list[grpc.StatusCode | None] = []
    for call in calls:
        try:
            call(heartbeat, timeout=10)
            found.append(None)
        except grpc.RpcError as error:
            found.append(error.code())
    return found


def incarnation_of(peers: LocalGroup) -> int:
    """The incarnation of peer-0: any peer may ask, and messages are for one incarnation."""
    with channel(peers, "peer-0", peers.keys, "peer-1") as connection:
        round = peers.last_round("peer-1")["round"]
        asked = Heartbeat(round, 0, True, time.time(), 0).write()
        return Heartbeat.read(connection.unary_unary("/gossamer.Peer/Beat")(asked, timeout=10)).incarnation


def envelope(round: int, num_bytes: int, incarnation: int) -> bytes:
    """Of a delivery, by a peer that is in its round."""
    return Envelope(round, num_bytes, incarnation, Heartbeat(round, 0, True, time.time(), 0)).write()


def put(connection: grpc.Channel, told: bytes | None, messages: list[bytes]) -> grpc.StatusCode | None:
    metadata = None if told is None else ((ENVELOPE_KEY, told),)
    try:
        connection.stream_unary("/gossamer.Peer/Put")(iter(messages), timeout=20, metadata=metadata)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


def counter(peers: LocalGroup, name: str, what: str) -> float:
    address = events(peers, name, "metrics")[-1]["address"]
    with urllib.request.urlopen(address, timeout=10) as answer:
        found = re.search(rf"^gossamer_{what}(?:_total)? (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found, what
    return float(found[1])


@pytest.mark.slow
def test_strangers_and_hostile_bytes_are_refused_counted_and_logged_and_change_nothing(tmp_path: Path) -> None:
    """All in one test, because the group that they are tried on takes a while to start."""
    with LocalGroup(THREE, tmp_path / "up", PATIENT, round_seconds=0.25) as peers:
        peers.start()
        until(lambda: all(peers.last_round(name).get("round", 0) >= 1 for name in peers.names))
        no_certificate_or_another_authoritys(peers, tmp_path)
        a_certificate_of_the_group_without_a_place_in_it(peers)
        a_peer_that_claims_to_be_another(peers)
        random_and_mutated_frames(peers)
        a_header_of_ten_gigabytes(peers)
        bytes_that_are_no_tls_at_all(peers)
        assert peers.last_round("peer-0")["round"] < THREE.rounds, "it was all over before it was tried"
        peers.wait(120)
        assert compare(THREE, {"peers": results(peers)})["verified"]


def no_certificate_or_another_authoritys(attacked: LocalGroup, tmp_path: Path) -> None:
    """They get no further than TLS, which is not our code: nothing of theirs is read, given out or counted."""
    keys.make(tmp_path / "other", ["peer-1"])
    touched = "refused", "bad_frames", "pulls_out"
    before = [counter(attacked, "peer-0", name) for name in touched]
    for directory in (None, tmp_path / "other"):
        with channel(attacked, "peer-0", directory, "peer-1") as connection:
            assert refusals(connection) == [grpc.StatusCode.UNAVAILABLE] * 3
    assert [counter(attacked, "peer-0", name) for name in touched] == before


def a_certificate_of_the_group_without_a_place_in_it(attacked: LocalGroup) -> None:
    keys.make(attacked.keys, ["mallory"])
    before = counter(attacked, "peer-0", "refused")
    with channel(attacked, "peer-0", attacked.keys, "mallory") as connection:
        assert refusals(connection) == [grpc.StatusCode.PERMISSION_DENIED] * 3
        assert put(connection, None, [b"", b""]) is grpc.StatusCode.PERMISSION_DENIED
    assert counter(attacked, "peer-0", "refused") == before + 4
    assert "mallory is not a peer" in events(attacked, "peer-0", "refused")[-1]["reason"]


def a_peer_that_claims_to_be_another(attacked: LocalGroup) -> None:
    frame = frame_of(attacked, sender=2, round=1)
    before = counter(attacked, "peer-0", "bad_frames")
    with channel(attacked, "peer-0", attacked.keys, "peer-1") as connection:
        told = envelope(1, len(frame), incarnation_of(attacked))
        assert put(connection, told, [frame]) is grpc.StatusCode.INVALID_ARGUMENT
    assert counter(attacked, "peer-0", "bad_frames") == before + 1
    assert "node 2 sent it, and node 1 did" in events(attacked, "peer-0", "bad frame")[-1]["reason"]


def frame_of(peers: LocalGroup, sender: int, round: int) -> bytes:
    """A whole frame of this run, with the initial model in it."""
    from gossamer.core import row_of
    from gossamer.training.block import Block

    experiment = toml.read(toml.load(peers.directory / "experiment.toml"))
    task = experiment.load_task()
    prepared = experiment.prepared(task)
    shards, x0 = [prepared.shards(task)[sender]], task.initial_model(experiment.seed)[None]
    block = Block(prepared, prepared.trainer_for(task), [sender], shards, x0)
    endpoint = prepared.endpoint(task, sender, group.run_id(peers.group, experiment))
    block.train(0)
    return endpoint.send(row_of(block.send(0), 0), round).bytes_for(0)


def random_and_mutated_frames(attacked: LocalGroup) -> None:
    rng, incarnation = random.Random(0), incarnation_of(attacked)
    frame = frame_of(attacked, sender=1, round=2)
    before = counter(attacked, "peer-0", "bad_frames")
    whole = envelope(2, len(frame), incarnation)
    hostile: list[tuple[bytes | None, list[bytes]]] = [(None, []), (None, [frame]), (b"x", [frame])]
    hostile += [(whole[:-1], [frame]), (whole, []), (rng.randbytes(len(whole)), [frame])]
    hostile += [(envelope(1, 5, incarnation), [b"123456"]), (whole, [frame, b"x"]), (whole, [frame[:-1]])]
    hostile += [(envelope(1, size, incarnation), [rng.randbytes(size)]) for size in (0, 1, 35, 36, 500)]
    for _ in range(30):
        mutated = bytearray(frame)
        mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
        hostile.append((whole, [bytes(mutated)]))
    hostile += [(envelope(2, cut, incarnation), [frame[:cut]]) for cut in (1, 40, len(frame) - 1)]
    hostile.append((envelope(3, len(frame), incarnation), [frame]))  # the envelope tells another round
    hostile.append((envelope(2, 2 * len(frame), incarnation), [frame + frame]))  # twice the same round
    with channel(attacked, "peer-0", attacked.keys, "peer-1") as connection:
        codes = [put(connection, *delivery) for delivery in hostile]
        assert codes == [grpc.StatusCode.INVALID_ARGUMENT] * len(hostile)
        too_large = put(connection, envelope(1, 2**20, incarnation), [rng.randbytes(2**20)])
        assert too_large in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert counter(attacked, "peer-0", "bad_frames") >= before + len(hostile)


def a_header_of_ten_gigabytes(attacked: LocalGroup) -> None:
    pid = attacked.pids["peer-0"]
    before = resident_bytes(pid)
    with channel(attacked, "peer-0", attacked.keys, "peer-1") as connection:
        for _ in range(20):
            assert put(connection, envelope(1, 10 * 2**30, 0), [b""]) is grpc.StatusCode.INVALID_ARGUMENT
    lying = bytearray(frame_of(attacked, sender=1, round=2))
    struct.pack_into("<I", lying, 24, 2**32 - 1)  # the frame's own length, too
    with channel(attacked, "peer-0", attacked.keys, "peer-1") as connection:
        told = envelope(2, len(lying), incarnation_of(attacked))
        assert put(connection, told, [bytes(lying)]) is grpc.StatusCode.INVALID_ARGUMENT
    assert resident_bytes(pid) < before + 50e6


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_that_are_no_tls_at_all(attacked: LocalGroup) -> None:
    rng = random.Random(1)
    port = attacked.group.member("peer-0").port
    for size in (1, 100, 100_000):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(rng.randbytes(size))
