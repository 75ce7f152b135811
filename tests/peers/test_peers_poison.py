"""One listed peer lies: about its model, or about its round. The others do not take its state, and with robust
aggregation they still learn."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from harness import DIGITS, PATIENT, events, results, undisturbed_accuracy

from gossamer.algorithms import D2, ClippedGossip, CoordinateMedian, Dpsgd, Jwins
from gossamer.core import Algorithm
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.topologies import FullyConnected, RandomRegular, Ring
from gossamer.peers.local.local_group import LocalGroup


@contextmanager
def group_with(program: str, experiment: Experiment, directory: Path, **environment: str) -> Iterator[LocalGroup]:
    """A group that has trained, whose last peer ran this program."""
    with LocalGroup(experiment, directory, PATIENT) as peers:
        *honest, liar = peers.names
        place = peers.directory_of(liar)
        command = [sys.executable, str(Path(__file__).parent / program), "peer"]
        command += [str(peers.directory / "experiment.toml"), "--me", liar, "--peers", str(place / "peers.toml")]
        command += ["--certs", str(peers.keys), "--out", str(place), "--deadline", "120", "--dead-after", "60"]
        with (
            (place / "log.jsonl").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment) as process,
        ):
            try:
                peers.start(*honest)
                peers.wait(120)
                process.wait(60)
            finally:
                process.kill()
        yield peers


def accuracy_of_honest(peers: LocalGroup) -> float:
    found = results(peers)[:-1]
    return float(sum(result["accuracy"] for result in found) / len(found))


# About its model.


def accuracy_beside_a_poisoner(algorithm: Algorithm, directory: Path) -> float:
    """The mean of five honest peers after thirty rounds beside one that lies."""
    experiment = replace(DIGITS, rounds=30, topology=RandomRegular(degree=4), algorithm=algorithm)
    with group_with("poisoner.py", experiment, directory, POISON="10") as peers:
        assert all(result["missing"] == 0 for result in results(peers)), "the poison did not arrive"
        return accuracy_of_honest(peers)


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(algorithm, marks=pytest.mark.slow) for algorithm in (ClippedGossip(), CoordinateMedian())],
    ids=["clipped gossip", "median"],
)
def test_beside_a_peer_that_sends_poison_the_others_learn(algorithm: Algorithm, tmp_path: Path) -> None:
    assert accuracy_beside_a_poisoner(algorithm, tmp_path / "up") > 0.85


@pytest.mark.slow
def test_plain_averaging_does_not_survive_the_same_poison(tmp_path: Path) -> None:
    """So that the test above can fail."""
    assert accuracy_beside_a_poisoner(Dpsgd(), tmp_path / "up") < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("poison", ["1e39", "growing"])
def test_numbers_far_beyond_all_others_are_refused_with_their_sender_named_and_averaging_goes_on(
    poison: str, tmp_path: Path
) -> None:
    """Growing ones are no larger than what the honest have become by the poison before, were that what counts."""
    experiment = replace(DIGITS, rounds=20, topology=RandomRegular(degree=4), algorithm=Dpsgd())
    with group_with("poisoner.py", experiment, tmp_path / "up", POISON=poison) as peers:
        assert accuracy_of_honest(peers) > (0.8 if poison == "1e39" else 0.3)
        for name in peers.names[:-1]:
            refused = [row for row in events(peers, name, "bad frame") if row["neighbour"] == "peer-5"]
            assert refused or "peer-5" not in neighbours(peers, name)
            assert all("cannot be" in row["reason"] for row in refused)


def neighbours(peers: LocalGroup, name: str) -> list[str]:
    experiment = peers.experiment
    near, _ = experiment.delivery.neighbours(0, peers.group.member(name).node)
    return [f"peer-{node}" for node in near]


# About its round.

GRAPHS = {"complete graph of 5": (5, FullyConnected()), "ring of 8": (8, Ring())}
ALGORITHMS = {
    "dpsgd": Dpsgd(),
    "clipped-gossip": ClippedGossip(),
    "coordinate-median": CoordinateMedian(),
    "jwins": Jwins(),
    "d2": D2(lazy=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_nobody_takes_the_state_of_a_peer_that_claims_to_be_far_ahead(graph: str, name: str, tmp_path: Path) -> None:
    nodes, topology = GRAPHS[graph]
    experiment = replace(DIGITS, nodes=nodes, topology=topology, algorithm=ALGORITHMS[name], rounds=40)
    if name == "d2":
        experiment = replace(experiment, local_steps=1)
    with group_with("liar.py", experiment, tmp_path / "up") as peers:
        for honest in peers.names[:-1]:
            assert not events(peers, honest, "caught up")
            assert peers.result(honest)["pulls_in"] == 0
        assert accuracy_of_honest(peers) > undisturbed_accuracy(experiment) - 0.02
