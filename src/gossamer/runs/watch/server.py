"""The server of runs: the pages, and the events that keep them up to date."""

import os
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import SplitResult, parse_qs

from gossamer.runs.watch import pages
from gossamer.runs.watch.listing import Listed, parts, runs_under
from gossamer.runs.watch.loopback import LoopbackHandler, LoopbackServer

FILES = ("metrics.jsonl", "result.json", "nodes.json")
MOST_OVERLAID = 50  # runs on one page


Versions = list[tuple[str, int, int]]


class WatchServer(LoopbackServer):
    """Serves the runs under a directory, or a single run, to this machine."""

    def __init__(self, root: Path, port: int = 0, interval_seconds: float = 1.0):
        self.root = root.resolve()
        self.shown: dict[tuple[str, ...], Versions] = {}  # the files as they were when the page of these runs was made
        super().__init__(_Handler, port, interval_seconds)

    def runs(self, names: Sequence[str]) -> list[Listed]:
        """The runs of these names; only what is in the list has one, so no name leads out of the directory."""
        known = {run.name: run for run in runs_under(self.root)}
        return [known[name] for name in dict.fromkeys(names) if name in known][:MOST_OVERLAID]


class _Handler(LoopbackHandler):
    server: WatchServer

    def answer(self, url: SplitResult) -> None:
        names = parse_qs(url.query).get("run", [])
        if url.path == "/":
            self._list()
        elif url.path in ("/report", "/events"):
            runs = self.server.runs(names)
            if not runs:
                self.send(HTTPStatus.NOT_FOUND, "No such run. All runs: /", "text/plain")
            elif url.path == "/report":
                self._report(runs)
            else:
                self._follow(runs)
        else:
            self.send(HTTPStatus.NOT_FOUND, "No such page. All runs: /", "text/plain")

    def _list(self) -> None:
        runs = runs_under(self.server.root)
        if [run.directory for run in runs] == [self.server.root]:  # one run was named: its report is meant
            self._report(runs)
        else:
            self.send(HTTPStatus.OK, pages.list_page(self.server.root, runs))

    def _report(self, runs: Sequence[Listed]) -> None:
        try:
            self.server.shown[tuple(run.name for run in runs)] = _versions(runs)
            self.send(HTTPStatus.OK, pages.report_page(runs))
        except Exception as error:  # whatever is in the files
            what = str(error) or type(error).__name__
            told = f"{', '.join(run.name for run in runs)} cannot be shown: {what}"
            self.send(HTTPStatus.INTERNAL_SERVER_ERROR, told, "text/plain")

    def _follow(self, runs: Sequence[Listed]) -> None:
        """Send the page anew whenever a file has changed, until it is closed."""
        self.head("text/event-stream")
        names = tuple(run.name for run in runs)
        seen = self.server.shown.get(names)  # what has changed since the page was made is sent at once
        try:
            self.send_state(pages.state(self.server.runs(names)))
            while not self.server.closing.wait(self.server.interval_seconds):
                if (now := _versions(runs)) != seen and self._event(runs):
                    self.send_state(pages.state(self.server.runs(names)))
                    seen = self.server.shown[names] = now
                else:
                    self.send_nothing()
        except OSError:
            pass  # the page was closed

    def _event(self, runs: Sequence[Listed]) -> bool:
        """Send the page; False if it could not be made, because a file is being replaced, say."""
        try:
            text = pages.content(runs)
        except Exception:  # whatever is in the files
            return False
        self.send_content(text)
        return True


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
