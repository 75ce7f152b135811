"""The invited end of enrolment: a peer makes its key, and gets its certificate with a one-time code."""

import hmac
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.identity import enrolment, keys
from gossamer.peers.identity.enrolment import CALL_SECONDS, LONGEST_ANSWER, Answer, Receipt, Request
from gossamer.peers.identity.group import address_of
from gossamer.peers.identity.invitation_code import Code
from gossamer.runs import files


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
    written: list[Path] = []

    def keep(answer: Answer) -> Receipt:
        own, authority = _checked(answer, code, key)
        old = certificates / "ca.pem"
        if old.exists() and old.read_bytes() != answer.authority:
            raise ExperimentError(f"{old} is the authority of another group; name another directory with --certs")
        _check_names(answer.files)
        try:
            certificates.mkdir(mode=0o700, parents=True, exist_ok=True)
            written.extend(keys.write_key(certificates, code.name, key))
            written.extend(keys.write_certificate(certificates, code.name, own))
            written.extend(keys.write_certificate(certificates, "ca", authority))
            written.extend(_keep(answer.files, place))
        except OSError as error:
            raise ExperimentError(
                f"{error.filename} cannot be written: {error.strerror}; mend that, then join again with --renew"
            ) from None
        return Receipt(key.sign(own.public_bytes(Encoding.DER), ECDSA(SHA256())))

    _call(code, Request(code.secret, code.name, request.public_bytes(Encoding.PEM)), keep)
    return written


def _checked(answer: Answer, code: Code, key: keys.Key) -> tuple[x509.Certificate, x509.Certificate]:
    """This peer's certificate and the authority's, if they are what was asked for."""
    try:
        own, authority = (x509.load_pem_x509_certificate(pem) for pem in (answer.certificate, answer.authority))
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        why = str(error) or "the authority did not sign it"
        raise ExperimentError(f"{code.address} answered with a certificate that cannot be used ({why})") from None
    if keys.name_in(own) != code.name or own.public_key() != key.public_key():
        raise ExperimentError(f"{code.address} answered with the certificate of someone else; ask for another code")
    return own, authority


def _check_names(received: dict[str, bytes]) -> None:
    for name in received:
        if Path(name).name != name or not name.endswith(".toml"):
            raise ExperimentError(f"a file named {name[:50]!r} came with the certificate, and nothing was written")


def _keep(received: dict[str, bytes], place: Path) -> list[Path]:
    written = []
    for name, content in received.items():
        path = place / name
        if path.exists() and path.read_bytes() != content:
            path = place / f"{name}.received"
        files.replace(path, content)
        written.append(path)
    return written


def _call(code: Code, request: Request, keep: Callable[[Answer], Receipt]) -> None:
    """Ask for the certificate, have it kept, and say so."""
    host, port = address_of(code.address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the code says what certificate it must be
    kept = False
    try:
        with (
            socket.create_connection((host.strip("[]"), port), CALL_SECONDS) as connection,
            context.wrap_socket(connection) as secured,
        ):
            shown = secured.getpeercert(binary_form=True) or b""
            if not hmac.compare_digest(enrolment.fingerprint(shown), code.fingerprint):
                raise ExperimentError(
                    f"what answers at {code.address} did not make this code, so nothing was sent: the code is of an "
                    "earlier invitation, the address is another's, or someone stands in between; ask for another code"
                )
            answer = _exchange(secured, request)
            if not answer.error:
                receipt = keep(answer)
                kept = True
                answer = _exchange(secured, receipt)
    except ExperimentError:
        raise
    except (OSError, ValueError) as error:
        if kept:
            raise ExperimentError(
                f"the certificate of {code.name} is here and good, but {code.address} did not hear of it "
                f"({_words(error)}); tell who invited you that {code.name} has joined"
            ) from None
        raise ExperimentError(_unreached(code.address, error)) from None
    if answer.error:
        raise ExperimentError(f"{code.address} refused: {answer.error[:200]}")


def _exchange(connection: ssl.SSLSocket, told: Request | Receipt) -> Answer:
    enrolment.send(connection, told)
    return enrolment.receive(connection, Answer, LONGEST_ANSWER)


def _unreached(address: str, error: Exception) -> str:
    """Why an invitation cannot be followed, as far as can be told from here."""
    if isinstance(error, ConnectionRefusedError):
        return (
            f"nobody listens at {address}: the invitation was used, has expired or was ended, or that is not where "
            "gossamer invite runs; ask for another code"
        )
    if isinstance(error, socket.gaierror):
        return f"no machine is known by the name in {address}; ask for a code with its number in the place of the name"
    if isinstance(error, TimeoutError):
        return f"{address} does not answer: a firewall is in between, or the address is not the inviter's"
    if isinstance(error, ssl.SSLError):
        return f"what listens at {address} is not gossamer invite; ask for another code"
    return f"the connection to {address} failed ({_words(error)}); is gossamer invite still running there?"


def _words(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
