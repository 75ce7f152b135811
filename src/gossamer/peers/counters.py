"""What a peer counts: one table, from which its report, its log and its /metrics page are written."""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from math import inf
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST_READERS = 16  # of the page, at once
READER_SECONDS = 5.0  # of silence, after which one must go
WATCHED_SECONDS = 5.0  # a page that was read so lately is being watched,
LAST_SECONDS = 2.0  # and at the end is kept so long for the next reading, so that who watches learns how it went

MEANINGS = {
    "messages_out": "messages that a neighbour has acknowledged",
    "messages_in": "messages that were taken in",
    "bytes_out": "bytes of acknowledged messages",
    "bytes_in": "bytes of messages taken in",
    "bytes_resent": "bytes of messages that had to be sent again",
    "lost_out": "messages that no one acknowledged",
    "missing": "messages that had not come by the deadline, or whose sender was down",
    "late_used": "messages that came after their round and were used",
    "late_dropped": "messages that came too late to be used",
    "duplicates": "messages that came twice",
    "bad_frames": "arrivals that were not messages of this run",
    "refused": "calls that were turned away because the certificate's name is not in the group",
    "pulls_out": "states given to peers that had been away",
    "pulls_in": "states taken from neighbours after having been away",
    "pull_bytes_out": "their bytes",
    "pull_bytes_in": "their bytes",
    "relayed_bytes": "sealed bytes forwarded between peers that cannot reach each other",
    "neighbours_lost": "times that a neighbour went down",
    "neighbours_found": "times that a neighbour came back",
    "checkpoints": "states saved",
    "checkpoints_failed": "states that could not be saved",
    "mass_sent": "push-sum weight in messages that left",
    "mass_received": "push-sum weight in messages that were taken in",
    "mass_lost": "push-sum weight in messages that no one acknowledged",
}


class Counters:
    """Totals that several threads add to, since the start of the run, restarts included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, Any] = {name: 0.0 if name.startswith("mass_") else 0 for name in MEANINGS}

    def add(self, **amounts: float) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._totals[name] += amount

    def totals(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._totals)

    def restore(self, totals: dict[str, Any]) -> None:
        """Go on from what was counted before a restart."""
        self.add(**{name: amount for name, amount in totals.items() if name in MEANINGS})


class Gauge(NamedTuple):
    """What can be seen now: one value, or one per set of labels."""

    name: str
    meaning: str
    values: list[tuple[dict[str, str], float]]


def serve(
    host: str, port: int, counters: Counters, gauges: Callable[[], Iterable[Gauge]]
) -> tuple[Callable[[], None], int]:
    """A Prometheus page of the counters, and of what else is to be seen now; what ends it, and its port."""
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class Page(Collector):
        def collect(self) -> Iterable[Metric]:
            for name, amount in counters.totals().items():
                yield CounterMetricFamily(f"gossamer_{name}", MEANINGS[name], value=amount)
            for gauge in gauges():
                family = GaugeMetricFamily(f"gossamer_{gauge.name}", gauge.meaning)
                for labels, amount in gauge.values:
                    family.add_sample(family.name, labels, amount)
                yield family
            server.was_read()

    class Server(_PageServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page())
    ProcessCollector(registry=registry)  # memory, processor time and descriptors, by the names that all programs use
    server = Server((host.strip("[]"), port), _PageHandler)
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="metrics")
    thread.start()

    def end() -> None:
        server.wait_for_last_readers()
        server.shutdown()
        server.server_close()
        thread.join()

    return end, server.server_port


class _PageServer(ThreadingMixIn, WSGIServer):
    """Bounded: each reader takes a thread and a descriptor, and the page may be open to strangers."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.Semaphore(MOST_READERS)
        self._read = threading.Event()
        self._read_at = -inf  # by time.monotonic()
        super().__init__(*arguments)

    def was_read(self) -> None:
        self._read_at = time.monotonic()
        self._read.set()

    def wait_for_last_readers(self) -> None:
        """If the page is watched, until it was read once more and whoever reads it has it; not for long."""
        if time.monotonic() - self._read_at > WATCHED_SECONDS:
            return
        until = time.monotonic() + LAST_SECONDS
        self._read.clear()
        self._read.wait(LAST_SECONDS)
        for _ in range(MOST_READERS):
            self._free.acquire(timeout=max(0.0, until - time.monotonic()))

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away in the middle is its own affair."""


class _PageHandler(WSGIRequestHandler):
    timeout = READER_SECONDS

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: whoever reads the page would fill the log."""
