"""The ways out: a connection to each neighbour, and a link that brings messages over it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from gossamer.peers.grpc.dialer import LISTENING_SECONDS, Dialer
from gossamer.peers.grpc.failures import reason_of
from gossamer.peers.grpc.protocol import CHUNK, ENVELOPE_KEY, OPTIONS, TO_KEY, Envelope, Heartbeat, PutAnswer, pieces
from gossamer.peers.grpc.queues import Delivered, Link, Outcome, Outgoing
from gossamer.peers.grpc.tunnels import Pipe
from gossamer.peers.identity.group import Member
from gossamer.peers.transport import Payload

if TYPE_CHECKING:
    from gossamer.peers.grpc.transport import GrpcTransport

POLL_SECONDS = 0.25
REFUSALS = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)
CONNECT_MS = 2000  # how long one attempt to connect may take
TUNNEL_CONNECT_MS = 5000  # through a tunnel: it may have to be waited for, and a relay asked
CHANNEL_OPTIONS = [
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


class Outbox:
    """Brings a peer's messages to its neighbours. `on_outcome` is told what became of each, `on_restart` whose
    receiver has begun a new incarnation; both are called from the links' threads."""

    def __init__(
        self,
        transport: "GrpcTransport",
        on_outcome: Callable[[int, int, bool], None],
        on_restart: Callable[[int], None],
    ):
        self._transport = transport
        self._on_outcome, self._on_restart = on_outcome, on_restart
        self._channels: dict[int, grpc.Channel] = {}
        self._tunnelled: set[int] = set()  # those with an address at which they are not reached
        self._dialers: dict[int, Dialer] = {}
        self._links: dict[int, Link] = {}
        self._incarnations: dict[int, int] = {}  # the last known of each other peer
        self._sent_to: dict[int, int] = {}  # the incarnation of each that the last message was for
        self.awaited: tuple[int, ...] = ()  # the one that has not taken the message before, while `publish` waits
        self._lock = threading.RLock()

    def publish(self, round: int, receivers: Sequence[int], payload: Payload, until: float) -> None:
        give_up = max(until, time.monotonic()) + self._transport.timeouts.deadline_seconds
        for receiver in receivers:
            if not self._transport.can_send(receiver):
                self._done(receiver, round, 0, 0, False)
                continue
            outgoing = Outgoing(round, lambda to=receiver: payload(to), give_up)  # type: ignore[misc]
            self.awaited = (receiver,)
            self._link(receiver).offer(outgoing, until)
            self.awaited = ()

    def oldest(self, node: int) -> int | None:
        """The first round of which a message to this node has not been taken."""
        link = self._links.get(node)
        return None if link is None else link.oldest

    def has_room(self, node: int) -> bool:
        """Does no message to this node wait in line?"""
        link = self._links.get(node)
        return link is None or not link.is_full

    def disconnect(self, node: int) -> None:
        """The next call connects anew, if there is one."""
        with self._lock:
            channel, dialer = self._channels.pop(node, None), self._dialers.pop(node, None)
        if channel is not None:
            channel.close()
        if dialer is not None:
            dialer.close()

    def is_tunnelled(self, node: int) -> bool:
        """Do calls to this node go over connections that it has opened, or through its relay?"""
        member = self._transport.group.nodes.get(node)
        return node in self._tunnelled or (member is not None and not member.address)

    def change_way(self, node: int, tunnelled: bool) -> None:
        """From the next call on."""
        with self._lock:
            if self.is_tunnelled(node) == tunnelled:
                return
            (self._tunnelled.add if tunnelled else self._tunnelled.discard)(node)
        self.disconnect(node)

    def way(self, node: int) -> str:
        """How this node is reached, in words."""
        dialer, member = self._dialers.get(node), self._transport.group.nodes[node]
        return dialer.way if dialer is not None else f"at {member.address}"

    def trouble(self, node: int) -> str:
        """Why a tunnel to it could not be had."""
        dialer = self._dialers.get(node)
        return "" if dialer is None else dialer.trouble

    def flush(self, until: float) -> None:
        for link in list(self._links.values()):
            link.flush(until)

    def stop(self) -> None:
        for link in self._links.values():
            link.close()

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        for dialer in list(self._dialers.values()):
            dialer.close()
        for link in self._links.values():
            link.join(2)

    def channel(self, node: int) -> grpc.Channel:
        with self._lock:
            if node not in self._channels:
                member, c = self._transport.group.nodes[node], self._transport.credentials
                tls = grpc.ssl_channel_credentials(c.authority, c.key, c.certificate)
                # The host at the address must be the peer that is listed there, not just any member.
                options = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", member.name)]
                tunnelled = self.is_tunnelled(node)
                options.append(("grpc.min_reconnect_backoff_ms", TUNNEL_CONNECT_MS if tunnelled else CONNECT_MS))
                target = self._dial(member).target if tunnelled else member.address
                self._channels[node] = grpc.secure_channel(target, tls, options)
            return self._channels[node]

    def listen(self, node: int, outgoing: Iterator[bytes]) -> Any:
        """Let this node call this peer over the connection that this peer has to it."""
        return self.channel(node).stream_stream("/gossamer.Peer/Listen")(outgoing)

    def _dial(self, member: Member) -> Dialer:
        transport = self._transport

        def through_relay(pipe: Pipe) -> Any:
            relay = transport.group.members[member.relay]
            connect = self.channel(relay.node).stream_stream("/gossamer.Peer/Connect")
            return connect(pipe.pieces(), metadata=((TO_KEY, member.name),))

        usable = member.relay not in ("", transport.me.name)
        # One that has an address is likely to be reached, and then the other opens a connection to it.
        patience = LISTENING_SECONDS if transport.me.address or not usable else 0.0
        dialer = Dialer(member.node, transport.tunnels, through_relay if usable else None, member.relay, patience)
        self._dialers[member.node] = dialer
        return dialer

    def _link(self, node: int) -> Link:
        with self._lock:
            if node not in self._links:

                def send(round: int, payload: Callable[[], bytes], until: float) -> Delivered:
                    return self._put(node, round, payload, until)

                def done(round: int, num_bytes: int, tries: int, taken: bool) -> None:
                    self._done(node, round, num_bytes, tries, taken)

                self._links[node] = Link(
                    self._transport.name_of(node), send, done, lambda: self._transport.can_send(node)
                )
            return self._links[node]

    def _done(self, node: int, round: int, num_bytes: int, tries: int, taken: bool) -> None:
        self._transport.counters.add(bytes_resent=num_bytes * max(0, tries - 1))
        if taken:
            self._transport.counters.add(messages_out=1, bytes_out=num_bytes)
        else:
            self._transport.counters.add(lost_out=1)
        with self._lock:  # what a former incarnation of the receiver took is forgotten
            self._on_outcome(node, round, taken and self._sent_to.get(node) == self._incarnations.get(node))

    def _put(self, node: int, round: int, payload: Callable[[], bytes], until: float) -> Delivered:
        incarnation = self._sent_to[node] = self._incarnations.get(node, 0)  # before the payload is made for it
        frames = payload()
        return Delivered(self._send(node, round, frames, incarnation, until), len(frames))

    def _send(self, node: int, round: int, frames: bytes, incarnation: int, until: float) -> Outcome:
        seconds = until - time.monotonic()
        try:
            began = time.monotonic()
            envelope = Envelope(round, len(frames), incarnation, self._transport.heartbeat_for(node))
            future = self._call_put(node, envelope, frames, max(0.1, seconds))
        except (ValueError, KeyError):  # closed, or not in the group any more, in this moment
            return Outcome.RETRY
        while True:
            try:
                return self._after_verdict(node, future.result(POLL_SECONDS), began)
            except grpc.FutureTimeoutError:
                if not self._transport.can_send(node) or self._transport.closing.is_set():
                    future.cancel()
                    return Outcome.RETRY
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                return self._after_failure(node, error)

    def _call_put(self, node: int, envelope: Envelope, frames: bytes, seconds: float) -> Any:
        """A stream of one message is, to the other end, what a single message is, and costs a thread more here."""
        metadata = ((ENVELOPE_KEY, envelope.write()),)
        if len(frames) > CHUNK:
            stream = self.channel(node).stream_unary("/gossamer.Peer/Put")
            return stream.future(pieces(frames), timeout=seconds, metadata=metadata)
        return self.channel(node).unary_unary("/gossamer.Peer/Put").future(frames, timeout=seconds, metadata=metadata)

    def _after_verdict(self, node: int, answer: bytes, began: float) -> Outcome:
        self._transport.ways.succeeded(node)
        try:
            self._transport.take_heartbeat(node, Heartbeat.read(answer[1:]), time.monotonic() - began)
        except ValueError:
            return Outcome.REFUSED
        outcomes = {
            PutAnswer.EARLY: Outcome.RETRY,
            PutAnswer.TAKEN: Outcome.TAKEN,
            PutAnswer.NEW_INCARNATION: Outcome.NEW_INCARNATION,
        }
        return outcomes.get(answer[:1], Outcome.REFUSED)

    def take_incarnation(self, node: int, incarnation: int) -> None:
        with self._lock:
            before = self._incarnations.get(node)
            self._incarnations[node] = incarnation
            if before is not None and before != incarnation:
                self._transport.reachability.try_anew(node)
                self._on_restart(node)

    def _after_failure(self, node: int, error: Exception) -> Outcome:
        code = error.code() if isinstance(error, grpc.RpcError) else None
        if code in REFUSALS:
            self._transport.log.rate_limited(
                "message refused", neighbour=self._transport.name_of(node), reason=reason_of(error)
            )
            return Outcome.REFUSED
        if code is grpc.StatusCode.UNAVAILABLE:
            self._transport.ways.failed(node, True, reason_of(error))
        return Outcome.RETRY
