"""Enrolment: a peer gets its certificate with a one-time code, and its key never leaves it.

    inviter   opens a port, makes a throw-away TLS certificate and a secret, and tells the code
    peer      connects, checks that certificate against the code, and only then sends the secret, with a request for
              a certificate for the key that it has just made
    inviter   checks the secret, signs, answers with the certificate, the authority's, and the group's files; ends

The code is `NAME@HOST:PORT/` and 256 bits: the secret, and the first half of the SHA-256 of the throw-away certificate.
Who listens on the way cannot read it, who stands in between is found out before anything is sent, and who guesses has
five tries at 128 bits. The code itself must travel where nobody else reads it, such as by telephone.
"""

import base64
import hashlib
import hmac
import re
import secrets
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.config import CERTIFICATE_DAYS
from gossamer.peers.identity import keys
from gossamer.peers.identity.group import address_of, check_name
from gossamer.runs import files

MOST_WRONG = 5  # tries with a wrong secret, then the invitation ends
MOST_AT_ONCE = 16  # connections
CALL_SECONDS = 10.0
LONGEST_REQUEST = 1 << 13
LONGEST_ANSWER = 1 << 22
LONGEST_FILES = LONGEST_ANSWER - (1 << 20)  # the rest is for certificates, and to spare
_HALF = 16  # bytes of the secret, and of the fingerprint
_CODE = re.compile(r"(?P<name>[^@/]+)@(?P<address>[^/]+)/(?P<key>[a-z2-7]{52})")
_LENGTH = struct.Struct("<I")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a peer that was invited asks for."""

    secret: bytes
    signing_request: bytes  # PEM


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it gets; an error in words if it does not."""

    error: str = ""
    certificate: bytes = b""  # PEM, as the next
    authority: bytes = b""
    files: dict[str, bytes] = {}  # of the group, by name


@dataclass(frozen=True)
class Code:
    """What the inviter tells, and the invited types."""

    name: str
    address: str
    secret: bytes
    fingerprint: bytes  # of the certificate that the inviter's port shows

    def __str__(self) -> str:
        key = base64.b32encode(self.secret + self.fingerprint).decode().rstrip("=").lower()
        return f"{self.name}@{self.address}/{key}"

    @classmethod
    def read(cls, text: str) -> "Code":
        found = _CODE.fullmatch(text.strip())
        if not found:
            raise ExperimentError(
                "a code is NAME@HOST:PORT/ and 52 letters and digits, as gossamer invite prints it; it was not that"
            )
        both = base64.b32decode(found["key"].upper() + "====")
        address_of(found["address"])
        return cls(check_name(found["name"]), found["address"], both[:_HALF], both[_HALF:])


# -- the inviter -------------------------------------------------------------------------------------------------------


class Invitation:
    """An open port at which one peer, once, gets its certificate. Use it as a context, and wait in it."""

    def __init__(
        self,
        name: str,
        certificates: Path,
        listen: str,
        group_files: dict[str, bytes],
        days: int = CERTIFICATE_DAYS,
        renew: bool = False,
        reached_at: str | None = None,
    ):
        self.name, self.days, self.group_files, self._directory = check_name(name), days, group_files, certificates
        if not renew and (certificates / f"{name}.pem").exists():
            raise ExperimentError(f"{certificates / name}.pem exists already; --renew makes a new one")
        self._authority = keys.load_authority(certificates, days)
        if sum(map(len, group_files.values())) > LONGEST_FILES:
            raise ExperimentError(
                f"the group's files have more than {LONGEST_FILES >> 20} MB together; send them another way"
            )
        self._wrong, self._failed = 0, ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.joined = False
        self._tls, fingerprint = _throw_away()
        host, port = address_of(listen)
        if reached_at is None and _is_everywhere(host):
            raise ExperimentError(f"{host} is every address of this machine; --reached-at names the one to come to")
        address_of(reached_at or listen)
        try:
            self._socket = socket.create_server((host.strip("[]"), port), family=_family(host))
        except OSError as error:
            raise ExperimentError(
                f"{listen} cannot be listened on: {error.strerror}; --at names another address"
            ) from None
        self._socket.settimeout(0.2)
        port = self._socket.getsockname()[1]
        self.code = Code(name, reached_at or f"{host}:{port}", secrets.token_bytes(_HALF), fingerprint)

    def __enter__(self) -> "Invitation":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def wait(self, seconds: float) -> bool:
        """Until the peer has joined, or the time is over; whether it has."""
        until = time.monotonic() + seconds
        while not self._ended.is_set() and time.monotonic() < until:
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            if not self._slots.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        if self._failed:
            raise ExperimentError(self._failed)
        if self._wrong >= MOST_WRONG:
            raise ExperimentError(
                f"someone tried {MOST_WRONG} wrong codes, so the invitation of {self.name} is over; make another"
            )
        return self.joined

    def _serve(self, connection: socket.socket) -> None:
        answer = Answer()
        try:
            connection.settimeout(CALL_SECONDS)
            with suppress(OSError, ValueError), self._tls.wrap_socket(connection, server_side=True) as secured:
                request = msgspec.msgpack.decode(_receive(secured, LONGEST_REQUEST), type=Request)
                answer = self._answer(request)
                _send(secured, msgspec.msgpack.encode(answer))
                secured.unwrap()
        finally:
            connection.close()
            self._slots.release()
            if answer.certificate or self._failed or self._wrong >= MOST_WRONG:
                self._ended.set()  # after the answer is on its way: other connections that end mean nothing

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            if self.joined or self._wrong >= MOST_WRONG:
                return Answer("this invitation is over")
            if not hmac.compare_digest(request.secret, self.code.secret):
                self._wrong += 1
                return Answer("the code is wrong")
            try:
                signed = self._sign(request.signing_request)
            except (ValueError, TypeError, UnsupportedAlgorithm) as error:
                return Answer(f"the request for a certificate cannot be used: {error}")
            try:
                keys.write_certificate(self._directory, self.name, signed)
            except OSError as error:
                self._failed = f"{self._directory} cannot be written: {error.strerror}; mend that, and invite anew"
                return Answer("the certificate could not be kept there")
            self.joined = True
        authority = self._authority.certificate.public_bytes(Encoding.PEM)
        return Answer("", signed.public_bytes(Encoding.PEM), authority, self.group_files)

    def _sign(self, pem: bytes) -> x509.Certificate:
        """Nothing of what the request says is taken but the key."""
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        if not isinstance(key, keys.PublicKey) or key.curve.name != "secp256r1" or not request.is_signature_valid:
            raise ValueError("it must be signed by its own key, of the curve P-256")
        return keys.certificate(self.name, key, self.days, self._authority)


def _throw_away() -> tuple[ssl.SSLContext, bytes]:
    """TLS with a certificate of this invitation alone, and its fingerprint."""
    key, now = keys.new_key(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Gossamer invitation")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
    shown = builder.sign(key, SHA256())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with TemporaryDirectory() as directory:  # only this user can read it, and ssl takes files alone
        keys.write_key(Path(directory), "shown", key)
        keys.write_certificate(Path(directory), "shown", shown)
        context.load_cert_chain(Path(directory) / "shown.pem", Path(directory) / "shown.key")
    return context, _fingerprint(shown.public_bytes(Encoding.DER))


def _fingerprint(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()[:_HALF]


# -- the invited -------------------------------------------------------------------------------------------------------


def join(code: Code, certificates: Path, place: Path, renew: bool = False) -> list[Path]:
    """Get the certificate that was promised; the files that were written.

    The key is made here and goes nowhere. The group's files go to `place`, unless others of their names are there: then
    beside them, with `.received` at their end.
    """
    if not renew and (there := [end for end in ("key", "pem") if (certificates / f"{code.name}.{end}").exists()]):
        raise ExperimentError(f"{certificates / code.name}.{there[0]} exists already; --renew replaces it")
    key = keys.new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, code.name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256())
    answer = _call(code, Request(code.secret, request.public_bytes(Encoding.PEM)))
    try:
        own, authority = (x509.load_pem_x509_certificate(pem) for pem in (answer.certificate, answer.authority))
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        why = str(error) or "the authority did not sign it"
        raise ExperimentError(f"{code.address} answered with a certificate that cannot be used ({why})") from None
    if keys.name_in(own) != code.name or own.public_key() != key.public_key():
        raise ExperimentError(f"{code.address} answered with the certificate of someone else; ask for another code")
    old = certificates / "ca.pem"
    if old.exists() and old.read_bytes() != answer.authority:
        raise ExperimentError(f"{old} is the authority of another group; name another directory with --certs")
    certificates.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = keys.write_key(certificates, code.name, key) + keys.write_certificate(certificates, code.name, own)
    written += keys.write_certificate(certificates, "ca", authority)
    return written + _keep(answer.files, place)


def _keep(received: dict[str, bytes], place: Path) -> list[Path]:
    written = []
    for name, content in received.items():
        if Path(name).name != name or not name.endswith(".toml"):
            raise ExperimentError(f"a file named {name[:50]!r} came with the certificate, and was not written")
        path = place / name
        if path.exists() and path.read_bytes() != content:
            path = place / f"{name}.received"
        files.replace(path, content)
        written.append(path)
    return written


def _call(code: Code, request: Request) -> Answer:
    host, port = address_of(code.address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the code says what certificate it must be
    try:
        with (
            socket.create_connection((host.strip("[]"), port), CALL_SECONDS) as connection,
            context.wrap_socket(connection) as secured,
        ):
            shown = secured.getpeercert(binary_form=True) or b""
            if not hmac.compare_digest(_fingerprint(shown), code.fingerprint):
                raise ExperimentError(
                    f"{code.address} is not the one that made this code; nothing was sent. Check the code, then the way"
                )
            _send(secured, msgspec.msgpack.encode(request))
            answer = msgspec.msgpack.decode(_receive(secured, LONGEST_ANSWER), type=Answer)
    except OSError as error:
        why = error.strerror or str(error)
        raise ExperimentError(
            f"{code.address} cannot be reached ({why}); is gossamer invite still running there, and the port open?"
        ) from None
    except ValueError as error:
        raise ExperimentError(f"{code.address} answered what cannot be read ({error})") from None
    if answer.error:
        raise ExperimentError(f"{code.address} refused: {answer.error[:200]}; ask for another code")
    return answer


# -- bytes -------------------------------------------------------------------------------------------------------------


def _send(connection: ssl.SSLSocket, content: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(content)) + content)


def _receive(connection: ssl.SSLSocket, longest: int) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > longest:
        raise ValueError(f"{length} bytes were announced, and at most {longest} can be")
    return _exactly(connection, length)


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


def _is_everywhere(host: str) -> bool:
    """Is it what one listens on at all addresses, such as 0.0.0.0, where nobody can call?"""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False  # a name


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
