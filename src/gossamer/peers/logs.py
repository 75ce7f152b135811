"""A peer's log: JSON lines on standard error, what native libraries print there included."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

MAX_LINES_PER_SECOND = 50  # of what others can cause


class Log:
    """Writes one line per event. Whatever hinders it, a full disk for one, does not hinder the peer."""

    def __init__(self, descriptor: int | None = 2, **always: Any):  # None: nowhere
        self._descriptor = descriptor
        self._always = always
        self._lock = threading.Lock()
        self._second, self._written, self._left_out = 0, 0, 0

    def __call__(self, event: str, **details: Any) -> None:
        self._write({"time": round(time.time(), 3), "event": event, **self._always, **details})

    def rate_limited(self, event: str, **details: Any) -> None:
        """What others can cause at will is written so many times per second, and then counted."""
        with self._lock:
            if int(time.monotonic()) != self._second:
                left_out, self._left_out = self._left_out, 0
                self._second, self._written = int(time.monotonic()), 0
                details |= {"left_out": left_out} if left_out else {}
            self._written += 1
            if self._written > MAX_LINES_PER_SECOND:
                self._left_out += 1
                return
        self(event, **details)

    def _write(self, row: dict[str, Any]) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError), self._lock:
            os.write(self._descriptor, json.dumps(row, default=str).encode() + b"\n")


@contextmanager
def taken_over_stderr(**always: Any) -> Iterator[Log]:
    """A log on standard error. What anything else prints there meanwhile, gRPC for one, becomes lines of it."""
    sys.stderr.flush()
    original = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    log = Log(original, **always)

    def read() -> None:
        with os.fdopen(reading, errors="replace") as lines:
            for line in lines:
                if line.strip():
                    log.rate_limited("printed", text=line.strip()[:500])

    threading.Thread(target=read, daemon=True, name="stderr").start()
    try:
        yield log
    finally:
        os.dup2(original, 2)
