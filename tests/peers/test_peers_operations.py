"""Running a group: shutting a peer out, letting one in, leaving, resuming, and the same everywhere."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from harness import DIGITS, PATIENT, events, lines, results, until

import gossamer
from gossamer.experiments import toml
from gossamer.graphs.topologies import RandomRegular, Ring
from gossamer.peers.config import Timeouts
from gossamer.peers.identity import group, keys
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.identity.invitation import Invitation
from gossamer.peers.identity.joining import join
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.local_group import LocalGroup, free_ports

TIMEOUTS = Timeouts(deadline_seconds=60, dead_seconds=5)
PACE = {"round_seconds": 0.1, "checkpoint_every": 5}


def without(peers: LocalGroup, name: str) -> Group:
    return Group(peers.group.run, {other: member for other, member in peers.group.members.items() if other != name})


@pytest.mark.slow
def test_a_peer_struck_from_the_group_is_shut_out_at_once_and_let_in_again(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=4, rounds=60, local_steps=1, topology=Ring())
    rest = ["peer-0", "peer-1", "peer-2"]
    with LocalGroup(experiment, tmp_path / "up", TIMEOUTS, **PACE) as peers:
        peers.write_group("peer-0", without(peers, "peer-3"))
        for name in rest:
            peers.write_group(name, without(peers, "peer-3"))
        peers.start()
        until(lambda: peers.last_round("peer-0").get("round", 0) >= 5)
        assert peers.last_round("peer-0")["alive"] == 1, "of its two neighbours one is not in its group"
        assert events(peers, "peer-0", "refused"), "peer-3 knocked, and was not let in"
        assert "peer-3 is not a peer of this group" in events(peers, "peer-0", "refused")[0]["reason"]
        for name in rest:  # a new peer joins a running group
            peers.write_group(name, peers.group)
            peers.send(name, signal.SIGHUP)
        until(lambda: peers.last_round("peer-0")["alive"] == 2)
        for name in rest:  # and is struck from it
            peers.write_group(name, without(peers, "peer-3"))
            peers.send(name, signal.SIGHUP)
        until(lambda: peers.last_round("peer-0")["alive"] == 1)
        assert events(peers, "peer-0", "reloaded")[-1]["peers"] == 3
        knocks = len(events(peers, "peer-0", "refused"))
        until(lambda: len(events(peers, "peer-0", "refused")) > knocks)
        (peers.directory_of("peer-0") / "peers.toml").write_text("nonsense")
        peers.send("peer-0", signal.SIGHUP)
        until(lambda: bool(events(peers, "peer-0", "not reloaded")))
        peers.send("peer-3", signal.SIGTERM)
        peers.wait(120)
        assert all(peers.codes[peers.pids[name]] == 0 for name in peers.names)


@pytest.mark.slow
def test_peers_that_were_asked_to_leave_go_on_where_they_were_and_end_the_same(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=3, rounds=30, local_steps=2, topology=RandomRegular(degree=2))
    with LocalGroup(experiment, tmp_path / "up", PATIENT, round_seconds=0.3) as peers:
        peers.start()
        until(lambda: peers.last_round("peer-0").get("round", 0) >= 3)
        for name in peers.names:
            peers.send(name, signal.SIGTERM)
        peers.wait(60)
        left = [events(peers, name, "left")[-1]["rounds"] for name in peers.names]
        assert all(3 <= rounds < 30 for rounds in left)
        assert not any(peers.result(name) for name in peers.names)
        assert [events(peers, name, "saved")[-1]["round"] for name in peers.names] == left
        peers.options = {}  # without a pace
        peers.start()
        peers.wait(120)
        assert [events(peers, name, "resumed")[-1]["round"] for name in peers.names] == left
        for name in peers.names:
            rows = lines(peers.directory_of(name) / "metrics.jsonl")
            assert [row["round"] for row in rows] == list(range(1, 31))
        if len(set(left)) == 1:  # all left after the same round, so that no message was missed
            assert compare(experiment, {"peers": results(peers)})["verified"]
        ended = results(peers)
        peers.start()  # once more, after the end
        peers.wait(60)
        assert events(peers, "peer-0", "resumed")[-1]["advice"] == "nothing is left to train"
        assert [result["model_sha256"] for result in results(peers)] == [result["model_sha256"] for result in ended]


def renew_by_invitation(directory: Path) -> None:
    """As `gossamer invite --renew` and, elsewhere, `gossamer join --renew` do."""
    with Invitation("peer-0", directory, "127.0.0.1:0", {}, renew=True) as invitation, ThreadPoolExecutor(1) as waiting:
        waited = waiting.submit(invitation.wait, 30)
        join(invitation.code, directory, directory, renew=True)
        assert waited.result()


@pytest.mark.slow
@pytest.mark.parametrize("renew", [lambda d: keys.make(d, ["peer-0"], renew=True), renew_by_invitation])
def test_a_renewed_certificate_is_shown_after_sighup_and_no_message_is_lost(
    tmp_path: Path, renew: Callable[[Path], object]
) -> None:
    experiment = replace(DIGITS, nodes=3, rounds=25, local_steps=1, topology=Ring())

    def shown(peers: LocalGroup) -> object:
        """The serial number of the certificate that peer-0 shows."""
        context = ssl.create_default_context(cafile=str(peers.keys / "ca.pem"))
        context.load_cert_chain(peers.keys / "peer-1.pem", peers.keys / "peer-1.key")
        context.set_alpn_protocols(["h2"])
        address = "127.0.0.1", peers.group.member("peer-0").port
        with (
            socket.create_connection(address, timeout=10) as connection,
            context.wrap_socket(connection, server_hostname="peer-0") as secured,
        ):
            return (secured.getpeercert() or {})["serialNumber"]

    with LocalGroup(experiment, tmp_path / "up", replace(TIMEOUTS, dead_seconds=30), **PACE) as peers:
        peers.start()
        until(lambda: peers.last_round("peer-0").get("round", 0) >= 3)
        before = shown(peers)
        renew(peers.keys)
        peers.send("peer-0", signal.SIGHUP)
        until(lambda: shown(peers) != before)
        peers.wait(60)
        assert compare(experiment, {"peers": results(peers)})["verified"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [1, 2])
def test_two_releases_train_together_if_they_have_one_protocol(tmp_path: Path, protocol: int) -> None:
    experiment = replace(DIGITS, nodes=2, rounds=10, local_steps=1, topology=Ring())
    members = {
        name: Member(name, i, "127.0.0.1", port)
        for i, (name, port) in enumerate(zip(("old", "new"), free_ports(2), strict=True))
    }
    keys.make(tmp_path / "keys", list(members))
    (tmp_path / "peers.toml").write_text(group.dumps(Group("upgrade", members)))
    (tmp_path / "experiment.toml").write_text(toml.dumps(experiment))
    newer = (
        "import gossamer; gossamer.__version__ = '0.9.0'; from gossamer.peers.identity import greeting; "
        f"greeting.PROTOCOL = {protocol}; from gossamer.cli.main import main; main()"
    )

    def started(name: str, *program: str) -> subprocess.Popen[str]:
        words = ("peer", "experiment.toml", "--me", name, "--peers", "peers.toml", "--certs", "keys", "--out", name)
        given = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": os.environ}
        return subprocess.Popen([sys.executable, *program, *words, "--start-deadline", "60"], **given)  # type: ignore[call-overload,no-any-return]

    running = [started("old", "-m", "gossamer"), started("new", "-c", newer)]
    logs = [
        [json.loads(line) for line in peer.communicate(timeout=240)[1].splitlines() if line[0] == "{"]
        for peer in running
    ]
    releases = {row["peer"]: row["release"] for log in logs for row in log if row["event"] == "another release"}
    assert releases == {"old": "0.9.0", "new": gossamer.__version__}
    if protocol == 1:
        assert [peer.returncode for peer in running] == [0, 0]
        reports = [json.loads((tmp_path / name / "result.json").read_text()) for name in members]
        assert compare(experiment, {"peers": reports})["verified"]
    else:
        assert [peer.returncode for peer in running] == [2, 2]
        differs = [row["differs"] for log in logs for row in log if row["event"] == "another experiment"]
        assert f"protocol 2 (Gossamer 0.9.0), and 1 (Gossamer {gossamer.__version__}) here" in differs[0]
