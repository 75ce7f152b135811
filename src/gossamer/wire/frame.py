"""The envelope of a message: who sent it, in which round of which run, and whether it arrived whole.

docs/wire-format.md gives it byte by byte.
"""

import struct
from collections.abc import Container
from typing import NamedTuple

import numpy as np
import xxhash

from gossamer.wire.bits import PADDING, Bytes

MAGIC = b"Gm"
MAJOR, MINOR = 1, 0  # a change that an older reader cannot read makes a new major
HEADER = struct.Struct("<2sBBQIIII")  # magic, major, minor, run, schema, sender, round, payload bytes
CHECKSUM = struct.Struct("<Q")  # xxh3-64 of all before it
OVERHEAD = HEADER.size + CHECKSUM.size
MAX_PAYLOAD = 2**32 - 1


class WireError(ValueError):
    """What arrived is not a message of this run. The sentence says why."""


class Frame(NamedTuple):
    """A frame that was checked, all but what its payload says."""

    schema: int
    minor: int
    sender: int
    round: int  # counted in exchanges
    content: bytes  # all of it

    def payload(self) -> Bytes:
        """The payload, with the checksum and PADDING zeros behind it."""
        padded = bytearray().join((self.content, bytes(PADDING)))
        return np.frombuffer(padded, np.uint8, offset=HEADER.size)


def start_frame(num_payload: int, run_id: int, schema: int, sender: int, round: int) -> Bytes:
    """A buffer that begins with the header of a frame, with room behind the frame for writers of whole words."""
    if not 0 <= sender < 2**32 or not 0 <= round < 2**32:
        raise ValueError(f"sender {sender} and round {round} must be from 0 to 2^32 - 1")
    if num_payload > MAX_PAYLOAD:
        raise ValueError(f"a message of {num_payload} bytes was given; a frame takes less than 4 GiB")
    out = np.empty(OVERHEAD + num_payload + PADDING, np.uint8)
    HEADER.pack_into(out.data, 0, MAGIC, MAJOR, MINOR, run_id, schema, sender, round, num_payload)
    return out


def finish_frame(out: Bytes, num_payload: int) -> bytes:
    """The frame, its checksum set, once the payload is written."""
    end = HEADER.size + num_payload
    CHECKSUM.pack_into(out.data, end, xxhash.xxh3_64_intdigest(out.data[:end]))
    return out[: end + CHECKSUM.size].tobytes()


def check_frame(content: bytes, run_id: int, schemas: Container[int]) -> Frame:
    """The frame that these bytes are; WireError if they are not one of this run and of these schemas."""
    num_payload = len(content) - OVERHEAD
    if num_payload < 0:
        raise WireError(f"The frame has {len(content)} bytes, and an empty one has {OVERHEAD}.")
    magic, major, minor, run, schema, sender, round, length = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise WireError("The bytes do not start as a Gossamer frame does.")
    if major != MAJOR:
        raise WireError(f"The frame is of wire format {major}.{minor}, and this version reads {MAJOR}.x.")
    if length != num_payload:
        raise WireError(f"The frame says that its payload has {length} bytes, and {num_payload} are there.")
    end = HEADER.size + num_payload
    if CHECKSUM.unpack_from(content, end)[0] != xxhash.xxh3_64_intdigest(memoryview(content)[:end]):
        raise WireError("The checksum does not fit: the frame was damaged on its way.")
    if run != run_id:
        raise WireError(f"The frame belongs to run {run:016x}, and this is run {run_id:016x}.")
    if schema not in schemas:
        raise WireError("The frame's parts are not those of this algorithm and model.")
    return Frame(schema, minor, sender, round, content)
