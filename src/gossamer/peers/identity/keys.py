"""Keys: a private authority, and one certificate per peer.

    ca.pem, ca.key       the authority; ca.key stays with whoever lets peers in
    NAME.pem, NAME.key   a peer's; it needs these two and ca.pem, and nothing else

The certificate's name is the peer's identity: at both ends of every connection each side must show a certificate of
the group's own authority, and its name must be that of a listed peer. Certificates end soon, because a list from which
a peer can be struck works only where the list is; `renew` makes new ones.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.config import CERTIFICATE_DAYS
from gossamer.peers.identity.group import check_name

AUTHORITY_DAYS = 365
_AUTHORITY = "Gossamer group authority"
_EARLY = timedelta(hours=1)  # clocks differ
_LONGEST_FILE = 1 << 16

Key = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


@dataclass(frozen=True)
class Credentials:
    """What a peer shows, and whom it believes, as PEM."""

    certificate: bytes
    key: bytes
    authority: bytes


class Authority(NamedTuple):
    """Who lets peers in: what all of a group believe."""

    certificate: x509.Certificate
    key: Key


def make(directory: Path, names: list[str], days: int = CERTIFICATE_DAYS, renew: bool = False) -> list[Path]:
    """Certificates for these peers, and the authority if there is none yet; the files that were written."""
    for name in names:
        check_name(name)
    directory.mkdir(parents=True, exist_ok=True)
    if not renew and (there := [name for name in names if (directory / f"{name}.pem").exists()]):
        raise ExperimentError(f"{directory / there[0]}.pem exists already; renew it with --renew")
    written: list[Path] = []
    if not (directory / "ca.key").exists():
        if (directory / "ca.pem").exists():
            raise ExperimentError(
                f"{directory} has ca.pem and not ca.key; make certificates where the authority's key is"
            )
        written += _write(directory, "ca", *_authority(days))
    authority = load_authority(directory, days)
    for name in names:
        key = new_key()
        written += _write(directory, name, key, certificate(name, key.public_key(), days, authority))
    return written


def load_authority(directory: Path, days: int) -> Authority:
    """The authority of a directory, if it can sign certificates for so many days."""
    own = x509.load_pem_x509_certificate(_read(directory / "ca.pem"))
    key = load_pem_private_key(_read(directory / "ca.key"), None)
    assert isinstance(key, Key), "the authority's key is one that we made"
    if own.not_valid_after_utc <= datetime.now(UTC) + timedelta(days=days):
        raise ExperimentError(
            f"the authority of {directory} ends on {own.not_valid_after_utc:%Y-%m-%d}, before a certificate of "
            f"{days} days would; take fewer --days, or begin a new directory"
        )
    return Authority(own, key)


def load(directory: Path, name: str) -> Credentials:
    """A peer's credentials, if they can be used now."""
    found = Credentials(*(_read(directory / file) for file in (f"{name}.pem", f"{name}.key", "ca.pem")))
    for path in (directory / f"{name}.key", directory / "ca.key"):
        with suppress(FileNotFoundError):
            if os.name == "posix" and path.stat().st_mode & 0o077:
                raise ExperimentError(f"others can read {path}; chmod 600 it")
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate)
        x509.load_pem_x509_certificate(found.authority)
        key = load_pem_private_key(found.key, None)
    except (ValueError, TypeError) as error:
        raise ExperimentError(f"the keys of {name} in {directory} are damaged ({error}); make new ones") from None
    if key.public_key() != certificate.public_key():
        raise ExperimentError(
            f"{directory / name}.key is not the key of {directory / name}.pem; copy both anew from where they were made"
        )
    if name_in(certificate) != name:
        raise ExperimentError(f"{directory / name}.pem is the certificate of {name_in(certificate)}, not of {name}")
    now, first, last = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= now <= last:
        raise ExperimentError(
            f"the certificate of {name} is good from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, and this "
            f"machine's clock says {now:%Y-%m-%d %H:%M}; renew it with gossamer keys, or set the clock"
        )
    return found


def name_in(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def seconds_left(credentials: Credentials) -> float:
    end = x509.load_pem_x509_certificate(credentials.certificate).not_valid_after_utc
    return (end - datetime.now(UTC)).total_seconds()


def _authority(days: int) -> tuple[Key, x509.Certificate]:
    key, name = new_key(), _name(_AUTHORITY)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = _builder(name, name, key.public_key(), max(AUTHORITY_DAYS, 2 * days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return key, builder.add_extension(usage, critical=True).sign(key, SHA256())


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(name: str, key: PublicKey, days: int, authority: Authority) -> x509.Certificate:
    """For the peer of this name, who has the private half of the key."""
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = _builder(_name(name), authority.certificate.subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.add_extension(usages, critical=False).sign(authority.key, SHA256())


def _builder(subject: x509.Name, issuer: x509.Name, key: PublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _EARLY).not_valid_after(now + timedelta(days=days))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _write(directory: Path, name: str, key: Key, own: x509.Certificate) -> list[Path]:
    return write_key(directory, name, key) + write_certificate(directory, name, own)


def write_key(directory: Path, name: str, key: Key) -> list[Path]:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return [_write_file(directory / f"{name}.key", private, 0o600)]


def write_certificate(directory: Path, name: str, own: x509.Certificate) -> list[Path]:
    return [_write_file(directory / f"{name}.pem", own.public_bytes(Encoding.PEM), 0o644)]


def _write_file(path: Path, content: bytes, mode: int) -> Path:
    partial = path.with_name(path.name + ".partial")
    with suppress(FileNotFoundError):
        partial.unlink()
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    os.replace(partial, path)
    return path


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_FILE)
    except OSError as error:
        how = "gossamer join CODE fetches it, or gossamer keys makes it where the authority is"
        raise ExperimentError(f"{path} cannot be read: {error.strerror}; {how}") from None
