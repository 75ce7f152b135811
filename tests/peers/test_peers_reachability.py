"""Peers that cannot reach each other, or cannot work together: another way is found or nobody waits for them, and the
logs say why."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from harness import DIGITS, PATIENT, Links, events, lines, results, until, waits
from proxies import Proxies

from gossamer.experiments import toml
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import Timeouts
from gossamer.peers.grpc.reachability import UNREACHED_SECONDS, Reachability
from gossamer.peers.identity.greeting import Greeting, greeting
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.dashboard import compare
from gossamer.peers.local.local_group import LocalGroup, free_ports

FOUR = replace(DIGITS, nodes=4, rounds=80, topology=Ring(), local_steps=1)
TIMEOUTS = Timeouts(deadline_seconds=60)  # one round that waits for it is seen


def check_logs(peers: LocalGroup, reason: str) -> None:
    """peer-0 cannot reach peer-1: both say so, once, and nobody else says anything of the kind."""
    (line,) = events(peers, "peer-0", "cannot reach")
    assert line["neighbour"] == "peer-1"
    assert reason in line["reason"]
    (line,) = events(peers, "peer-1", "not reached by")
    assert line["neighbour"] == "peer-0"
    others = [("peer-0", "not reached by"), *((name, "cannot reach") for name in ("peer-1", "peer-2", "peer-3"))]
    assert not [events(peers, *other) for other in others if events(peers, *other)]


@pytest.mark.slow
def test_where_connections_are_refused_in_one_direction_the_other_ones_serve_for_both(tmp_path: Path) -> None:
    (nowhere,) = free_ports(1)

    def seen(viewer: str, member: Member) -> str:
        return f"127.0.0.1:{nowhere}" if (viewer, member.name) == ("peer-0", "peer-1") else member.address

    with LocalGroup(FOUR, tmp_path / "up", PATIENT, seen) as peers:
        peers.start()
        peers.wait(100)
        assert compare(FOUR, {"peers": results(peers)})["verified"], "a message was lost"
        check_logs(peers, "refused")
        assert len(events(peers, "peer-0", "reached again")) == 1


@pytest.mark.slow
def test_where_connections_are_dropped_silently_in_one_direction_the_other_ones_serve_for_both(tmp_path: Path) -> None:
    experiment = replace(FOUR, rounds=100_000)
    with Proxies() as proxies:
        links = Links(proxies)
        with LocalGroup(experiment, tmp_path / "up", TIMEOUTS, links.seen) as peers:
            links.weather["peer-0", "peer-1"].cut = True
            peers.start()
            until(lambda: peers.last_round("peer-1").get("round", 0) > 20)
            check_logs(peers, "no answer")
            assert peers.last_round("peer-1")["missing"] == 0
            links.weather["peer-1", "peer-0"].cut = True  # now there is no way at all
            until(lambda: bool(events(peers, "peer-1", "neighbour lost")))
            until(lambda: peers.last_round("peer-1")["missing"] == 1)
            links.weather["peer-0", "peer-1"].cut = False  # and now only the one that there was not
            until(lambda: peers.last_round("peer-1")["missing"] == 0)
            until(lambda: peers.last_round("peer-0")["missing"] == 0)
            assert waits(peers) < TIMEOUTS.deadline_seconds / 2


@pytest.mark.slow
def test_a_peer_with_another_experiment_is_named_and_ends_and_nobody_waits_for_it(tmp_path: Path) -> None:
    with LocalGroup(FOUR, tmp_path / "up", TIMEOUTS) as peers:
        other = tmp_path / "other.toml"
        other.write_text(toml.dumps(replace(FOUR, seed=7, local_steps=2)))
        out = peers.directory_of("peer-3")
        command = [sys.executable, "-m", "gossamer", "peer", str(other), "--me", "peer-3", "--certs", str(peers.keys)]
        stranger = subprocess.Popen(
            [*command, "--peers", str(out / "peers.toml"), "--out", str(out)], stderr=subprocess.PIPE, text=True
        )
        peers.start("peer-0", "peer-1", "peer-2")
        _, told = stranger.communicate(timeout=120)
        assert stranger.returncode == 2, told
        assert "gossamer: this peer's experiment is not that of the others: peer-0, peer-1, peer-2" in told
        assert "local_steps; seed; start it with the experiment, run and version of theirs" in told
        assert told.count('"another experiment"') == 3, "one line for each of the others"
        peers.wait(100)
        for name in ("peer-0", "peer-1", "peer-2"):
            assert [row["differs"] for row in events(peers, name, "another experiment")] == ["local_steps; seed"]
            assert peers.result(name) is not None
            rows = lines(peers.directory_of(name) / "metrics.jsonl")
            assert len(rows) == FOUR.rounds
            assert max(row["waited_seconds"] for row in rows) < TIMEOUTS.deadline_seconds / 2


def test_greetings_are_read_as_they_were_written_and_name_what_differs() -> None:
    group = Group("one", {})
    ours = greeting(group, FOUR, 10, 3)
    assert Greeting.read(ours.write()) == ours
    assert len(ours.write()) < 1000
    assert ours.differences(greeting(group, replace(FOUR, name="other"), 10, 3)) == ""
    assert ours.differences(greeting(group, replace(FOUR, rounds=7, seed=1), 10, 3)) == "rounds; seed"
    theirs = greeting(Group("two", {}), FOUR, 11, 4)
    assert ours.differences(theirs) == 'run "two", and "one" here; 11 parameters, and 10 here'
    assert ours.differences(greeting(group, FOUR, 10, 4)) == "what messages hold"
    shaped, turned = (greeting(group, FOUR, 10, 3, shapes) for shapes in ([(2, 4), (2,)], [(2,), (2, 4)]))
    assert shaped.differences(turned) == "the shapes or the order of the model's layers"
    assert shaped.differences(shaped) == shaped.differences(ours) == ""  # an earlier release says nothing of them
    newer = b'{"version": 2, "something": "else"}'
    assert ours.differences(Greeting.read(newer)).startswith("protocol 2, and 1 (Gossamer ")
    other = msgspec.structs.replace(ours, release="0.9.0")
    assert ours.differences(other) == "", "another release with the same protocol"
    assert "protocol 2 (Gossamer 0.9.0)" in ours.differences(msgspec.structs.replace(other, version=2))
    for content in (b"", b"x", b"[]", b'{"version": "x"}', b"{" * 5000, b'{"run": "one"}'):
        with pytest.raises(ValueError, match=r"greeting|JSON|Object|object|int|truncated"):
            Greeting.read(content)


def test_a_way_is_blocked_after_failures_without_a_success_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ways = Reachability(8.0, lambda node, reason: told.append((node, reason)))
    for _ in range(3):
        ways.failed(1, True, "refused")
        clock[0] += UNREACHED_SECONDS / 2
        ways.succeeded(1)
    assert not told, "some calls got there"
    ways.failed(1, True, "refused")
    clock[0] += UNREACHED_SECONDS
    ways.try_anew(1)
    ways.failed(1, True, "refused")
    assert not ways.blocked(1), "it has just come: nothing could get there before"
    clock[0] += UNREACHED_SECONDS + 1
    ways.failed(1, False, "slow")
    assert not ways.blocked(1)
    for reason in ("refused", "slow", "refused"):
        ways.failed(1, True, reason)
    assert ways.blocked(1)
    clock[0] += 100
    ways.failed(1, True, "no route")
    ways.succeeded(1)
    assert told == [(1, "refused"), (1, "no route"), (1, "")]
    assert not ways.blocked(1)
