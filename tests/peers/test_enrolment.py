"""Enrolment: a one-time code brings a certificate to a peer, and to nobody else."""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from harness import until

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.identity import enrolment, joining, keys
from gossamer.peers.identity.enrolment import Receipt, Request
from gossamer.peers.identity.invitation import MOST_TRIES, Invitation
from gossamer.peers.identity.invitation_code import Code
from gossamer.peers.identity.joining import join

FILES = {"peers.toml": b'run = "r"\n'}


@contextmanager
def inviting(
    tmp_path: Path, name: str = "bob", renew: bool = False, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Invitation]:
    if not (tmp_path / "authority").exists():
        keys.make(tmp_path / "authority", ["alice"])
    with Invitation(name, tmp_path / "authority", "127.0.0.1:0", FILES, renew=renew, tell=tell) as invitation:
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
        with pytest.raises(ExperimentError, match=r"the invitation was used|used already|connection to .* failed"):
            join(invitation.code, tmp_path / "mallory", tmp_path)
    assert not (tmp_path / "mallory").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"secret": bytes(16)}, "the code is wrong"),
        ({"name": "rob"}, "the code is for bob, and another name was given"),
    ],
)
def test_a_wrong_code_or_name_leaves_the_invitation_open_for_the_right_one(
    tmp_path: Path, wrong: dict[str, Any], told: str
) -> None:
    heard: list[str] = []
    with inviting(tmp_path, tell=heard.append) as invitation:
        with pytest.raises(ExperimentError, match=f"refused: {told}; {MOST_TRIES - 1} tries are left"):
            join(replace(invitation.code, **wrong), tmp_path / "bob", tmp_path)
        assert not invitation.joined
        assert not (tmp_path / "authority" / "bob.pem").exists()
        join(invitation.code, tmp_path / "bob", tmp_path)
        assert invitation.joined
    assert heard == [f"a try to join as bob failed: {told}; {MOST_TRIES - 1} tries are left"]
    assert not invitation.warning
    keys.load(tmp_path / "bob", "bob")


def test_the_inviter_says_joined_only_to_one_that_has_shown_that_it_has_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    with inviting(tmp_path, tell=heard.append) as invitation:
        keys.make(tmp_path / "bob", ["carol"])  # another group's: bob finds out when the certificate has come
        with pytest.raises(ExperimentError, match="the authority of another group"):
            join(invitation.code, tmp_path / "bob", tmp_path)
        until(lambda: len(heard) == 1)
        with monkeypatch.context() as patch:
            patch.setattr(joining, "Receipt", lambda signature: Receipt(bytes(70)))
            with pytest.raises(ExperimentError, match="did not show that it has the key of its certificate"):
                join(invitation.code, tmp_path / "other", tmp_path)
        until(lambda: len(heard) == 2)
        assert not invitation.joined
        assert not (tmp_path / "authority" / "bob.pem").exists()
        join(invitation.code, tmp_path / "right", tmp_path)
        assert invitation.joined
    assert "did not confirm that it has its certificate; 4 tries are left" in heard[0]
    assert "if bob did not try more than once, someone else has the code" in invitation.warning


def test_wrong_secrets_end_the_invitation_and_both_ends_say_so(tmp_path: Path) -> None:
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
        for left in reversed(range(MOST_TRIES)):
            told = f"{left} tries are left" if left else "that was the last try, and another invitation is needed"
            with pytest.raises(ExperimentError, match=f"refused: the code is wrong; {told}"):
                join(replace(invitation.code, secret=bytes(16)), tmp_path / "mallory", tmp_path)
        waiting.join()
        assert not invitation.joined
    assert "5 tries to join as bob failed, so the invitation is over" in str(found[0])


def test_nothing_is_sent_to_one_that_did_not_make_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    monkeypatch.setattr(enrolment, "send", lambda connection, told: sent.append(told))
    told = "did not make this code, so nothing was sent"
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
        strange = weak.sign(rsa.generate_private_key(65537, 2048), SHA256()).public_bytes(Encoding.PEM)
        why, refused = invitation._check(Request(invitation.code.secret, "bob", strange))
        assert "curve P-256" in why
        assert refused is None
        _, own = invitation._check(Request(invitation.code.secret, "bob", request))
    assert own is not None
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


GOOD = str(Code("bob", "10.0.0.5:7010", bytes(range(16)), bytes(range(16, 32))))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a code is NAME@HOST:PORT/ and 56 letters and digits, .* has no /"),
        ("bob", "has no /"),
        ("host:1/abc", "has no @ before the /"),
        ("bob@host/abc", "an address is written"),
        ("../x@host:1/" + "a" * 56, "a peer's name is"),
        (GOOD[:-1], "has 56 letters and digits, and 55 were given: some are missing"),
        (GOOD + "aa", "58 were given: some are too many"),
        (GOOD[:-1] + "0", "letters and the digits 2 to 7 only, and not '0'"),
        (GOOD.replace("bob", "rob"), "a typing error before its /, in rob@10.0.0.5:7010; nothing was sent"),
        (GOOD.replace("7010", "7001"), "a typing error before its /, in bob@10.0.0.5:7001"),
        (GOOD.replace("/a", "/b"), "a typing error behind its /"),
    ],
)
def test_a_code_with_a_typing_error_is_told_where_it_is(text: str, told: str) -> None:
    with pytest.raises(ExperimentError, match=told) as found:
        Code.read(text)
    assert GOOD.rpartition("/")[2][:10] not in str(found.value)  # nothing of the secret


def test_a_code_may_be_typed_with_large_letters_and_spaces() -> None:
    place, _, key = GOOD.rpartition("/")
    assert Code.read(f" gossamer join {place}/{key[:20].upper()} {key[20:]}\n") == Code.read(GOOD)


def test_where_no_invitation_is_waiting_the_reason_is_told(tmp_path: Path) -> None:
    code = Code.read(GOOD)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def rude() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1000)

        answering = threading.Thread(target=rude)
        answering.start()
        with pytest.raises(ExperimentError, match=f"what listens at {address} is not gossamer invite"):
            join(replace(code, address=address), tmp_path, tmp_path)
        answering.join()
    with pytest.raises(ExperimentError, match=f"nobody listens at {address}: the invitation was used, has expired"):
        join(replace(code, address=address), tmp_path, tmp_path)
    with pytest.raises(ExperimentError, match=r"no machine is known by the name in no-such-host.invalid:7010"):
        join(replace(code, address="no-such-host.invalid:7010"), tmp_path, tmp_path)


def test_files_that_come_along_stay_where_they_belong(tmp_path: Path) -> None:
    for name in ("../peers.toml", "peers.py", "/etc/x.toml"):
        with pytest.raises(ExperimentError, match=re.escape(f"{name!r}")):
            joining._check_names({name: b""})


def test_the_inviter_stays_until_its_answer_is_sent_whoever_else_hangs_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, answering, go_on = enrolment.send, threading.Event(), threading.Event()

    def slowly(connection: ssl.SSLSocket, told: msgspec.Struct) -> None:
        if connection.server_side:
            answering.set()
            go_on.wait(10)
        send(connection, told)

    monkeypatch.setattr(enrolment, "send", slowly)
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


def test_a_certificate_that_the_inviter_cannot_keep_is_good_all_the_same_and_it_says_so(
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
        join(invitation.code, tmp_path / "bob", tmp_path)
        waiting.join()
    keys.load(tmp_path / "bob", "bob")
    assert "bob has joined, but its certificate cannot be kept in" in found[0]


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
        lambda: Code.read("ca@host:1/" + "a" * 56),
    ):
        with pytest.raises(ExperimentError, match="ca is what the authority's files are called"):
            make()
    assert ((tmp_path / "ca.pem").read_bytes(), (tmp_path / "ca.key").read_bytes()) == before
