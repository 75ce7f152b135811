"""The doctor: what a peer lacks is found and named before it trains."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from click.testing import CliRunner
from harness import DIGITS

from gossamer.cli.main import cli
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import PeerConfig
from gossamer.peers.doctor import Check, examine_peer
from gossamer.peers.grpc.ways import no_way
from gossamer.peers.identity import keys
from gossamer.peers.identity.group import Member
from gossamer.peers.local.local_group import free_ports

TWO = replace(DIGITS, nodes=2, rounds=2, topology=Ring())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    keys.make(tmp_path / "keys", ["alice", "bob"])
    ports = []
    for _ in range(2):
        with create_server(("127.0.0.1", 0)) as server:
            ports.append(server.getsockname()[1])
    peers = {name: {"node": n, "address": f"127.0.0.1:{ports[n]}"} for n, name in enumerate(("alice", "bob"))}
    text = 'run = "trial"\n' + "".join(
        f'[peers.{name}]\nnode = {entry["node"]}\naddress = "{entry["address"]}"\n' for name, entry in peers.items()
    )
    (tmp_path / "peers.toml").write_text(text)
    return tmp_path


def examined(place: Path, name: str, experiment: Experiment = TWO, seconds: float = 60, **more: Any) -> list[Check]:
    config = PeerConfig(name, place / "peers.toml", place / "keys", place, metrics=None, **more)
    return examine_peer(experiment, config, seconds)


def both(place: Path, ours: Experiment, theirs: Experiment) -> list[list[Check]]:
    return all_of(place, {"alice": ours, "bob": theirs})


def all_of(place: Path, experiments: dict[str, Experiment]) -> list[list[Check]]:
    """Examined at the same time."""
    with ThreadPoolExecutor(len(experiments)) as pool:
        futures = [pool.submit(examined, place, *pair) for pair in experiments.items()]
        return [future.result() for future in futures]


def hide(place: Path, name: str, instead: str = "") -> None:
    """Without an address in the group's file."""
    before, _, rest = (place / "peers.toml").read_text().partition(f"[peers.{name}]")
    kept = re.sub(r"address = .*", instead, rest, count=1)
    (place / "peers.toml").write_text(f"{before}[peers.{name}]{kept}")


def test_two_that_can_train_together_find_nothing_wrong(place: Path) -> None:
    for checks, other in zip(both(place, TWO, TWO), ("bob", "alice"), strict=True):
        assert [check.what for check in checks] == ["group", "keys", "data and model", "port", other]
        assert all(check.ok for check in checks), checks


def test_what_differs_is_named_at_both(place: Path) -> None:
    for checks in both(place, TWO, replace(TWO, rounds=3)):
        assert not checks[-1].ok
        assert "it differs in rounds" in checks[-1].told


@pytest.mark.slow
def test_one_without_an_address_is_reached_over_its_own_connection(place: Path) -> None:
    hide(place, "alice")
    alices, bobs = both(place, TWO, TWO)
    assert all(check.ok for check in (*alices, *bobs)), (alices, bobs)
    assert "opens all connections itself" in alices[3].told
    assert bobs[-1].told.startswith("reached over its own connection, and it reaches this peer")


@pytest.mark.slow
def test_two_without_an_address_reach_each_other_through_their_relay(place: Path) -> None:
    keys.make(place / "keys", ["carol"])
    (port,) = free_ports(1)
    with (place / "peers.toml").open("a") as file:
        file.write(f'[peers.carol]\nnode = 2\naddress = "127.0.0.1:{port}"\n')
    for name in ("alice", "bob"):
        hide(place, name, 'relay = "carol"')
    three = replace(TWO, nodes=3)
    found = all_of(place, dict.fromkeys(("alice", "bob", "carol"), three))
    assert all(check.ok for checks in found for check in checks), found
    told = [check.told.partition(",")[0] for checks in found for check in checks[4:]]
    assert told[0] == told[2] == "reached through carol"
    assert told[4:] == ["reached over its own connection"] * 2


def test_two_of_whom_neither_can_be_reached_are_told_what_would_help(place: Path) -> None:
    for name in ("alice", "bob"):
        hide(place, name)
    checks = examined(place, "alice", seconds=20)
    assert checks[-1] == Check("bob", False, no_way(Member("alice", 0), Member("bob", 1)))
    assert 'relay = "NAME"' in checks[-1].told


def test_one_that_is_not_there_is_named_with_its_address(place: Path) -> None:
    checks = examined(place, "alice", seconds=1)
    assert [check.ok for check in checks] == [True, True, True, True, False]
    assert re.match(r"not there \(127.0.0.1:\d+\): connection refused: its machine answers, but nothing listens at "
                    "that port; start it, if it was not started yet; else see its port in peers.toml; "
                    "its doctor, or it, must run at the same time", checks[-1].told)  # fmt: skip
    assert "firewall" not in checks[-1].told


@pytest.mark.slow
def test_one_that_does_not_answer_is_told_apart_from_one_that_is_not_started(place: Path) -> None:
    told: list[str] = []
    port = int(re.findall(r":(\d+)", (place / "peers.toml").read_text())[1])
    with create_server(("127.0.0.1", port)):  # connections are taken, and nothing is ever said
        config = PeerConfig("alice", place / "peers.toml", place / "keys", place, metrics=None)
        checks = examine_peer(TWO, config, 6, progress=told.append)
    assert checks[-1].told.startswith(f"not there (127.0.0.1:{port}): no answer: nothing comes back from there; see")
    assert re.match(r"waiting for bob \(.*\), \d s at most", told[0])


@pytest.mark.slow
def test_one_without_an_address_that_is_not_started_is_told_so(place: Path) -> None:
    hide(place, "bob")
    assert examined(place, "alice", seconds=6)[-1].told.startswith(
        "not there (no address in peers.toml): it has opened no connection to this peer; start it"
    )


@pytest.mark.slow
def test_one_with_keys_of_another_authority_is_told_so_at_both(place: Path) -> None:
    keys.make(place / "other", ["bob"])
    (place / "experiment.toml").write_text(toml.dumps(TWO))
    program = """
import sys
from concurrent.futures import ThreadPoolExecutor
import gossamer as gs
def at(name, certificates):
    config = gs.PeerConfig(name, "peers.toml", certificates, name, metrics=None)
    say = lambda told: print(told, file=sys.stderr)
    return gs.examine_peer(gs.read_experiment("experiment.toml"), config, 10, progress=say)[-1]
with ThreadPoolExecutor(2) as pool:
    print(*pool.map(at, ("alice", "bob"), ("keys", "other")), sep="\\n")
"""  # in a process of its own, for what gRPC prints
    done = subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for line, other in zip(done.stdout.splitlines(), ("bob", "alice"), strict=True):
        assert re.match(
            rf"WRONG  {other}: {other} answers at 127.0.0.1:\d+, but its certificate is not of this group's authority; "
            r"its keys and this peer's were made by different authorities: ca.pem must be the same at both",
            line,
        )
        assert f"waiting for {other} (" in done.stderr
    assert all(line.startswith("waiting for ") for line in done.stderr.splitlines()), "nothing of gRPC's"


def test_what_cannot_be_used_ends_the_examination(place: Path) -> None:
    (place / "keys" / "alice.key").chmod(0o644)
    assert examined(place, "alice")[-1] == Check(
        "keys", False, f"others can read {place / 'keys' / 'alice.key'}; chmod 600 it"
    )
    assert not examined(place, "carol")[-1].ok
    wrong = examined(place, "bob", data=place / "nowhere")[-1]
    assert (wrong.what, wrong.ok) == ("data and model", False)


def test_the_command_tells_and_exits_with_1(place: Path) -> None:
    (place / "experiment.toml").write_text(toml.dumps(TWO))
    words = ["doctor", place / "experiment.toml", "--me", "alice", "--peers", place / "peers.toml"]
    words += ["--certs", place / "keys", "--wait", "0.5"]
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 1
    assert "ok     port: listening on 127.0.0.1:" in result.output
    assert "WRONG  bob: not there (127.0.0.1:" in result.output
    found = json.loads(CliRunner().invoke(cli, [*map(str, words), "--json"]).stdout)
    assert [check["ok"] for check in found] == [True, True, True, True, False]
