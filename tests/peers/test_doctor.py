"""The doctor: what a peer lacks is found and named before it trains."""

import json
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
from gossamer.peers.identity import keys

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
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(examined, place, *pair) for pair in (("alice", ours), ("bob", theirs))]
        return [future.result() for future in futures]


def test_two_that_can_train_together_find_nothing_wrong(place: Path) -> None:
    for checks, other in zip(both(place, TWO, TWO), ("bob", "alice"), strict=True):
        assert [check.what for check in checks] == ["group", "keys", "data and model", "port", other]
        assert all(check.ok for check in checks), checks


def test_what_differs_is_named_at_both(place: Path) -> None:
    for checks in both(place, TWO, replace(TWO, rounds=3)):
        assert not checks[-1].ok
        assert "it differs in rounds" in checks[-1].told


def test_one_that_is_not_there_is_named_with_its_address(place: Path) -> None:
    checks = examined(place, "alice", seconds=1)
    assert [check.ok for check in checks] == [True, True, True, True, False]
    assert checks[-1].told.startswith("not there: 127.0.0.1:")


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
    assert "WRONG  bob: not there" in result.output
    found = json.loads(CliRunner().invoke(cli, [*map(str, words), "--json"]).stdout)
    assert [check["ok"] for check in found] == [True, True, True, True, False]
