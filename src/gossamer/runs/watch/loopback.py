"""A server of pages for this machine alone, which changes nothing; what it shows is its handler's affair."""

import json
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import SplitResult, urlsplit

from gossamer.runs.report import policy

LOOPBACK = "127.0.0.1"


class LoopbackServer(ThreadingHTTPServer):
    daemon_threads = True  # pages that are open do not keep it from ending

    def __init__(self, handler: "type[LoopbackHandler]", port: int = 0, interval_seconds: float = 1.0):
        """On a free port if none is given; pages that are open are brought up to date every so many seconds."""
        self.interval_seconds = interval_seconds
        self.closing = threading.Event()
        super().__init__((LOOPBACK, port), handler)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def server_close(self) -> None:
        self.closing.set()
        super().server_close()


class LoopbackHandler(BaseHTTPRequestHandler):
    timeout = 30  # seconds for a request to come, and for what is sent to be taken
    server_version, sys_version = "gossamer", ""

    server: LoopbackServer

    def do_GET(self) -> None:
        if self._is_for_us():
            self.answer(urlsplit(self.path))

    def answer(self, url: SplitResult) -> None:
        """One request, by this machine."""
        raise NotImplementedError

    def _is_for_us(self) -> bool:
        """Was this machine asked by its own name? A page elsewhere could have its name lead here (DNS rebinding)."""
        port = self.server.server_port
        name, _, asked_port = self.headers.get("Host", "").partition(":")
        if name in (LOOPBACK, "localhost") and (asked_port or "80") == str(port):  # browsers leave port 80 out
            return True
        self.send(HTTPStatus.MISDIRECTED_REQUEST, f"Ask for {self.server.address}", "text/plain")
        return False

    def send(self, status: HTTPStatus, text: str, kind: str = "text/html") -> None:
        self.head(f"{kind}; charset=utf-8", status)
        with suppress(OSError):  # nobody waits for it any more
            self.wfile.write(text.encode())

    def head(self, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Security-Policy": policy("'self'") + "; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    # What the script of an open page is told, after head("text/event-stream"). OSError once the page is closed.

    def send_content(self, text: str) -> None:
        """All that is in the page's <main>."""
        self.wfile.write(f"data: {json.dumps(text)}\n\n".encode())

    def send_state(self, text: str) -> None:
        """The line above it."""
        self.wfile.write(f"event: state\ndata: {' '.join(text.split())}\n\n".encode())

    def send_nothing(self) -> None:
        self.wfile.write(b": nothing new\n\n")  # fails once nobody listens

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""
