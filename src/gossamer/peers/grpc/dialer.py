"""The calling end of tunnels: a local address at which gRPC finds a peer that it cannot open a connection to."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gossamer.peers.grpc.failures import NO_CONNECTION
from gossamer.peers.grpc.socket_directory import SocketDirectory
from gossamer.peers.grpc.tunnels import Pipe, Tunnels

LISTENING_SECONDS = 2.0  # so long is waited for the other to listen here
MOST_AT_ONCE = 4  # one is used, and for a moment two


class Dialer:
    """Whatever connects to `target` is carried to one peer: over a call with which that one listens here, or else
    through its relay, if it has one and `relay` opens a call there. `trouble` says why the last one was not."""

    def __init__(
        self, node: int, tunnels: Tunnels, relay: Callable[[Pipe], Any] | None, relay_name: str, patience: float
    ):
        self._node, self._tunnels, self._relay, self._patience = node, tunnels, relay, patience
        self._relay_name = relay_name
        self.way = ""  # that the last connection took
        self.trouble = ""
        self._free = threading.Semaphore(MOST_AT_ONCE)
        self._directory: SocketDirectory | None = None
        if hasattr(socket, "AF_UNIX"):
            self._directory = SocketDirectory()
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(self._directory.path / "s"))
            self.target = f"unix:{self._directory.path / 's'}"
        else:  # pragma: no cover - on Windows
            self._socket = socket.socket()
            self._socket.bind(("127.0.0.1", 0))
            self.target = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._socket.listen(MOST_AT_ONCE)
        self._socket.settimeout(0.5)
        self._closing = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="dialer").start()

    def close(self) -> None:
        self._closing.set()
        if self._directory is not None:
            self._directory.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            with suppress(OSError):  # none came, or there is no descriptor for it
                connection, _ = self._socket.accept()
                connection.settimeout(None)
                if self._free.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(connection,), daemon=True, name="tunnel").start()
                else:
                    connection.close()
        self._socket.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._carry(connection)
        finally:
            self._free.release()

    def _carry(self, connection: socket.socket) -> None:
        if self._tunnels.hand_over(self._node, connection, self._patience):
            self.way = "over its own connection"
            return
        self.trouble = NO_CONNECTION
        if self._relay is None:
            connection.close()
            return
        pipe = Pipe(connection)
        try:
            call = self._relay(pipe)
        except (ValueError, KeyError):  # the relay was struck from the group, or this peer ends
            connection.close()
            return
        self.way = f"through {self._relay_name}"
        pipe.feed(call)
        call.cancel()
        self.trouble = f"{self._relay_name}: {call.details() or 'the connection ended'}"
