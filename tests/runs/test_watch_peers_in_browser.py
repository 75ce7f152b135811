"""The live page of a group, in a real browser."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from conftest import Browser
from gossamer.peers.counters import Counters, Gauge, serve
from gossamer.peers.watch import PeerWatchServer
from loopback_pages import serving


class Peer:
    """What a peer's page tells, without a peer."""

    def __init__(self, name: str) -> None:
        self.name, self.round, self.loss, self.waiting = name, 1, 2.0, 0.0

    def gauges(self) -> list[Gauge]:
        info = {"name": self.name, "experiment": "digits", "algorithm": "jwins", "run": "ward-7", "metric": "accuracy"}
        return [
            Gauge("peer_info", "", [(info, 1.0)]),
            Gauge("round", "", [({}, self.round)]),
            Gauge("rounds", "", [({}, 30.0)]),
            Gauge("train_loss", "", [({}, self.loss)]),
            Gauge("phase", "", [({"phase": "exchanging"}, 1.0)]),
            Gauge("waiting_seconds", "", [({"neighbour": "south"}, self.waiting)] if self.waiting else []),
        ]


@contextmanager
def watched(peers: list[Peer], interval_seconds: float) -> Iterator[PeerWatchServer]:
    with ExitStack() as at_the_end:
        ports = []
        for peer in peers:
            end, port = serve("127.0.0.1", 0, Counters(), peer.gauges)
            at_the_end.callback(end)
            ports.append(port)
        watcher = PeerWatchServer([("127.0.0.1", port) for port in ports], 0, interval_seconds)
        yield at_the_end.enter_context(serving(watcher))


@pytest.mark.slow
def test_the_page_follows_the_peers_and_keeps_what_the_reader_is_at(browser: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    north, hostile = Peer("north"), Peer('<img src="/x" onerror="document.title=1">')
    wait = WebDriverWait(browser.driver, 20)

    def text(selector: str) -> str:
        """In one step: elements of a page that is made anew are gone when one looks at them."""
        return str(browser.run("return document.querySelector(arguments[0])?.innerText", selector))

    def go_on(told: str) -> None:
        """The page has been made anew by the time that it says this."""
        north.round += 1
        wait.until(lambda _: f"{north.round} of 30" in text("tbody") and told in text("main"))

    with watched([north, hostile], 0.2) as server:
        browser.open(server.address, width=700)
        wait.until(lambda _: "2 of 2 peers answer" in text("#state"))
        go_on("Nothing needs attention")
        assert text("h1") == "digits"
        north.waiting = 40.0
        go_on("north has waited 40 s for south")
        assert "waits for south, 40 s" in text("tbody tr")

        browser.run('document.querySelector(".scroll").scrollLeft = 60')
        browser.run('document.querySelector(".numbers").open = true')
        browser.run('document.querySelectorAll("svg.chart")[1].focus()')
        ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
        assert text("#tip").startswith("after ")
        go_on("north has waited")
        assert browser.run('return document.querySelector(".scroll").scrollLeft') == 60
        assert browser.run('return document.querySelector(".numbers").open')
        assert browser.run('return document.activeElement === document.querySelectorAll("svg.chart")[1]')
        assert text("#tip").startswith("after ")

        browser.open(server.address, width=390)
        go_on("north has waited")
        assert browser.run("return document.documentElement.scrollWidth") == 390
        assert browser.driver.title == "Peers"
        assert browser.complaints() == []
        assert all(url.startswith(server.address) for url in browser.requests())
