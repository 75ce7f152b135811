"""The inviting end of enrolment: an open port at which one peer, once, gets its certificate."""

import hmac
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.config import CERTIFICATE_DAYS
from gossamer.peers.identity import enrolment, keys
from gossamer.peers.identity.enrolment import CALL_SECONDS, LONGEST_ANSWER, LONGEST_REQUEST, Answer, Receipt, Request
from gossamer.peers.identity.group import address_of, check_name
from gossamer.peers.identity.invitation_code import HALF, Code

MOST_TRIES = 5  # then the invitation ends
MOST_AT_ONCE = 16  # connections
LONGEST_FILES = LONGEST_ANSWER - (1 << 20)  # the rest is for certificates, and to spare


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
        tell: Callable[[str], None] = lambda text: None,
    ):
        """`tell` is told, from another thread, of tries that failed."""
        self.name, self.days, self.group_files, self._directory = check_name(name), days, group_files, certificates
        if not renew and (certificates / f"{name}.pem").exists():
            raise ExperimentError(f"{certificates / name}.pem exists already; --renew makes a new one")
        self._authority = keys.load_authority(certificates, days)
        if sum(map(len, group_files.values())) > LONGEST_FILES:
            raise ExperimentError(
                f"the group's files have more than {LONGEST_FILES >> 20} MB together; send them another way"
            )
        self._tries, self._under_way, self._unconfirmed = 0, 0, 0
        self._failed, self._tell = "", tell
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.joined = False  # it has shown that it has its certificate
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
        self.code = Code(name, reached_at or f"{host}:{port}", secrets.token_bytes(HALF), fingerprint)

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
        if not self.joined and self._tries >= MOST_TRIES:
            raise ExperimentError(
                f"{MOST_TRIES} tries to join as {self.name} failed, so the invitation is over; make another"
            )
        return self.joined

    @property
    def warning(self) -> str:
        """What to look at after it has joined; "" if all is well."""
        if not self._unconfirmed:
            return ""
        return (
            f"a certificate for {self.name} was sent before and not confirmed: if {self.name} did not try more than "
            "once, someone else has the code; then strike it from peers.toml and invite it under another name"
        )

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(CALL_SECONDS)
            with suppress(OSError, ValueError), self._tls.wrap_socket(connection, server_side=True) as secured:
                self._attend(secured, enrolment.receive(secured, Request, LONGEST_REQUEST))
        finally:
            connection.close()
            self._slots.release()

    def _attend(self, connection: ssl.SSLSocket, request: Request) -> None:
        """One try, to its end."""
        with self._lock:
            self._under_way += 1
        failure, signed = "it did not confirm that it has its certificate", None
        try:
            failure, signed = self._check(request)
            enrolment.send(connection, self._answer(failure, signed))
            if signed is not None:
                receipt = enrolment.receive(connection, Receipt, LONGEST_REQUEST)
                failure = self._confirm(receipt, signed)
                enrolment.send(connection, Answer(failure))
            connection.unwrap()
        finally:
            with self._lock:
                self._under_way -= 1
                self._unconfirmed += signed is not None and failure != ""
                if self.joined or (self._tries >= MOST_TRIES and not self._under_way):
                    self._ended.set()  # after the answer is on its way: other connections that end mean nothing
            if failure:
                self._tell(f"a try to join as {self.name} failed: {failure}")

    def _check(self, request: Request) -> tuple[str, x509.Certificate | None]:
        """The certificate for a request, or why there is none."""
        with self._lock:
            if self.joined:
                return "the code was used already", None
            if self._tries >= MOST_TRIES:
                return f"the invitation ended after {MOST_TRIES} tries that failed", None
            self._tries += 1
            left = MOST_TRIES - self._tries
        more = f"{left} tries are left" if left else "that was the last try, and another invitation is needed"
        if not hmac.compare_digest(request.secret, self.code.secret):
            return f"the code is wrong; {more}", None
        if request.name != self.name:
            return f"the code is for {self.name}, and another name was given; {more}", None
        try:
            return f"it did not confirm that it has its certificate; {more}", self._sign(request.signing_request)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            return f"the request for a certificate cannot be used ({error}); {more}", None

    def _answer(self, failure: str, signed: x509.Certificate | None) -> Answer:
        if signed is None:
            return Answer(failure)
        authority = self._authority.certificate.public_bytes(Encoding.PEM)
        return Answer("", signed.public_bytes(Encoding.PEM), authority, self.group_files)

    def _confirm(self, receipt: Receipt, signed: x509.Certificate) -> str:
        """It has joined; or why not."""
        key = signed.public_key()
        assert isinstance(key, keys.PublicKey), "_sign takes no other"
        try:
            key.verify(receipt.signature, signed.public_bytes(Encoding.DER), ECDSA(SHA256()))
        except InvalidSignature:
            return "it did not show that it has the key of its certificate"
        with self._lock:
            if self.joined:
                return "the code was used already"
            self.joined = True
            try:
                keys.write_certificate(self._directory, self.name, signed)
            except OSError as error:
                self._failed = (
                    f"{self.name} has joined, but its certificate cannot be kept in {self._directory}, too: "
                    f"{error.strerror}; only gossamer invite looks at it there, so that nobody is invited twice"
                )
        return ""

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
    return context, enrolment.fingerprint(shown.public_bytes(Encoding.DER))


def _is_everywhere(host: str) -> bool:
    """Is it what one listens on at all addresses, such as 0.0.0.0, where nobody can call?"""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False  # a name


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
