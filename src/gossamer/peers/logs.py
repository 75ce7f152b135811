"""A peer's log: JSON lines on standard error, what native libraries print there included."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MOST_A_SECOND = 50  # of lines that strangers can cause


class Log:
    """Writes a line an event. Whatever hinders it, a full disk for one, does not hinder the peer."""

    def __init__(self, descriptor: int = 2, **always: Any):
        self._descriptor = descriptor
        self._always = always
        self._lock = threading.Lock()
        self._second, self._written, self._left_out = 0, 0, 0

    def __call__(self, event: str, **details: Any) -> None:
        self._write({"time": round(time.time(), 3), "event": event, **self._always, **details})

    def rate_limited(self, event: str, **details: Any) -> None:
        """What others can cause at will is written so many times a second, and then counted."""
        with self._lock:
            if int(time.monotonic()) != self._second:
                left_out, self._left_out = self._left_out, 0
                self._second, self._written = int(time.monotonic()), 0
                details |= {"left_out": left_out} if left_out else {}
            self._written += 1
            if self._written > MOST_A_SECOND:
                self._left_out += 1
                return
        self(event, **details)

    def _write(self, row: dict[str, Any]) -> None:
        with suppress(OSError), self._lock:
            os.write(self._descriptor, json.dumps(row, default=str).encode() + b"\n")


def take_over_stderr(on_line: Callable[[str], None]) -> int:
    """Hand what anything prints on standard error to `on_line`; the descriptor that standard error was."""
    sys.stderr.flush()
    original = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)

    def read() -> None:
        with os.fdopen(reading, errors="replace") as lines:
            for line in lines:
                if line.strip():
                    on_line(line.strip()[:500])

    threading.Thread(target=read, daemon=True, name="stderr").start()
    return original


def give_back_stderr(original: int) -> None:
    os.dup2(original, 2)
