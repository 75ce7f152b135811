"""One reading of a peer's page of metrics. Whoever answers there may be anybody: all that is read is bounded."""

import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite, nan

from gossamer.peers.progress import PHASES

SECONDS = 3.0  # for a whole page, from the connection to its end
MOST_BYTES = 250_000
MOST_LINE = 2000  # characters of a line
MOST_SERIES = 2000  # of ours; a peer has about 60, and two per neighbour
MOST_CHARACTERS = 64  # of a label that are shown
MOST = 1e15  # a number beyond this is none of a peer's

MEMORY = "process_resident_memory_bytes"
_TEXT = r'[^"\\]*(?:\\[\\"n][^"\\]*)*'  # of a label; no two parts of it can match the same
_LABEL = rf'[a-zA-Z_][a-zA-Z0-9_]*="{_TEXT}"'
_SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{((?:{_LABEL}(?:,{_LABEL})*,?)?)\}})? +(\S+)(?: +-?\d+)?")
_EACH_LABEL = re.compile(rf'([a-zA-Z_][a-zA-Z0-9_]*)="({_TEXT})"')
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf|NaN)")
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Series = dict[str, list[tuple[dict[str, str], float]]]  # by name: labels and values


class ScrapeError(Exception):
    """Why there is no reading, in a few words."""


@dataclass(frozen=True)
class Reading:
    """What a peer's page said. Texts are short and printable, but may hold markup; numbers not known are NaN."""

    name: str = ""  # the peer's
    run: str = ""
    experiment: str = ""
    algorithm: str = ""
    metric: str = ""  # what it is evaluated by
    phase: str = ""  # of PHASES; "": not known
    values: dict[str, float] = field(default_factory=dict)  # of series without labels, by their short names
    waiting: dict[str, float] = field(default_factory=dict)  # for whom, and for how many seconds
    neighbours: dict[str, bool] = field(default_factory=dict)  # are they there?
    evaluation: dict[str, float] = field(default_factory=dict)  # by metric

    def __getitem__(self, name: str) -> float:
        return self.values.get(name, nan)

    @property
    def score(self) -> float:
        return self.evaluation.get(self.metric, nan)


def read(host: str, port: int, seconds: float = SECONDS) -> Reading:
    """ScrapeError if there is no page, or not a peer's."""
    return reading_of(series_of(fetch(host, port, seconds)))


def fetch(host: str, port: int, seconds: float = SECONDS) -> bytes:
    """The page at /metrics. HTTP/1.0, whose answers end with the connection: a client of more than that has waits in
    it that no deadline ends."""
    until = time.monotonic() + seconds
    asked = f"GET /metrics HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n"
    received = bytearray()
    try:
        with socket.create_connection((host.strip("[]"), port), seconds) as connection:
            connection.sendall(asked.encode())
            while True:
                if (left := until - time.monotonic()) <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                if not (chunk := connection.recv(65536)):
                    break
                received += chunk
                if len(received) > MOST_BYTES:
                    raise ScrapeError(f"its page is longer than {MOST_BYTES // 1000} kB")
    except TimeoutError:
        raise ScrapeError(f"no page within {seconds:g} s") from None
    except (OSError, UnicodeError) as error:
        raise ScrapeError(str(getattr(error, "strerror", None) or error).lower()) from None
    return _body(bytes(received))


def _body(answer: bytes) -> bytes:
    head, ended, body = answer.partition(b"\r\n\r\n")
    status, *headers = head.split(b"\r\n")
    if not ended or not re.match(rb"HTTP/1\.[01] 200\b", status):
        raise ScrapeError("what answers there is no page of metrics")
    for header in headers:
        name, _, length = header.partition(b":")
        if name.lower() == b"content-length" and length.strip() != str(len(body)).encode():
            raise ScrapeError("its page broke off")
    return body


def series_of(page: bytes) -> Series:
    """Of a page in the Prometheus text format, what is of a peer; what else the page has is passed over."""
    try:
        lines = page.decode().split("\n")
    except UnicodeDecodeError:
        raise ScrapeError("its page is not text") from None
    found: Series = {}
    number = 0
    for line in lines:
        if not line.startswith(("gossamer_", MEMORY)):
            continue
        sample = _SAMPLE.fullmatch(line.rstrip("\r")) if len(line) <= MOST_LINE else None
        number += 1
        if sample is None or not _NUMBER.fullmatch(sample[3]):
            raise ScrapeError("its page is not in the format of Prometheus")
        if number > MOST_SERIES:
            raise ScrapeError(f"its page has more than {MOST_SERIES} series")
        value = float(sample[3])
        labels = {key: _unescaped(text) for key, text in _EACH_LABEL.findall(sample[2] or "")}
        found.setdefault(sample[1], []).append((labels, value if abs(value) < MOST else nan))
    return found


def _unescaped(text: str) -> str:
    """What a label says, cut, on one line."""
    plain = re.sub(r'\\[\\"n]', lambda found: _ESCAPED[found[0]], text[: 2 * MOST_CHARACTERS])
    printable = "".join(c if c.isprintable() else " " for c in plain)
    return printable if len(printable) <= MOST_CHARACTERS else printable[: MOST_CHARACTERS - 1] + "…"


def reading_of(series: Series) -> Reading:
    if "gossamer_round" not in series:
        raise ScrapeError("its page is not that of a Gossamer peer")
    info = series.get("gossamer_peer_info", [({}, 1.0)])[0][0]
    phases = [labels.get("phase") for labels, value in series.get("gossamer_phase", []) if value == 1]
    plain = {name: values[0][1] for name, values in series.items() if not values[0][0]}
    return Reading(
        **{key: info.get(key, "").strip() for key in ("name", "run", "experiment", "algorithm", "metric")},
        phase=next((phase for phase in phases if phase in PHASES), ""),
        values={
            name.removeprefix("gossamer_").removesuffix("_total"): value
            for name, value in plain.items()
            if isfinite(value)
        },
        waiting=dict(_labelled(series, "waiting_seconds", "neighbour")),
        neighbours={name: value == 1 for name, value in _labelled(series, "neighbour_up", "neighbour")},
        evaluation=dict(_labelled(series, "evaluation", "metric")),
    )


def _labelled(series: Series, name: str, label: str) -> Iterable[tuple[str, float]]:
    for labels, value in series.get(f"gossamer_{name}", []):
        if label in labels and isfinite(value):
            yield labels[label], value
