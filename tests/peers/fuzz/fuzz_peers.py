"""Attack real peers from inside their group, with a certificate that they trust.

    python tests/peers/fuzz/fuzz_peers.py --seconds 1200 [--seed 0] [--algorithm jwins] [--hidden]

Five peers on a complete graph, four of them honest and in processes of their own. The fifth is this program. It calls
the others (Beat, Put, Pull) and answers their calls, with what its honest self would say, with that changed in one
field or some bytes, and with noise. What is inside of a frame gets a right checksum, so that what is behind it is
reached. Now and then an honest peer is killed or stopped for a while and looks for a state when it is back. With
--hidden, two of the honest ones have no address and a third as relay; the attacker opens Listen and Connect there, and
sends noise through the calls with which the hidden ones listen at it.

It fails if an honest peer ends, stands still, grows by more than 150 MB, answers with an error that is not meant for
callers or, under a robust algorithm, takes the attacker's state alone. It prints what was done as JSON.
"""

import argparse
import collections
import json
import os
import random
import re
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import grpc
import xxhash
from harness import events, hide

from gossamer.algorithms import ALGORITHMS
from gossamer.core import row_of
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import FullyConnected
from gossamer.peers.config import Timeouts
from gossamer.peers.grpc.protocol import ENVELOPE_KEY, GREETING_KEY, TO_KEY, Envelope, Heartbeat, PutAnswer
from gossamer.peers.identity import group as groups
from gossamer.peers.identity import keys
from gossamer.peers.identity.greeting import greeting
from gossamer.peers.local.local_group import LocalGroup
from gossamer.peers.rounds import Node
from gossamer.training.block import Block
from gossamer.wire.frame import CHECKSUM, HEADER

ROUNDS = 1_000_000
LIE = 7.0  # every number of the attacker's states
TIMEOUTS = Timeouts(deadline_seconds=1.0, dead_seconds=2.0, start_seconds=30.0)
MEANT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAVAILABLE,  # it was killed, or has closed the connection
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
EDGES = [0, 1, 2, 3, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1]
RAISED = re.compile(r"Traceback|Exception|\w+Error: ")  # what Python, or gRPC for it, prints of an error nobody caught
ODD = [0.0, -0.0, 1e-300, 1e300, float("inf"), -float("inf"), float("nan"), -1.0, 1e10]


class Attacker:
    """The fifth peer: it knows all that a member knows."""

    def __init__(self, peers: LocalGroup, node: Node, seed: int):
        self.peers, self.node = peers, node
        self.random = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.name = peers.names[-1]
        self.incarnations: dict[str, int] = {}  # of the others, as they said
        self.credentials = keys.load(peers.keys, self.name)
        parameters = sum(node.task.layer_sizes)
        self.greeting = greeting(peers.group, peers.experiment, parameters, node.endpoint.schema).write()
        self.local = threading.local()  # channels of each thread
        self.round = 0  # that the others are in
        self.server = self._serve()

    # What it says.

    def heartbeat(self) -> Heartbeat:
        """An honest one, of the round that the others are in."""
        return Heartbeat(self.round, self.round, True, time.time(), 5)

    def greetings(self) -> list[tuple[str, bytes]]:
        """Most often an honest one: to a peer with another experiment nobody listens."""
        kind = self.random.randrange(10)
        content = self.greeting if kind > 1 else self.mutated(self.greeting)
        if kind == 1:
            content = json.dumps(json.loads(self.greeting) | {"parameters": self.random.choice(EDGES)}).encode()
        return [(GREETING_KEY, content)] * (0 if kind == 2 else 1)

    def changed(self, message: Any) -> Any:
        """The same with a field that says something else."""
        field = self.random.choice(message._fields)
        value = getattr(message, field)
        if isinstance(value, tuple):
            return message._replace(**{field: self.changed(value)})
        if isinstance(value, bool):
            other: Any = not value
        elif isinstance(value, float):
            other = self.random.choice(ODD)
        elif isinstance(value, bytes):
            other = bytes(self.mutated(value))[: len(value)].ljust(len(value), b"\0")
        else:
            near = value + self.random.choice((-11, -1, 1, 2, 11, 1000))
            other = max(0, self.random.choice((near, self.random.choice(EDGES)))) % 2**32
        return message._replace(**{field: other})

    def mutated(self, content: bytes) -> bytes:
        """The same with some bytes changed, added or gone."""
        out = bytearray(content)
        for _ in range(self.random.choice((1, 1, 2, 8))):
            at = self.random.randrange(len(out) + 1)
            match self.random.randrange(4):
                case 0 if at < len(out):
                    out[at] ^= 1 << self.random.randrange(8)
                case 1:
                    out[at:at] = self.random.randbytes(self.random.randrange(1, 9))
                case 2:
                    del out[at : at + self.random.randrange(1, 9)]
                case _:
                    number = struct.pack("<I", self.random.choice(EDGES))
                    out[at : at + 4] = number
        return bytes(out)

    def said(self, message: Any) -> bytes:
        """A message's bytes: as they should be, or not."""
        kind = self.random.randrange(8)
        if kind == 0:
            return self.random.randbytes(self.random.choice((0, 1, 20, 21, 22, 40, 300)))
        if kind <= 2:
            return bytes(self.mutated(message.write()))
        return bytes((self.changed(message) if kind <= 5 else message).write())

    def frame(self) -> bytes:
        """A frame of the algorithm's messages, changed inside or as it should be."""
        message = row_of(self.node.block.send(self.round), 0)
        endpoint = self.node.experiment.endpoint(self.node.task, self.node.me, self.node.endpoint._codec.run_id)
        frame = endpoint.send(message, self.round).bytes_for(0)
        return frame if self.random.random() < 0.2 else self.inside(frame)

    def inside(self, frame: bytes) -> bytes:
        """Another header or payload with a right length and checksum; or damage that the checksum shows."""
        if self.random.random() < 0.2:
            return self.mutated(frame)
        header, payload = list(HEADER.unpack_from(frame)), frame[HEADER.size : -CHECKSUM.size]
        if self.random.random() < 0.3:
            field = self.random.randrange(1, 7)
            header[field] = self.random.choice(EDGES) % (256 if field < 3 else 2**32)
        else:
            payload = self.mutated(payload)
        body = HEADER.pack(*header[:-1], len(payload)) + payload
        return body + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))

    def state(self) -> bytes:
        """A whole state: the attacker's, as it should be made, or not."""
        tensors = {name: tensor * 0 + LIE for name, tensor in self.node.tensors().items()}
        frame = self.node.state_transfer._codec.encode(
            tensors, self.node.me, self.round + self.random.choice((0, 2, 99))
        )
        return frame if self.random.random() < 0.5 else self.inside(frame)

    # Its own calls.

    def attack(self, target: str) -> None:
        kind = self.random.choice(("beat", "beat", "put", "put", "put", "pull", "unknown", "tunnel"))
        try:
            getattr(self, f"_{kind}")(self._channel(target), target)
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
            if error.code() not in MEANT and kind != "unknown":
                self.wrong.append(f"{kind} to {target} was answered with {code}: {error.details()}")
        self.counts[f"{kind} {code}"] += 1

    def _beat(self, channel: grpc.Channel, target: str) -> None:
        said, greetings = self.said(self.heartbeat()), self.greetings()
        answer = channel.unary_unary("/gossamer.Peer/Beat")(said, timeout=5, metadata=greetings)
        self._learn(target, answer)

    def _put(self, channel: grpc.Channel, target: str) -> None:
        frames = b"".join(self.frame() for _ in range(self.random.choice((1, 1, 1, 0, 2))))
        told = Envelope(self.round, len(frames), self.incarnations.get(target, 0), self.heartbeat())
        metadata = [(ENVELOPE_KEY, self.said(told))] * self.random.choice((1, 1, 1, 1, 0, 2))
        cut = self.random.randrange(len(frames) + 1)
        pieces = [frames] if self.random.random() < 0.7 else [frames[:cut], frames[cut:]]
        answer = channel.stream_unary("/gossamer.Peer/Put")(iter(pieces), timeout=5, metadata=metadata)
        self._learn(target, answer[1:])

    def _pull(self, channel: grpc.Channel, target: str) -> None:
        """It says that it is far behind first, so that it is given something at all."""
        if self.random.random() < 0.5:
            channel.unary_unary("/gossamer.Peer/Beat")(self.heartbeat()._replace(round=0, settled=0).write(), timeout=5)
        request = self.random.randbytes(self.random.choice((0, 0, 1, 1000)))
        for _ in channel.unary_stream("/gossamer.Peer/Pull")(request, timeout=5):
            if self.random.random() < 0.1:
                return

    def _tunnel(self, channel: grpc.Channel, target: str) -> None:
        """It is left open for a while, so that several are."""
        kind, to = self.random.choice(("Listen", "Connect")), self.random.choice((*self.peers.names, "", "x"))
        call = channel.stream_stream(f"/gossamer.Peer/{kind}")(self._noise(), timeout=2, metadata=[(TO_KEY, to)])
        if self.random.random() < 0.1:
            for _ in call:
                pass
        elif self.random.random() < 0.5:
            call.cancel()

    def _noise(self) -> Iterator[bytes]:
        for _ in range(self.random.choice((0, 1, 3, 20))):
            time.sleep(self.random.random() / 20)
            start = self.random.choice((b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))  # of a TLS handshake
            yield start + self.random.randbytes(self.random.choice((0, 1, 100, 2**18)))

    def _unknown(self, channel: grpc.Channel, target: str) -> None:
        name = self.random.choice(("Push", "", "Put/Put", "Beat\0"[:4] + "s"))
        channel.unary_unary(f"/gossamer.Peer/{name}")(b"x", timeout=5)

    def _learn(self, target: str, answer: bytes) -> None:
        heartbeat = Heartbeat.read(answer)
        self.incarnations[target] = heartbeat.incarnation
        self.round = max(self.round, heartbeat.round) if self.random.random() < 0.9 else heartbeat.round

    def _channel(self, target: str) -> grpc.Channel:
        channels: dict[str, grpc.Channel] = vars(self.local)
        if target in channels and self.random.random() < 0.002:
            channels.pop(target).close()
        if target not in channels:
            c = self.credentials
            tls = grpc.ssl_channel_credentials(c.authority, c.key, c.certificate)
            options = [("grpc.ssl_target_name_override", target), ("grpc.use_local_subchannel_pool", 1)]
            channels[target] = grpc.secure_channel(self.peers.group.member(target).address, tls, options)
        return channels[target]

    # Its answers.

    def _serve(self) -> grpc.Server:
        c = self.credentials
        tls = grpc.ssl_server_credentials([(c.key, c.certificate)], c.authority, require_client_auth=True)
        handlers = {
            "Beat": grpc.unary_unary_rpc_method_handler(self._answer_beat),
            "Put": grpc.stream_unary_rpc_method_handler(self._answer_put),
            "Pull": grpc.unary_stream_rpc_method_handler(self._answer_pull),
            "Listen": grpc.stream_stream_rpc_method_handler(self._answer_listen),
        }
        server = grpc.server(ThreadPoolExecutor(32))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gossamer.Peer", handlers),))
        server.add_secure_port(self.peers.group.member(self.name).address, tls)
        server.start()
        return server

    def _answer_beat(self, request: bytes, context: Any) -> bytes:
        self.counts["answered Beat"] += 1
        context.set_trailing_metadata(tuple(self.greetings()))
        return self.said(self.heartbeat())

    def _answer_put(self, requests: Any, context: Any) -> bytes:
        for _ in requests:
            pass
        self.counts["answered Put"] += 1
        kinds = (PutAnswer.TAKEN, PutAnswer.EARLY, PutAnswer.STALE, PutAnswer.NEW_INCARNATION, b"", b"\xff")
        return self.random.choice(kinds) + self.said(self.heartbeat())

    def _answer_listen(self, requests: Any, context: Any) -> Any:
        self.counts["answered Listen"] += 1
        time.sleep(self.random.random())
        yield from self._noise()

    def _answer_pull(self, request: bytes, context: Any) -> Any:
        self.counts["answered Pull"] += 1
        state = self.state()
        yield state[: len(state) // 2]
        yield state[len(state) // 2 :]
        if self.random.random() < 0.05:
            yield from (self.random.randbytes(2**20) for _ in range(50))  # more than there can be


def fuzz(seconds: float, seed: int, algorithm: str, directory: Path, hidden: bool = False) -> dict[str, Any]:
    experiment = Experiment(
        nodes=5, rounds=ROUNDS, local_steps=1, task=Quadratic(dimension=53, num_samples=210), strategy="rows",
        topology=FullyConnected(), algorithm=ALGORITHMS[algorithm](), evaluation=Evaluation(10**6, 1),
    )  # fmt: skip
    with LocalGroup(experiment, directory, TIMEOUTS, round_seconds=0.02, checkpoint_every=20) as peers:
        *honest, mine = peers.names
        if hidden:
            hide(peers, *honest[1:3], relay=honest[0])
        targets = [name for name in honest if peers.group.member(name).address]
        attacker = Attacker(peers, member(peers, mine), seed)
        peers.start(*honest)
        while not all(peers.last_round(name).get("round", 0) >= 2 for name in honest):
            time.sleep(0.1)
        sizes = {name: [] for name in honest}
        stop = threading.Event()
        threads = [threading.Thread(target=_attack, args=(attacker, targets, stop)) for _ in range(2)]
        for thread in threads:
            thread.start()
        disturb(peers, honest, attacker, seconds, sizes)
        stop.set()
        for thread in threads:
            thread.join()
        attacker.server.stop(0)
        return report(peers, honest, attacker, sizes)


def member(peers: LocalGroup, name: str) -> Node:
    """The attacker's honest self, so that it knows what is right."""
    from gossamer.peers.counters import Counters
    from gossamer.peers.data import prepare
    from gossamer.peers.logs import Log

    me = peers.group.member(name).node
    run_id = groups.run_id(peers.group, peers.experiment.with_digests())
    log = Log(os.open(os.devnull, os.O_WRONLY))
    node = Node(prepare(peers.experiment, me, None), me, run_id, TIMEOUTS, Counters(), log)
    Block.train(node.block, 0)
    return node


def _attack(attacker: Attacker, targets: list[str], stop: threading.Event) -> None:
    while not stop.is_set():
        attacker.attack(attacker.random.choice(targets))


def disturb(peers: LocalGroup, honest: list[str], attacker: Attacker, seconds: float, sizes: Any) -> None:
    """Every few seconds one is killed and started again, or stopped for a while; all must go on."""
    until, turn = time.monotonic() + seconds, 0
    while time.monotonic() < until and not attacker.wrong:
        before = {name: peers.last_round(name).get("round", 0) for name in honest}
        victim = honest[turn % len(honest)]
        peers.send(victim, signal.SIGSTOP if turn % 2 else signal.SIGKILL)
        time.sleep(4.0)
        if turn % 2:
            peers.send(victim, signal.SIGCONT)
        else:
            peers.start(victim)
        time.sleep(12.0)
        for name in honest:
            if name not in peers.running:
                attacker.wrong.append(f"{name} ended: {peers.log(name)[-3:]}")
            elif peers.last_round(name).get("round", 0) <= before[name]:
                attacker.wrong.append(f"{name} stands still in round {before[name]}")
            else:
                pages = int(Path(f"/proc/{peers.pids[name]}/statm").read_text().split()[1])
                sizes[name].append(pages * os.sysconf("SC_PAGE_SIZE"))
        turn += 1
    attacker.counts["disturbances"] = turn


def report(peers: LocalGroup, honest: list[str], attacker: Attacker, sizes: dict[str, list[int]]) -> dict[str, Any]:
    wrong = attacker.wrong
    for name in honest:
        taken = [row for row in events(peers, name, "caught up") if attacker.name in row["neighbours"]]
        attacker.counts["caught up"] += len(events(peers, name, "caught up"))
        if peers.experiment.algorithm.robust:
            wrong += [f"{name} took the attacker's state: {row}" for row in taken if len(row["neighbours"]) == 1]
        attacker.counts["took the attacker's state among others"] += len(taken)
        printed = [row["text"] for row in events(peers, name, "printed") if RAISED.search(row["text"])]
        wrong += [f"{name} printed {text}" for text in printed[:5]]
        if sizes[name] and max(sizes[name]) > sizes[name][0] + 150e6:
            wrong.append(f"{name} grew from {sizes[name][0]} to {max(sizes[name])} bytes")
    kinds = ("beat", "put", "pull", "unknown", "tunnel")
    calls = sum(n for what, n in attacker.counts.items() if what.split()[0] in kinds)
    answers = sum(n for what, n in attacker.counts.items() if what.startswith("answered"))
    rounds = {name: peers.last_round(name).get("round") for name in honest}
    return {
        "calls": calls, "answers": answers, "rounds": rounds, "wrong": wrong, "counts": dict(attacker.counts),
        "resident_bytes": {name: max(found, default=0) for name, found in sizes.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithm", default="jwins", choices=sorted(ALGORITHMS))
    parser.add_argument("--hidden", action="store_true", help="two of the honest ones have no address")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = fuzz(options.seconds, options.seed, options.algorithm, Path(directory) / "up", options.hidden)
    print(json.dumps(found, indent=2))
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
