"""The bytes of the calls between peers, besides the frames themselves."""

import struct
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

CHUNK = 4 * 2**20  # most deliveries are one message: every further one costs a turn of several threads at both ends
ENVELOPE_KEY = "delivery-bin"  # of the call's metadata
GREETING_KEY = "greeting-bin"  # of the metadata of a Beat, and of its answer
TO_KEY = "to"  # of the metadata of a Connect: the name of whom to connect with
_ENVELOPE = struct.Struct("<IQI")
_HEARTBEAT = struct.Struct("<IIBdI")
OPTIONS = [  # of gRPC, at both ends
    ("grpc.keepalive_time_ms", 3000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.http2.lookahead_bytes", 1 << 22),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.experimental.tcp_min_read_chunk_size", 1 << 18),
    ("grpc.experimental.tcp_read_chunk_size", 1 << 20),
    ("grpc.max_receive_message_length", CHUNK + 1024),
]


class PutAnswer:
    """The first byte of Put's answer; a heartbeat follows it."""

    TAKEN = b"\0"
    EARLY = b"\1"  # try again later
    STALE = b"\2"  # too late to be used
    NEW_INCARNATION = b"\3"  # the receiver has begun a new incarnation, and has forgotten what it was sent


class Heartbeat(NamedTuple):
    """What peers tell each other when they ask whether they are there."""

    round: int  # that it is in
    settled: int  # what it sent to the other before this round has been taken, or given up
    running: bool  # or waiting for the others at the start
    clock: float  # seconds since 1970
    incarnation: int  # a random number, another one after a restart: what came before is forgotten
    gets_through: bool = True  # what it sends to the other; if not, there is nothing to wait for

    def write(self) -> bytes:
        flags = self.running | (not self.gets_through) << 1
        return _HEARTBEAT.pack(self.round, self.settled, flags, self.clock, self.incarnation)

    @classmethod
    def read(cls, content: bytes) -> "Heartbeat":
        """ValueError if it is none."""
        if len(content) != _HEARTBEAT.size:
            raise ValueError(f"a heartbeat has {_HEARTBEAT.size} bytes, and {len(content)} came")
        round, settled, flags, clock, incarnation = _HEARTBEAT.unpack(content)
        if settled > round or flags > 3 or not isfinite(clock):
            raise ValueError("a heartbeat's rounds, flags or clock cannot be")
        return cls(round, settled, bool(flags & 1), clock, incarnation, not flags & 2)


class Envelope(NamedTuple):
    """What a delivery is. It goes before it, in the metadata of the call: to add it there, no frame is copied."""

    round: int
    num_bytes: int  # of the frames that follow
    incarnation: int  # of the receiver that it is for
    heartbeat: Heartbeat  # of the sender: peers that exchange messages need not ask each other whether they are there

    def write(self) -> bytes:
        return _ENVELOPE.pack(self.round, self.num_bytes, self.incarnation) + self.heartbeat.write()

    @classmethod
    def read(cls, content: bytes) -> "Envelope":
        """ValueError if it is none."""
        if len(content) < _ENVELOPE.size:
            raise ValueError(f"an envelope of {len(content)} bytes came")
        round, num_bytes, incarnation = _ENVELOPE.unpack_from(content)
        return cls(round, num_bytes, incarnation, Heartbeat.read(content[_ENVELOPE.size :]))


def pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), CHUNK):
        yield content[start : start + CHUNK]
