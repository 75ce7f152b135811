"""The server of a group's page, to this machine only."""

import time
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import SplitResult

from gossamer.peers.watch import page
from gossamer.peers.watch.scrape import SECONDS
from gossamer.peers.watch.watched import INTERVAL_SECONDS, Status, Watched
from gossamer.runs.watch.loopback import LoopbackHandler, LoopbackServer

MOST_OFTEN = 4.0  # times as long as it takes to make the page of a large group pass before it is made again


class PeerWatchServer(LoopbackServer):
    """Watches the peers whose pages of metrics are at these addresses, from now on."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        port: int = 0,
        interval_seconds: float = INTERVAL_SECONDS,
        page_seconds: float = SECONDS,
    ):
        super().__init__(_Handler, port, interval_seconds)
        self._watched = [Watched(*address, interval_seconds, page_seconds) for address in addresses]

    def statuses(self) -> list[Status]:
        return [watched.status() for watched in self._watched]

    def server_close(self) -> None:
        for watched in self._watched:
            watched.close()
        super().server_close()


class _Handler(LoopbackHandler):
    server: PeerWatchServer

    def answer(self, url: SplitResult) -> None:
        if url.path == "/":
            self.send(HTTPStatus.OK, page.page(self.server.statuses()))
        elif url.path == "/events":
            self._follow()
        else:
            self.send(HTTPStatus.NOT_FOUND, "No such page. The peers: /", "text/plain")

    def _follow(self) -> None:
        """Send the page anew whenever it has changed, until it is closed."""
        self.head("text/event-stream")
        seen, pause = "", self.server.interval_seconds
        try:
            while not self.server.closing.wait(pause):
                began, statuses = time.monotonic(), self.server.statuses()
                if (text := page.content(statuses)) != seen:
                    self.send_state(page.summary(statuses))
                    self.send_content(text)
                    seen = text
                else:
                    self.send_nothing()
                pause = max(self.server.interval_seconds, MOST_OFTEN * (time.monotonic() - began))
        except OSError:
            pass  # the page was closed
