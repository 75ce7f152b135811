"""Peers as processes, some of which nobody can open a connection to: the same models as the simulator's."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from harness import DIGITS, PATIENT, Links, check_learned, events, hide, results, until
from proxies import Proxies

from gossamer.graphs.topologies import Ring
from gossamer.peers.config import Timeouts
from gossamer.peers.identity.group import Member
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.local_group import LocalGroup, free_ports

FOUR = replace(DIGITS, nodes=4, rounds=30, topology=Ring(), local_steps=1)

pytestmark = pytest.mark.slow


def end_like_the_simulator(peers: LocalGroup) -> None:
    peers.start()
    peers.wait(150)
    assert compare(FOUR, {"peers": results(peers)})["verified"]
    assert {(result["missing"], result["lost_out"]) for result in results(peers)} == {(0, 0)}


def test_four_of_whom_one_has_no_address(tmp_path: Path) -> None:
    with LocalGroup(FOUR, tmp_path / "up", PATIENT) as peers:
        hide(peers, "peer-1")
        end_like_the_simulator(peers)
        assert not any(events(peers, name, "cannot reach") for name in peers.names)


def test_four_of_whom_one_has_an_address_that_nobody_reaches(tmp_path: Path) -> None:
    (nowhere,) = free_ports(1)

    def seen(viewer: str, member: Member) -> str:
        return f"127.0.0.1:{nowhere}" if member.name == "peer-1" else member.address

    with LocalGroup(FOUR, tmp_path / "up", PATIENT, seen) as peers:
        end_like_the_simulator(peers)
        assert len(events(peers, "peer-0", "cannot reach")) == len(events(peers, "peer-0", "reached again")) == 1


def test_four_of_whom_two_neighbours_have_no_address_and_a_relay(tmp_path: Path) -> None:
    with LocalGroup(FOUR, tmp_path / "up", PATIENT) as peers:
        hide(peers, "peer-0", "peer-1", relay="peer-3")
        end_like_the_simulator(peers)
        found = {result["name"]: result["relayed_bytes"] for result in results(peers)}
        assert [name for name, relayed in found.items() if relayed] == ["peer-3"]
        assert found["peer-3"] > results(peers)[0]["bytes_out"] / 2, "half of what peer-0 sends is for peer-1"


def test_connections_of_hidden_peers_that_break_are_opened_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with Proxies(seed=2) as proxies:
        links = Links(proxies)
        with LocalGroup(FOUR, tmp_path / "up", PATIENT, round_seconds=0.3) as peers:
            hide(peers, "peer-0", "peer-1", relay="peer-3")
            for name in ("peer-0", "peer-1"):
                shown = {
                    other: Member(other, m.node, "127.0.0.1", int(links.seen(name, m).split(":")[1])) if m.port else m
                    for other, m in peers.group.members.items()
                }
                peers.write_group(name, replace(peers.group, members=shown))
            peers.start()
            for round in (3, 8, 13, 18):
                until(lambda round=round: peers.last_round("peer-0").get("round", 0) >= round)
                for weather in links.weather.values():
                    weather.break_probability = 1.0
                broken = [weather.num_broken for weather in links.weather.values()]
                until(lambda b=broken: all(w.num_broken > n for w, n in zip(links.weather.values(), b, strict=True)))
                for weather in links.weather.values():
                    weather.break_probability = 0.0
            peers.wait(150)
            assert compare(FOUR, {"peers": results(peers)})["verified"]


def test_a_hidden_peer_that_is_killed_comes_back(tmp_path: Path) -> None:
    experiment = replace(DIGITS, nodes=4, topology=Ring(), rounds=120)
    with LocalGroup(experiment, tmp_path / "up", Timeouts(deadline_seconds=20), round_seconds=0.1) as peers:
        hide(peers, "peer-0", "peer-1", relay="peer-3")
        peers.start()
        until(lambda: peers.last_round("peer-1").get("round", 0) >= 12)
        peers.send("peer-1", signal.SIGKILL)
        until(lambda: peers.last_round("peer-3")["round"] >= peers.last_round("peer-1")["round"] + 15)
        peers.start("peer-1")
        until(lambda: bool(events(peers, "peer-1", "caught up")))
        until(lambda: peers.last_round("peer-0")["missing"] == 0)
        peers.wait(120)
        check_learned(peers)
