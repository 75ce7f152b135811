"""Pages of metrics that no peer serves."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LEAST = b"gossamer_round 3.0\n"  # of a page that is taken for a peer's
Answer = Callable[[socket.socket], None]


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """The port at which every caller gets this answer, whatever it asks."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                answer(connection)

        def serve_all() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve_all, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def page(body: bytes, head: bytes = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n") -> Answer:
    return lambda connection: connection.sendall(head + body)


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"# more of it\n" * 5000)


def dripping(connection: socket.socket) -> None:
    """Each byte comes soon after the one before, and the last one never; in the head, where clients forget to look."""
    while True:
        connection.sendall(b"H")
        time.sleep(0.05)


def silent(connection: socket.socket) -> None:
    time.sleep(60)
