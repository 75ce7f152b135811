"""The bytes of the calls between peers, besides the frames themselves."""

import struct
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

CHUNK = 256 * 1024
ENVELOPE = struct.Struct("<IQ")  # round, bytes of the delivery
_BEAT = struct.Struct("<IBd")


class Verdicts:
    """What Put answers."""

    TAKEN = b"\0"
    EARLY = b"\1"  # try again later


class Beat(NamedTuple):
    """What peers tell each other when they ask whether they are there."""

    round: int  # that it is in
    owes: bool  # a message that the other has not taken
    running: bool  # or waiting for the others at the start
    clock: float  # seconds since 1970

    def write(self) -> bytes:
        return _BEAT.pack(self.round, self.owes | self.running << 1, self.clock)

    @classmethod
    def read(cls, content: bytes) -> "Beat":
        """ValueError if it is none."""
        if len(content) != _BEAT.size:
            raise ValueError(f"a beat has {_BEAT.size} bytes, and {len(content)} came")
        round, flags, clock = _BEAT.unpack(content)
        if flags > 3 or not isfinite(clock):
            raise ValueError("a beat has two flags, and a clock that is a number")
        return cls(round, bool(flags & 1), bool(flags & 2), clock)


def pieces(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)
    for start in range(0, len(content), CHUNK):
        yield bytes(view[start : start + CHUNK])


def chunks(round: int, frames: bytes) -> Iterator[bytes]:
    """A delivery as Put takes it."""
    yield ENVELOPE.pack(round, len(frames))
    yield from pieces(frames)
