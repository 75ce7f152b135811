"""A peer that is watched: a thread that reads its page again and again, and what came of it so far."""

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from gossamer.peers.watch.scrape import SECONDS, Reading, ScrapeError, read

INTERVAL_SECONDS = 1.0  # between readings
SILENT_SECONDS = 5.0  # after which a peer counts as not answering, whatever its thread is at
MOST_POINTS = 400  # of a curve; even
ENDED = ("done", "left", "failed")  # phases after which no page is to be expected


class Point(NamedTuple):
    at: float  # seconds since the watcher began
    round: float
    train_loss: float
    score: float


class History:
    """Of all the time that a run was watched: when there are too many points every second one goes, and from then on
    only half as many are added."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.points: list[Point] = []
        self._most, self._every, self._skipped = most, 1, 0

    def add(self, point: Point) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.points = [*self.points, point]  # a new list: another thread may be drawing the old one
        if len(self.points) > self._most:  # an odd number, so that the last one stays
            self.points, self._every = self.points[::2], 2 * self._every


@dataclass(frozen=True)
class Status:
    """What is known of a peer at a moment."""

    address: str
    reading: Reading | None  # the last; None: there was none yet
    age: float  # seconds since it was read, or if there is none, since the watcher began
    at: float  # when that was, in seconds since 1970
    trouble: str  # why it does not answer; "": it does
    points: list[Point]

    @property
    def answers(self) -> bool:
        return not self.trouble

    @property
    def has_ended(self) -> bool:
        """Its page is gone, and it has said so, or had no round left."""
        if self.reading is None or self.answers:
            return False
        return self.reading.phase in ENDED or 0 < self.reading["rounds"] <= self.reading["round"]


class Watched:
    """Reads the page at an address until it is closed."""

    def __init__(self, host: str, port: int, interval_seconds: float = INTERVAL_SECONDS, page_seconds: float = SECONDS):
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._interval, self._page_seconds = interval_seconds, page_seconds
        self._began = self._read_at = time.monotonic()
        self._at = time.time()
        self._reading: Reading | None = None
        self._troubles: list[str] = []  # of the attempts since the last reading
        self._history = History()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name=f"watch {self.address}")
        self._thread.start()

    def close(self) -> None:
        """Its thread ends with the reading that it is at."""
        self._closing.set()

    def status(self) -> Status:
        with self._lock:
            age = time.monotonic() - self._read_at
            trouble = ""
            if age > SILENT_SECONDS or len(self._troubles) > 1 or (self._troubles and self._reading is None):
                trouble = self._troubles[-1] if self._troubles else "no answer"
            elif self._reading is None:
                trouble = "not asked yet"
            return Status(self.address, self._reading, age, self._at, trouble, self._history.points)

    def _watch(self) -> None:
        while not self._closing.is_set():
            try:
                reading = read(self._host, self._port, self._page_seconds)
            except ScrapeError as error:
                self._failed(str(error))
            except Exception as error:  # whatever a page holds, it is looked at again
                self._failed(type(error).__name__)
            else:
                self._took(reading)
            self._closing.wait(self._interval)

    def _failed(self, trouble: str) -> None:
        with self._lock:
            self._troubles = [*self._troubles[-1:], trouble]

    def _took(self, reading: Reading) -> None:
        with self._lock:
            if self._reading is not None and self._reading.run != reading.run:
                self._history = History()
            self._reading, self._troubles = reading, []
            self._read_at, self._at = time.monotonic(), time.time()
            # A multiple of the interval, so that the points of all peers stand over each other.
            at = self._interval * round((self._read_at - self._began) / self._interval)
            self._history.add(Point(at, reading["round"], reading["train_loss"], reading.score))
