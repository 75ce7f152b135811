"""The hidden end of tunnels: a peer to which nobody can open a connection listens at those that it reaches."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import grpc

from gossamer.peers.grpc.tunnels import Pipe

FIRST_PAUSE_SECONDS = 0.1  # after a call that failed; twice as long each time
LONGEST_PAUSE_SECONDS = 2.0


class Listener:
    """Keeps one call of Listen waiting at another peer, and connects those that are used to this peer's own server,
    which checks what comes as if it had come straight. `call` opens one; at most so many are open at a time."""

    def __init__(
        self, name: str, call: Callable[[Iterator[bytes]], Any], connect: Callable[[], socket.socket], most: int
    ):
        self._open_call, self._connect = call, connect
        self._free = threading.Semaphore(most)
        self._closing = threading.Event()
        self._calls: set[Any] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"listens at {name}")
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._closing.is_set():
            if not self._free.acquire(timeout=1):
                continue
            if self._wait_for_use():
                pause = FIRST_PAUSE_SECONDS
            else:
                self._free.release()
                self._closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _wait_for_use(self) -> bool:
        """Open a call; True once its first bytes have come, and a thread of its own carries them."""
        line = _Line()
        try:
            call = self._open_call(line.outgoing())
        except (ValueError, KeyError):  # the channel was closed, or the peer struck from the group, in this moment
            line.decide(None)
            return False
        with self._lock:
            self._calls.add(call)
        try:
            if self._closing.is_set():  # after close() looked
                call.cancel()
            first = next(call)
        except (grpc.RpcError, StopIteration):
            line.decide(None)
            self._drop(call)
            return False
        threading.Thread(target=self._carry, args=(call, line, first), daemon=True, name="tunnel").start()
        return True

    def _carry(self, call: Any, line: "_Line", first: bytes) -> None:
        pipe = None
        try:
            with suppress(OSError):
                pipe = Pipe(self._connect())
            line.decide(pipe)
            if pipe is not None:
                pipe.feed(chain([first], call))
        finally:
            self._drop(call)
            self._free.release()

    def _drop(self, call: Any) -> None:
        call.cancel()
        with self._lock:
            self._calls.discard(call)


class _Line:
    """What this peer sends over a call: nothing until it is known where it comes from."""

    def __init__(self) -> None:
        self._decided = threading.Event()
        self._pipe: Pipe | None = None

    def decide(self, pipe: Pipe | None) -> None:
        self._pipe = pipe
        self._decided.set()

    def outgoing(self) -> Iterator[bytes]:
        self._decided.wait()
        if self._pipe is not None:
            yield from self._pipe.pieces()
