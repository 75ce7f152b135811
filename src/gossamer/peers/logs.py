"""A peer's log: records of the logger "gossamer.peers", and JSON lines on standard error, what native libraries print
there included."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

MAX_LINES_PER_SECOND = 50  # of what others can cause
LOGGER = logging.getLogger("gossamer.peers")
LOGGER.addHandler(logging.NullHandler())  # or logging would print warnings, too
WARNINGS = {
    *("another experiment", "bad frame", "bad heartbeat", "cannot reach", "certificate ends soon", "clocks differ"),
    *("metrics not written", "neighbour lost", "noise is not secret", "not reached by", "not reloaded", "pull failed"),
    *("reached nobody", "refused", "state not saved", "too late"),
}  # of these somebody should know; all else is information


def has_handlers() -> bool:
    """Does the program that this is in handle log records?"""
    logger: logging.Logger | None = LOGGER
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


class Log:
    """Tells each event to `logging`, as a record with `event` and `details`, and writes it as a line of JSON. Whatever
    hinders that, a full disk for one, does not hinder the peer."""

    def __init__(self, descriptor: int | None = 2, **always: Any):  # None: no lines
        self._descriptor = descriptor
        self._always = always
        self._lock = threading.Lock()
        self._second, self._written, self._left_out = 0, 0, 0

    def __call__(self, event: str, **details: Any) -> None:
        level = logging.WARNING if event in WARNINGS else logging.INFO
        if LOGGER.isEnabledFor(level):
            told = {**self._always, **details}
            LOGGER.log(level, "%s %s", event, told, extra={"event": event, "details": told})
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
