"""The server: the pages, and the events that keep them up to date."""

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from gossamer.runs.report import policy
from gossamer.runs.watch import pages
from gossamer.runs.watch.listing import Listed, parts, runs_under

LOOPBACK = "127.0.0.1"
FILES = ("metrics.jsonl", "result.json", "nodes.json")
MOST_OVERLAID = 50  # runs on one page


Versions = list[tuple[str, int, int]]


class WatchServer(ThreadingHTTPServer):
    """Serves the runs under a directory, or a single run, to this machine."""

    daemon_threads = True  # pages that are open do not keep it from ending

    def __init__(self, root: Path, port: int = 0, interval_seconds: float = 1.0):
        """On a free port if none is given; runs are looked at every so many seconds."""
        self.root, self.interval_seconds = root.resolve(), interval_seconds
        self.closing = threading.Event()
        self.shown: dict[tuple[str, ...], Versions] = {}  # the files as they were when the page of these runs was made
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def server_close(self) -> None:
        self.closing.set()
        super().server_close()

    def runs(self, names: Sequence[str]) -> list[Listed]:
        """The runs of these names; only what is in the list has one, so no name leads out of the directory."""
        known = {run.name: run for run in runs_under(self.root)}
        return [known[name] for name in dict.fromkeys(names) if name in known][:MOST_OVERLAID]


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = 30  # seconds for a request to come, and for what is sent to be taken
    server_version, sys_version = "gossamer", ""

    def do_GET(self) -> None:
        if not self._is_for_us():
            return
        url = urlsplit(self.path)
        names = parse_qs(url.query).get("run", [])
        if url.path == "/":
            self._list()
        elif url.path in ("/report", "/events"):
            runs = self.server.runs(names)
            if not runs:
                self._send(HTTPStatus.NOT_FOUND, "No such run. All runs: /", "text/plain")
            elif url.path == "/report":
                self._report(runs)
            else:
                self._follow(runs)
        else:
            self._send(HTTPStatus.NOT_FOUND, "No such page. All runs: /", "text/plain")

    def _is_for_us(self) -> bool:
        """Was this machine asked by its own name? A page elsewhere could have its name lead here (DNS rebinding)."""
        port = self.server.server_port
        name, _, asked_port = self.headers.get("Host", "").partition(":")
        if name in (LOOPBACK, "localhost") and (asked_port or "80") == str(port):  # browsers leave port 80 out
            return True
        self._send(HTTPStatus.MISDIRECTED_REQUEST, f"Ask for {self.server.address}", "text/plain")
        return False

    def _list(self) -> None:
        runs = runs_under(self.server.root)
        if [run.directory for run in runs] == [self.server.root]:  # one run was named: its report is meant
            self._report(runs)
        else:
            self._send(HTTPStatus.OK, pages.list_page(self.server.root, runs))

    def _report(self, runs: Sequence[Listed]) -> None:
        try:
            self.server.shown[tuple(run.name for run in runs)] = _versions(runs)
            self._send(HTTPStatus.OK, pages.report_page(runs))
        except Exception as error:  # whatever is in the files
            what = str(error) or type(error).__name__
            told = f"{', '.join(run.name for run in runs)} cannot be shown: {what}"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, told, "text/plain")

    def _follow(self, runs: Sequence[Listed]) -> None:
        """Send the page anew whenever a file has changed, until it is closed."""
        self._head("text/event-stream")
        names = tuple(run.name for run in runs)
        seen = self.server.shown.get(names)  # what has changed since the page was made is sent at once
        try:
            self._state(names)
            while not self.server.closing.wait(self.server.interval_seconds):
                if (now := _versions(runs)) != seen and self._event(runs):
                    self._state(names)
                    seen = self.server.shown[names] = now
                else:
                    self.wfile.write(b": nothing new\n\n")  # fails once nobody listens
        except OSError:
            pass  # the page was closed

    def _state(self, names: Sequence[str]) -> None:
        told = pages.state(self.server.runs(names))
        self.wfile.write(f"event: state\ndata: {' '.join(told.split())}\n\n".encode())

    def _event(self, runs: Sequence[Listed]) -> bool:
        """Send the page; False if it could not be made, because a file is being replaced, say."""
        try:
            text = pages.content(runs)
        except Exception:  # whatever is in the files
            return False
        self.wfile.write(f"data: {json.dumps(text)}\n\n".encode())
        return True

    def _send(self, status: HTTPStatus, text: str, kind: str = "text/html") -> None:
        self._head(f"{kind}; charset=utf-8", status)
        with suppress(OSError):  # nobody waits for it any more
            self.wfile.write(text.encode())

    def _head(self, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
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

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def _versions(runs: Sequence[Listed]) -> Versions:
    """Of every file of the runs that is there: its name, its size and when it changed."""
    found = []
    for path in (part / name for run in runs for part in parts(run.directory) for name in FILES):
        try:
            status = os.stat(path)
            found.append((str(path), status.st_size, status.st_mtime_ns))
        except OSError:
            pass  # not there yet
    return found
