"""The bytes of the calls between peers, besides the frames themselves."""

import struct
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

CHUNK = 4 * 2**20  # most deliveries are one message: every further one costs a turn of several threads at both ends
ENVELOPE = struct.Struct("<IQI")  # round, bytes of the delivery, the life of the receiver that it is for
_BEAT = struct.Struct("<IIBdI")


class Verdicts:
    """What Put answers."""

    TAKEN = b"\0"
    EARLY = b"\1"  # try again later
    STALE = b"\2"  # too late to be used
    ANEW = b"\3"  # the receiver has begun a new life, and does not know what it was told; its number follows


class Beat(NamedTuple):
    """What peers tell each other when they ask whether they are there."""

    round: int  # that it is in
    settled: int  # what it sent to the other before this round has been taken, or given up
    running: bool  # or waiting for the others at the start
    clock: float  # seconds since 1970
    life: int  # a random number, another one after a restart: what was told before is forgotten

    def write(self) -> bytes:
        return _BEAT.pack(*self)

    @classmethod
    def read(cls, content: bytes) -> "Beat":
        """ValueError if it is none."""
        if len(content) != _BEAT.size:
            raise ValueError(f"a beat has {_BEAT.size} bytes, and {len(content)} came")
        round, settled, running, clock, life = _BEAT.unpack(content)
        if settled > round or running > 1 or not isfinite(clock):
            raise ValueError("a beat's rounds, flag or clock cannot be")
        return cls(round, settled, bool(running), clock, life)


def pieces(content: bytes | memoryview) -> Iterator[bytes]:
    for start in range(0, len(content), CHUNK):
        yield bytes(content[start : start + CHUNK])


def chunks(round: int, frames: bytes, life: int) -> Iterator[bytes]:
    """A delivery as Put takes it: an envelope and, from the same message on, the frames."""
    yield ENVELOPE.pack(round, len(frames), life) + frames[:CHUNK]
    yield from pieces(memoryview(frames)[CHUNK:])
