"""Enrolment: a one-time code brings a certificate to a peer, and to nobody else."""

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.identity import enrolment, keys
from gossamer.peers.identity.enrolment import MOST_WRONG, Code, Invitation, Request, join

FILES = {"peers.toml": b'run = "r"\n'}


@contextmanager
def inviting(tmp_path: Path, name: str = "bob", renew: bool = False) -> Iterator[Invitation]:
    if not (tmp_path / "authority").exists():
        keys.make(tmp_path / "authority", ["alice"])
    with Invitation(name, tmp_path / "authority", "127.0.0.1:0", FILES, renew=renew) as invitation:
        waiting = threading.Thread(target=lambda: invitation.wait(30))
        waiting.start()
        yield invitation
        invitation._ended.set()
        waiting.join()


def test_a_code_brings_a_certificate_for_a_key_that_never_left(tmp_path: Path) -> None:
    with inviting(tmp_path) as invitation:
        code = Code.read(str(invitation.code))
        assert code == invitation.code
        written = join(code, tmp_path / "bob", tmp_path)
    assert {path.name for path in written} == {"bob.key", "bob.pem", "ca.pem", "peers.toml"}
    keys.load(tmp_path / "bob", "bob")  # name, key, validity and permissions are right
    own = x509.load_pem_x509_certificate((tmp_path / "bob" / "bob.pem").read_bytes())
    own.verify_directly_issued_by(x509.load_pem_x509_certificate((tmp_path / "authority" / "ca.pem").read_bytes()))
    assert not (tmp_path / "authority" / "bob.key").exists()
    assert (tmp_path / "peers.toml").read_bytes() == FILES["peers.toml"]


def test_a_code_works_once(tmp_path: Path) -> None:
    with inviting(tmp_path) as invitation:
        join(invitation.code, tmp_path / "bob", tmp_path)
        with pytest.raises(ExperimentError, match=r"cannot be reached|this invitation is over|cannot be read"):
            join(invitation.code, tmp_path / "mallory", tmp_path)
    assert not (tmp_path / "mallory").exists()


def test_wrong_secrets_end_the_invitation(tmp_path: Path) -> None:
    keys.make(tmp_path / "authority", ["alice"])
    found: list[Exception] = []

    def wait() -> None:
        try:
            invitation.wait(30)
        except ExperimentError as error:
            found.append(error)

    with Invitation("bob", tmp_path / "authority", "127.0.0.1:0", {}) as invitation:
        waiting = threading.Thread(target=wait)
        waiting.start()
        for _ in range(MOST_WRONG):
            with pytest.raises(ExperimentError, match="refused: the code is wrong"):
                join(replace(invitation.code, secret=bytes(16)), tmp_path / "mallory", tmp_path)
        waiting.join()
        assert not invitation.joined
    assert "5 wrong codes" in str(found[0])


def test_nothing_is_sent_to_one_that_did_not_make_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(enrolment, "_send", lambda connection, content: sent.append(content))
    told = "is not the one that made this code; nothing was sent"
    with inviting(tmp_path) as invitation, pytest.raises(ExperimentError, match=told):
        join(replace(invitation.code, fingerprint=bytes(16)), tmp_path / "bob", tmp_path)
    assert not sent


def test_only_the_key_of_a_request_is_taken(tmp_path: Path) -> None:
    with inviting(tmp_path) as invitation:
        key = keys.new_key()
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "alice")])
        builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        request = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
        weak = x509.CertificateSigningRequestBuilder().subject_name(subject)
        refused = invitation._answer(
            Request(
                invitation.code.secret,
                weak.sign(rsa.generate_private_key(65537, 2048), SHA256()).public_bytes(Encoding.PEM),
            )
        )
        assert "curve P-256" in refused.error
        answer = invitation._answer(Request(invitation.code.secret, request))
    own = x509.load_pem_x509_certificate(answer.certificate)
    assert keys.name_in(own) == "bob"
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, msgspec.msgpack.encode({"secret": 1}), b"\x00" * 9000])
def test_noise_at_the_port_ends_nothing(tmp_path: Path, content: bytes) -> None:
    with inviting(tmp_path) as invitation:
        host, port = invitation.code.address.split(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((host, int(port))) as plain:
            plain.sendall(content)
        with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as secured:
            secured.sendall(len(content).to_bytes(4, "little") + content)
            assert secured.recv(10) == b""
        join(invitation.code, tmp_path / "bob", tmp_path)


def test_renewing_replaces_key_and_certificate_and_nothing_else_is_overwritten(tmp_path: Path) -> None:
    with inviting(tmp_path) as invitation:
        join(invitation.code, tmp_path / "bob", tmp_path)
    before = (tmp_path / "bob" / "bob.key").read_bytes()
    (tmp_path / "peers.toml").write_text("mine")
    with pytest.raises(ExperimentError, match=r"bob\.pem exists already; --renew"):
        Invitation("bob", tmp_path / "authority", "127.0.0.1:0", FILES)
    with inviting(tmp_path, renew=True) as invitation:
        with pytest.raises(ExperimentError, match="exists already; --renew replaces it"):
            join(invitation.code, tmp_path / "bob", tmp_path)
        join(invitation.code, tmp_path / "bob", tmp_path, renew=True)
    assert (tmp_path / "bob" / "bob.key").read_bytes() != before
    assert (tmp_path / "peers.toml").read_text() == "mine"
    assert (tmp_path / "peers.toml.received").read_bytes() == FILES["peers.toml"]


def test_another_groups_authority_is_not_replaced(tmp_path: Path) -> None:
    keys.make(tmp_path / "bob", ["carol"])
    with inviting(tmp_path) as invitation, pytest.raises(ExperimentError, match="the authority of another group"):
        join(invitation.code, tmp_path / "bob", tmp_path)


@pytest.mark.parametrize("text", ["", "bob", "bob@host/abc", "bob@host:1/" + "a" * 51, "../x@host:1/" + "a" * 52])
def test_a_code_that_is_none_gets_a_sentence(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"a code is NAME@HOST:PORT/|an address is written|a peer's name is"):
        Code.read(text)


def test_files_that_come_along_stay_where_they_belong(tmp_path: Path) -> None:
    for name in ("../peers.toml", "peers.py", "/etc/x.toml"):
        with pytest.raises(ExperimentError, match=re.escape(f"{name!r}")):
            enrolment._keep({name: b""}, tmp_path)


def test_the_inviter_stays_until_its_answer_is_sent_whoever_else_hangs_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, answering, go_on = enrolment._send, threading.Event(), threading.Event()

    def slowly(connection: ssl.SSLSocket, content: bytes) -> None:
        if connection.server_side:
            answering.set()
            go_on.wait(10)
        send(connection, content)

    monkeypatch.setattr(enrolment, "_send", slowly)
    with inviting(tmp_path) as invitation:
        host, port = invitation.code.address.split(":")
        with socket.create_connection((host, int(port))):
            joining = threading.Thread(target=join, args=(invitation.code, tmp_path / "bob", tmp_path))
            joining.start()
            assert answering.wait(10)
        assert not invitation._ended.wait(0.5)
        go_on.set()
        joining.join()
        assert invitation._ended.wait(10)
    keys.load(tmp_path / "bob", "bob")


def test_a_certificate_that_cannot_be_kept_ends_the_invitation_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.make(tmp_path / "authority", ["alice"])
    found: list[str] = []

    def wait() -> None:
        try:
            invitation.wait(30)
        except ExperimentError as error:
            found.append(str(error))

    with Invitation("bob", tmp_path / "authority", "127.0.0.1:0", {}) as invitation:
        (tmp_path / "authority" / "bob.pem").mkdir()  # where the certificate would go
        waiting = threading.Thread(target=wait)
        waiting.start()
        with pytest.raises(ExperimentError, match="refused: the certificate could not be kept there"):
            join(invitation.code, tmp_path / "bob", tmp_path)
        waiting.join()
    assert "authority cannot be written: Is a directory; mend that, and invite anew" in found[0]


def test_a_certificate_that_the_authority_did_not_sign_is_refused(tmp_path: Path) -> None:
    keys.make(tmp_path / "other", ["carol"])
    with inviting(tmp_path) as invitation:
        other = keys.load_authority(tmp_path / "other", 30)
        invitation._authority = invitation._authority._replace(key=other.key)
        with pytest.raises(ExperimentError, match=r"cannot be used \(the authority did not sign it\)"):
            join(invitation.code, tmp_path / "bob", tmp_path)
    assert not (tmp_path / "bob").exists()


def test_an_invitation_that_nobody_could_follow_is_refused(tmp_path: Path) -> None:
    keys.make(tmp_path / "authority", ["alice"])
    for listen in ("0.0.0.0:0", "[::]:0"):
        with pytest.raises(ExperimentError, match="is every address of this machine; --reached-at names"):
            Invitation("bob", tmp_path / "authority", listen, FILES)
    with pytest.raises(ExperimentError, match='an address is written "host:port"'):
        Invitation("bob", tmp_path / "authority", "127.0.0.1:0", FILES, reached_at="bobs-office")
    with pytest.raises(ExperimentError, match="have more than 3 MB together"):
        Invitation("bob", tmp_path / "authority", "127.0.0.1:0", {"peers.toml": bytes(enrolment.LONGEST_ANSWER)})
    with Invitation("bob", tmp_path / "authority", "0.0.0.0:0", FILES, reached_at="office:7010") as invitation:
        assert invitation.code.address == "office:7010"


def test_no_peer_is_called_as_the_authoritys_files_are(tmp_path: Path) -> None:
    keys.make(tmp_path, ["alice"])
    before = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "ca.key").read_bytes()
    for make in (
        lambda: keys.make(tmp_path, ["ca"], renew=True),
        lambda: Invitation("ca", tmp_path, "127.0.0.1:0", FILES, renew=True),
        lambda: Code.read("ca@host:1/" + "a" * 52),
    ):
        with pytest.raises(ExperimentError, match="ca is what the authority's files are called"):
            make()
    assert ((tmp_path / "ca.pem").read_bytes(), (tmp_path / "ca.key").read_bytes()) == before
