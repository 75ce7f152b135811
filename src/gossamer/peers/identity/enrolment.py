"""Enrolment: a peer gets its certificate with a one-time code, and its key never leaves it.

    inviter   opens a port, makes a throw-away TLS certificate and a secret, and tells the code
    peer      connects, checks that certificate against the code, and only then sends the secret, with a request for
              a certificate for the key that it has just made
    inviter   checks secret and name, signs, answers with the certificate, the authority's, and the group's files
    peer      checks and keeps them, and signs its certificate with its key, to show that it has both
    inviter   notes that it has joined; ends

The code has 256 bits: the secret, and the first half of the SHA-256 of the throw-away certificate. Who listens on the
way cannot read it, who stands in between is found out before anything is sent, and who guesses has five tries at 128
bits. A try fails, too, if it is for another name or ends before the last step: the invitation stays open for the next.
The code itself must travel where nobody else reads it, such as by telephone.
"""

import hashlib
import ssl
import struct
import time
from typing import TypeVar

import msgspec

from gossamer.peers.identity.invitation_code import HALF

CALL_SECONDS = 10.0
LONGEST_REQUEST = 1 << 13
LONGEST_ANSWER = 1 << 22
_LENGTH = struct.Struct("<I")
_Told = TypeVar("_Told", bound=msgspec.Struct)


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a peer that was invited asks for."""

    secret: bytes
    name: str
    signing_request: bytes  # PEM


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That it has its certificate, and the key to it."""

    signature: bytes  # of the certificate, by that key


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it gets; an error in words if it does not."""

    error: str = ""
    certificate: bytes = b""  # PEM, as the next
    authority: bytes = b""
    files: dict[str, bytes] = {}  # of the group, by name


def fingerprint(certificate: bytes) -> bytes:
    """What a code says of the certificate that the inviter's port shows."""
    return hashlib.sha256(certificate).digest()[:HALF]


def send(connection: ssl.SSLSocket, told: msgspec.Struct) -> None:
    content = msgspec.msgpack.encode(told)
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive(connection: ssl.SSLSocket, kind: type[_Told], longest: int) -> _Told:
    """What the other end sends, which must be of this kind; ValueError if it is not, OSError if it is gone."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > longest:
        raise ValueError(f"{length} bytes were announced, and at most {longest} can be")
    return msgspec.msgpack.decode(_exactly(connection, length), type=kind)


def _exactly(connection: ssl.SSLSocket, length: int) -> bytes:
    """Within CALL_SECONDS in all: one byte now and then is not a sign of life."""
    content, until = bytearray(), time.monotonic() + CALL_SECONDS
    while len(content) < length:
        if time.monotonic() > until:
            raise ValueError("it took too long")
        if not (piece := connection.recv(min(1 << 16, length - len(content)))):
            raise ValueError("the connection ended early")
        content += piece
    return bytes(content)
