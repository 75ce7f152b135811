"""One peer sends poison: with robust aggregation the others still learn."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harness import DIGITS, PATIENT, results

from gossamer.algorithms import ClippedGossip, CoordinateMedian, Dpsgd
from gossamer.core import Algorithm
from gossamer.graphs.topologies import RandomRegular
from gossamer.peers.local.local_group import LocalGroup


def accuracy_beside_a_poisoner(algorithm: Algorithm, directory: Path) -> float:
    """The mean of five honest peers after thirty rounds beside one that lies."""
    experiment = replace(DIGITS, rounds=30, topology=RandomRegular(degree=4), algorithm=algorithm)
    with LocalGroup(experiment, directory, PATIENT) as peers:
        liar, place = "peer-5", peers.directory_of("peer-5")
        command = [
            sys.executable,
            str(Path(__file__).parent / "poisoner.py"),
            "peer",
            str(peers.directory / "experiment.toml"),
        ]
        command += ["--me", liar, "--peers", str(place / "peers.toml"), "--certs", str(peers.keys)]
        command += ["--out", str(place), "--deadline", "120", "--dead-after", "60"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                peers.start(*(name for name in peers.names if name != liar))
                peers.wait(120)
                process.wait(60)
            finally:
                process.kill()
        found = results(peers)
    assert all(result["missing"] == 0 for result in found), "the poison did not arrive"
    return sum(result["accuracy"] for result in found if result["name"] != liar) / 5


@pytest.mark.parametrize(
    "algorithm",
    [ClippedGossip(), pytest.param(CoordinateMedian(), marks=pytest.mark.slow)],
    ids=["clipped gossip", "median"],
)
def test_beside_a_peer_that_sends_poison_the_others_learn(algorithm: Algorithm, tmp_path: Path) -> None:
    assert accuracy_beside_a_poisoner(algorithm, tmp_path / "up") > 0.85


@pytest.mark.slow
def test_plain_averaging_does_not_survive_the_same_poison(tmp_path: Path) -> None:
    """So that the test above can fail."""
    assert accuracy_beside_a_poisoner(Dpsgd(), tmp_path / "up") < 0.6
