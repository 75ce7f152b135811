"""Running a group: shutting a peer out, letting one in, leaving, resuming, and the same everywhere."""

import signal
import socket
import ssl
from dataclasses import replace
from pathlib import Path

from harness import DIGITS, events, lines, results, until

from gossamer.graphs.topologies import RandomRegular, Ring
from gossamer.peers.identity import keys
from gossamer.peers.identity.group import Group
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.group import LocalGroup

PACE = ["--round-seconds", "0.1", "--deadline", "60", "--checkpoint-every", "5"]


def without(fleet: LocalGroup, name: str) -> Group:
    return Group(fleet.group.run, {other: member for other, member in fleet.group.members.items() if other != name})


def test_a_peer_struck_from_the_group_is_shut_out_at_once_and_let_in_again(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=4, rounds=60, local_steps=1, topology=Ring())
    rest = ["peer-0", "peer-1", "peer-2"]
    with LocalGroup(experiment, tmp_path / "up", PACE) as fleet:
        fleet.write_group("peer-0", without(fleet, "peer-3"))
        for name in rest:
            fleet.write_group(name, without(fleet, "peer-3"))
        fleet.start()
        until(lambda: fleet.last_round("peer-0").get("round", 0) >= 5)
        assert fleet.last_round("peer-0")["alive"] == 1, "of its two neighbours one is not in its group"
        assert events(fleet, "peer-0", "refused"), "peer-3 knocked, and was not let in"
        assert "peer-3 is not a peer of this group" in events(fleet, "peer-0", "refused")[0]["reason"]
        for name in rest:  # a new peer joins a running group
            fleet.write_group(name, fleet.group)
            fleet.send(name, signal.SIGHUP)
        until(lambda: fleet.last_round("peer-0")["alive"] == 2)
        for name in rest:  # and is struck from it
            fleet.write_group(name, without(fleet, "peer-3"))
            fleet.send(name, signal.SIGHUP)
        until(lambda: fleet.last_round("peer-0")["alive"] == 1)
        assert events(fleet, "peer-0", "reloaded")[-1]["peers"] == 3
        knocks = len(events(fleet, "peer-0", "refused"))
        until(lambda: len(events(fleet, "peer-0", "refused")) > knocks)
        (fleet.place("peer-0") / "peers.toml").write_text("nonsense")
        fleet.send("peer-0", signal.SIGHUP)
        until(lambda: bool(events(fleet, "peer-0", "not reloaded")))
        fleet.send("peer-3", signal.SIGTERM)
        fleet.wait(120)
        assert all(fleet.codes[fleet.pids[name]] == 0 for name in fleet.names)


def test_peers_that_were_asked_to_leave_go_on_where_they_were_and_end_the_same(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=3, rounds=30, local_steps=2, topology=RandomRegular(degree=2))
    patient = ["--deadline", "120", "--dead-after", "60"]
    with LocalGroup(experiment, tmp_path / "up", patient) as fleet:
        fleet.options = [*patient, "--round-seconds", "0.3"]
        fleet.start()
        until(lambda: fleet.last_round("peer-0").get("round", 0) >= 3)
        for name in fleet.names:
            fleet.send(name, signal.SIGTERM)
        fleet.wait(60)
        left = [events(fleet, name, "left")[-1]["rounds"] for name in fleet.names]
        assert all(3 <= rounds < 30 for rounds in left)
        assert not any(fleet.result(name) for name in fleet.names)
        assert [events(fleet, name, "saved")[-1]["round"] for name in fleet.names] == left
        fleet.options = patient
        fleet.start()
        fleet.wait(120)
        assert [events(fleet, name, "resumed")[-1]["round"] for name in fleet.names] == left
        for name in fleet.names:
            rows = lines(fleet.place(name) / "metrics.jsonl")
            assert [row["round"] for row in rows] == list(range(1, 31))
        if len(set(left)) == 1:  # all left after the same round, so that no message was missed
            assert compare(experiment, {"peers": results(fleet)})["verified"]


def test_a_renewed_certificate_is_shown_after_sighup_and_no_message_is_lost(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=3, rounds=25, local_steps=1, topology=Ring())

    def shown(fleet: LocalGroup) -> object:
        """The serial number of the certificate that peer-0 shows."""
        context = ssl.create_default_context(cafile=str(fleet.keys / "ca.pem"))
        context.load_cert_chain(fleet.keys / "peer-1.pem", fleet.keys / "peer-1.key")
        context.set_alpn_protocols(["h2"])
        address = "127.0.0.1", fleet.group.member("peer-0").port
        with (
            socket.create_connection(address, timeout=10) as connection,
            context.wrap_socket(connection, server_hostname="peer-0") as secured,
        ):
            return (secured.getpeercert() or {})["serialNumber"]

    with LocalGroup(experiment, tmp_path / "up", [*PACE, "--dead-after", "30"]) as fleet:
        fleet.start()
        until(lambda: fleet.last_round("peer-0").get("round", 0) >= 3)
        before = shown(fleet)
        keys.make(fleet.keys, ["peer-0"], renew=True)
        fleet.send("peer-0", signal.SIGHUP)
        until(lambda: shown(fleet) != before)
        fleet.wait(60)
        assert compare(experiment, {"peers": results(fleet)})["verified"]
