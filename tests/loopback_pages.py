"""Servers of live pages, asked as a browser asks them."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from gossamer.runs.watch.loopback import LoopbackServer

Server = TypeVar("Server", bound=LoopbackServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """While it answers; it ends also when a test fails."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: LoopbackServer, path: str = "/", host: str | None = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found
