"""The side of the gRPC transport that others call. Whoever calls is checked before anything of theirs is read."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.grpc.connections import Connections, most_connections
from gossamer.peers.grpc.protocol import (
    ENVELOPE_KEY,
    GREETING_KEY,
    OPTIONS,
    TO_KEY,
    Envelope,
    Heartbeat,
    PutAnswer,
    pieces,
)
from gossamer.peers.grpc.queues import Verdict
from gossamer.peers.grpc.tunnels import Tunnels, most_calls, most_calls_per_peer
from gossamer.peers.identity.group import Member, address_of
from gossamer.peers.identity.keys import Credentials
from gossamer.peers.transport import Arrived
from gossamer.wire import WireError
from gossamer.wire.frame import Frame

if TYPE_CHECKING:
    from gossamer.peers.grpc.transport import GrpcTransport

HOLD_SECONDS = 5.0  # how long an early message may wait here before its sender must ask again
MAX_CALLS_PER_PEER = 4  # at once
PULL_SECONDS = 1.0  # between two states for the same peer
SERVER_OPTIONS = [
    *OPTIONS,
    ("grpc.server_handshake_timeout_ms", 5000),  # until the first bytes of HTTP/2
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", 8192),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
]


class Server:
    """Answers Put, Beat and Pull; Listen and Connect of those that cannot be reached."""

    def __init__(
        self,
        transport: "GrpcTransport",
        max_bytes: int,
        check: Callable[[bytes, int, int], tuple[Frame, ...]],
        state: Callable[[int, int | None], bytes | None],
        bind: str,
    ):
        host, _ = address_of(bind)
        self._transport = transport
        self._max_bytes = max_bytes
        self._check = check
        self._state = state
        self.tunnels = Tunnels(
            transport.ways.on_listen, lambda num_bytes: transport.counters.add(relayed_bytes=num_bytes)
        )
        self._calls: dict[int, int] = {}
        self._tunnel_calls: dict[int, int] = {}  # of Listen and Connect, which last
        self._pulled: dict[int, float] = {}
        self._lock = threading.Lock()
        self._renewed: Any = None  # what to show from the next connection on, until gRPC has taken it up
        tls = grpc.dynamic_ssl_server_credentials(
            _configuration(transport.credentials), self._take_renewed, require_client_authentication=True
        )
        handlers = {  # streams, because a single message is read before its handler is asked
            "Put": grpc.stream_unary_rpc_method_handler(self._put),
            "Beat": grpc.stream_unary_rpc_method_handler(self._beat),
            "Pull": grpc.stream_stream_rpc_method_handler(self._pull),
            "Listen": grpc.stream_stream_rpc_method_handler(self._listen),
            "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
        }
        num_members = len(transport.group.members)
        self._most_tunnel_calls, self._most_of_one = most_calls(num_members), most_calls_per_peer(num_members)
        num_threads = min(256, 8 + MAX_CALLS_PER_PEER * num_members) + self._most_tunnel_calls  # each has its share
        options = [*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", most_connections(num_members))]
        self._server = grpc.server(
            ThreadPoolExecutor(num_threads, "calls"), options=options, maximum_concurrent_rpcs=num_threads
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gossamer.Peer", handlers),))
        try:
            port = self._server.add_secure_port(bind, tls)
        except RuntimeError as error:
            raise ExperimentError(
                f"{bind} cannot be listened on ({_last(error)}); is another peer there? --bind names another address"
            ) from None
        self._here = _from_here(host), port
        self._connections = Connections(  # before it accepts any
            host, port, num_members, lambda name: name in self._transport.group.members
        )
        self._server.start()

    def renew(self, credentials: Credentials) -> None:
        """Show this certificate from the next connection on."""
        with self._lock:
            self._renewed = _configuration(credentials)

    def _take_renewed(self) -> Any:
        """None if nothing has changed: for every answer that is not, gRPC rebuilds its TLS context."""
        with self._lock:
            renewed, self._renewed = self._renewed, None
        return renewed

    def connection(self) -> socket.socket:
        """To this server, from this process: for what comes through a tunnel."""
        return socket.create_connection(self._here, 2)

    def close(self) -> None:
        self._server.stop(0.2).wait()
        self._connections.close()

    def _put(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._caller(context) as member:
            if difference := self._transport.differences.get(member.node):
                _abort(context, grpc.StatusCode.FAILED_PRECONDITION, f"another experiment: {difference}")
            try:
                round, num_bytes, incarnation, heartbeat = self._open(context)
                self._transport.take_heartbeat(member.node, heartbeat, 0.0)
                if incarnation != self._transport.incarnation:
                    return PutAnswer.NEW_INCARNATION + self._transport.heartbeat_for(member.node).write()
                frames = self._check(_assemble(requests, num_bytes), member.node, round)
            except WireError as error:
                if not context.is_active():  # the connection broke, and the sender will try again
                    _abort(context, grpc.StatusCode.CANCELLED, "the connection broke")
                self._transport.counters.add(bad_frames=1)
                self._transport.log.rate_limited("bad frame", neighbour=member.name, reason=str(error))
                _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            if self._transport.group.nodes.get(member.node) != member:
                self._refuse(context, f"{member.name} is not in the group any more")
            self._transport.liveness.sent(member.node, round)
            verdict = self._transport.mailbox.put(
                Arrived(member.node, round, frames, incarnation), time.monotonic() + HOLD_SECONDS
            )
            if verdict is Verdict.KEPT:
                self._transport.counters.add(messages_in=1, bytes_in=num_bytes)
            elif verdict is Verdict.STALE:
                self._transport.counters.add(late_dropped=1)
                self._transport.log.rate_limited(
                    "too late", neighbour=member.name, round=round // self._transport.exchanges
                )
            elif verdict is Verdict.DUPLICATE:
                self._transport.counters.add(duplicates=1)
            answer = {Verdict.EARLY: PutAnswer.EARLY, Verdict.STALE: PutAnswer.STALE}.get(verdict, PutAnswer.TAKEN)
            return answer + self._transport.heartbeat_for(member.node).write()

    def _open(self, context: grpc.ServicerContext) -> Envelope:
        """The envelope of a delivery, of which nothing has been read yet."""
        try:
            envelope = Envelope.read(dict(context.invocation_metadata()).get(ENVELOPE_KEY, b""))
        except ValueError as error:
            raise WireError(f"The delivery has no envelope: {error}.") from None
        if envelope.round >= self._transport.exchanges_in_all:
            raise WireError(f"A delivery of exchange {envelope.round} is announced, which the run has not.")
        if envelope.num_bytes > self._max_bytes:
            raise WireError(
                f"A delivery of {envelope.num_bytes} bytes is announced, and at most {self._max_bytes} can be."
            )
        return envelope

    def _beat(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._caller(context) as member:
            try:
                heartbeat = Heartbeat.read(next(requests, b""))
                greeting = dict(context.invocation_metadata()).get(GREETING_KEY)
                context.set_trailing_metadata(self._transport.greeting_metadata)  # also to one that differs
                if self._transport.take_greeting(member.node, greeting):
                    self._transport.take_heartbeat(member.node, heartbeat, 0.0)
            except ValueError as error:
                self._transport.counters.add(bad_frames=1)
                self._transport.log.rate_limited("bad heartbeat", neighbour=member.name, reason=str(error))
                _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return self._transport.heartbeat_for(member.node).write()

    def _pull(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._caller(context) as member:
            with self._lock:
                soon = time.monotonic() - self._pulled.get(member.node, -PULL_SECONDS) < PULL_SECONDS
                self._pulled[member.node] = time.monotonic()
            frame = None if soon else self._state(member.node, self._transport.round_of(member.node))
            if frame is None:
                _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "not now, or not for this peer")
            yield from pieces(frame)
            self._transport.counters.add(pulls_out=1, pull_bytes_out=len(frame))
            self._transport.log("gave state", neighbour=member.name, bytes=len(frame))

    def _listen(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._caller(context, tunnel=True) as member:
            yield from self.tunnels.listen(member.node, requests, context)

    def _connect(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """This peer forwards only to those that its own copy of the group's file makes it the relay of."""
        with self._caller(context, tunnel=True) as member:
            me, to = self._transport.me.name, str(dict(context.invocation_metadata()).get(TO_KEY, ""))
            target = self._transport.group.members.get(to)
            if target is None or target.relay != me or target == member:
                _abort(context, grpc.StatusCode.FAILED_PRECONDITION, f"{me} is not the relay of that peer")
            answer = self.tunnels.connect(member.node, target.node, requests)
            if answer is None:
                _abort(context, grpc.StatusCode.UNAVAILABLE, f"{target.name} is not connected to {me}")
            yield from answer

    @contextmanager
    def _caller(self, context: Any, tunnel: bool = False) -> Iterator[Member]:
        """The listed peer that is calling; anyone else is refused."""
        identity = context.auth_context()
        names = [name.decode(errors="replace") for name in identity.get("x509_common_name", [])]
        others = [name.decode(errors="replace") for name in identity.get("x509_subject_alternative_name", [])]
        member = self._transport.group.members.get(names[0]) if len(names) == 1 and names == others else None
        if member is None or member == self._transport.me:
            self._refuse(context, f"{', '.join(names) or 'someone without a name'} is not a peer of this group")
        assert member is not None
        self._connections.called(context.peer(), member.name)
        self._transport.callers.add(member.node)
        calls, most = (self._tunnel_calls, self._most_of_one) if tunnel else (self._calls, MAX_CALLS_PER_PEER)
        with self._lock:
            calls[member.node] = calls.get(member.node, 0) + 1
            full = tunnel and sum(calls.values()) > self._most_tunnel_calls
        try:
            if full or calls[member.node] > most:
                _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {most} calls at once")
            yield member
        finally:
            with self._lock:
                calls[member.node] -= 1

    def _refuse(self, context: grpc.ServicerContext, reason: str) -> NoReturn:
        self._connections.refused(context.peer())
        self._transport.counters.add(refused=1)
        self._transport.log.rate_limited("refused", caller=context.peer(), reason=reason)
        _abort(context, grpc.StatusCode.PERMISSION_DENIED, reason)


def _assemble(requests: Iterator[bytes], num_bytes: int) -> bytes:
    """The bytes of a delivery; memory is taken for what has come, never for what is announced."""
    content: bytes | bytearray = next(requests, b"")
    for chunk in requests:
        content = bytearray(content) if isinstance(content, bytes) else content
        content += chunk
        if len(content) > num_bytes:
            break
    if len(content) != num_bytes:
        raise WireError(f"The delivery should have {num_bytes} bytes, and {len(content)} came.")
    return bytes(content)  # if it came as one, no copy


def _from_here(host: str) -> str:
    """Where a process of this machine finds what listens at this host."""
    host = host.strip("[]")
    try:
        address = ip_address(host)
    except ValueError:  # a name
        return host
    return {4: "127.0.0.1", 6: "::1"}[address.version] if address.is_unspecified else host


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, reason: str) -> NoReturn:
    context.abort(code, reason)
    raise AssertionError("abort returns never")


def _configuration(credentials: Credentials) -> Any:
    pair = [(credentials.key, credentials.certificate)]
    return grpc.ssl_server_certificate_configuration(pair, credentials.authority)


def _last(error: Exception) -> str:
    return str(error).rpartition(": ")[2].strip() or str(error)
