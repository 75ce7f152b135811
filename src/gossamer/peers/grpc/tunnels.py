"""Byte streams inside calls: how a peer is reached to which nobody can open a connection.

Such a peer, behind NAT for one, opens a call itself, Listen, at a peer that it reaches, and waits. When that one wants
to call it, the bytes of its connection go over the waiting call to the server of the peer that listens. So what travels
is the same TLS connection, with the same two certificates and the same calls in it, as where there is no NAT.

Of two that nobody can reach, one opens the call Connect at the relay that the group's file names for the other, which
listens there; the relay carries the bytes from one call to the other. It has the key of neither end: it can drop them,
and whatever else it does to them, TLS at the ends notices, and ends the connection.
"""

import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import grpc

PIECE = 1 << 18  # bytes read at once
RELAY_PATIENCE_SECONDS = 2.0  # so long a relay waits for the one that is to be reached to listen
MOST_PER_PAIR = 2  # connections from one peer to another through a relay: one is used, and one may be about to end
MOST_CALLS = 128  # of Listen and Connect at one peer: each holds two threads


def most_calls(num_members: int) -> int:
    """Of Listen and Connect, from all others."""
    return min(MOST_CALLS, num_members * most_calls_per_peer(num_members))


def most_calls_per_peer(num_members: int) -> int:
    """A relay may be between one peer and all others, in both directions."""
    return min(MOST_CALLS // 4, 2 * MOST_PER_PAIR * (1 + num_members))


class Pipe:
    """A socket that two threads use, one for each direction: the first that is done ends both, the last closes it."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._users = 2
        self._lock = threading.Lock()

    def pieces(self) -> Iterator[bytes]:
        """What comes out of the socket, until it ends."""
        try:
            with suppress(OSError):
                while piece := self._connection.recv(PIECE):
                    yield piece
        finally:
            self._leave()

    def feed(self, pieces: Iterator[bytes]) -> None:
        """Into the socket, until either ends. It is full as long as the other end does not read, and no more is asked
        for: what is on its way is bounded."""
        try:
            with suppress(OSError, grpc.RpcError):
                for piece in pieces:
                    self._connection.sendall(piece)
        finally:
            self._leave()

    def end(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                self.end()
            else:
                self._connection.close()


@dataclass(eq=False)
class _Waiting:
    """A call of Listen that is not used yet."""

    connection: socket.socket | None = None
    ended: bool = False


@dataclass
class _Of:
    """What a peer has open here."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    pipes: set[Pipe] = field(default_factory=set)


class Tunnels:
    """The calls of Listen and Connect that others have open here. `on_listen` is told who has just begun to listen."""

    def __init__(self, on_listen: Callable[[int], None], on_relayed: Callable[[int], None]):
        self._on_listen, self._on_relayed = on_listen, on_relayed
        self._open: dict[int, _Of] = {}
        self._relaying: Counter[tuple[int, int]] = Counter()  # connections from one node to another
        self._changed = threading.Condition()

    def listen(self, node: int, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The answer to Listen: what is to be brought to the caller."""
        waiting = _Waiting()
        with self._changed:
            theirs = self._open.setdefault(node, _Of())
            theirs.waiting.append(waiting)
            self._changed.notify_all()
        try:
            if not context.add_callback(lambda: self._stop(waiting)):  # it has ended already
                self._stop(waiting)
            self._on_listen(node)
            with self._changed:
                self._changed.wait_for(lambda: waiting.connection is not None or waiting.ended)
        finally:
            with self._changed, suppress(ValueError):
                theirs.waiting.remove(waiting)
        if waiting.connection is not None:
            yield from self._carry((node,), requests, Pipe(waiting.connection))

    def hand_over(self, node: int, connection: socket.socket, seconds: float) -> bool:
        """Have a connection carried to a node that listens here, or does so within this time; False if it does not."""
        with self._changed:
            theirs = self._open.setdefault(node, _Of())
            if not self._changed.wait_for(lambda: theirs.waiting, seconds):
                return False
            theirs.waiting.pop().connection = connection  # the newest: an old one may have ended unnoticed
            self._changed.notify_all()
            return True

    def connect(self, node: int, target: int, requests: Iterator[bytes]) -> Iterator[bytes] | None:
        """The answer to Connect: what the target sends to the caller; None if it does not listen here, or if the caller
        has connections enough: it is not to take those from the others for which the target listens."""
        with self._changed:
            if self._relaying[node, target] >= MOST_PER_PAIR:
                return None
            self._relaying[node, target] += 1
        here, there = socket.socketpair()
        if not self.hand_over(target, there, RELAY_PATIENCE_SECONDS):
            here.close()
            there.close()
            self._relayed((node, target))
            return None
        return self._relay((node, target), requests, Pipe(here))

    def _relay(self, pair: tuple[int, int], requests: Iterator[bytes], pipe: Pipe) -> Iterator[bytes]:
        try:
            yield from self._counted(self._carry(pair, self._counted(requests), pipe))
        finally:
            self._relayed(pair)

    def _relayed(self, pair: tuple[int, int]) -> None:
        with self._changed:
            self._relaying -= Counter([pair])  # which leaves no zeros
            self._changed.notify_all()

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._on_relayed(len(piece))
            yield piece

    def _carry(self, nodes: tuple[int, ...], requests: Iterator[bytes], pipe: Pipe) -> Iterator[bytes]:
        """Between a call and a socket, for as long as both last and these nodes belong to the group."""
        with self._changed:
            for node in nodes:
                self._open.setdefault(node, _Of()).pipes.add(pipe)
        threading.Thread(target=pipe.feed, args=(requests,), daemon=True, name="tunnel").start()
        try:
            yield from pipe.pieces()
        finally:
            with self._changed:
                for node in nodes:
                    self._open.setdefault(node, _Of()).pipes.discard(pipe)

    def _stop(self, waiting: _Waiting) -> None:
        with self._changed:
            waiting.ended = True
            self._changed.notify_all()

    def forget(self, node: int) -> None:
        """It is not in the group any more, or has changed: end all that is open with it."""
        with self._changed:
            theirs = self._open.pop(node, _Of())
            for waiting in theirs.waiting:
                waiting.ended = True
            self._changed.notify_all()
        for pipe in theirs.pipes:
            pipe.end()

    def listens(self, node: int) -> bool:
        with self._changed:
            return bool(node in self._open and self._open[node].waiting)

    def drain(self, seconds: float) -> None:
        """Wait until nobody needs this peer as a relay any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._relaying, max(0.0, seconds))
