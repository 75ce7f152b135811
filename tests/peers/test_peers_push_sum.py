"""Push-sum on a real network without rounds in common: a slow peer holds nobody up, and no weight is made or lost."""

from dataclasses import replace
from pathlib import Path

import pytest
from harness import DIGITS, Scripted, events, lines, lone_node, results, undisturbed_accuracy

from gossamer.algorithms import JwinsPush, QuantSgp, Sgp, SparsePush
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.experiments.experiment import Evaluation
from gossamer.graphs.topologies import DirectedRandom, Redrawn
from gossamer.peers.config import Timeouts
from gossamer.peers.local.local_group import LocalGroup
from gossamer.peers.transport import Arrived, Payload

SGP = replace(
    DIGITS, rounds=66, settle=6, algorithm=Sgp(), topology=DirectedRandom(2), evaluation=Evaluation(every=1000)
)
PACE = {"round_seconds": 0.2, "checkpoint_every": 20}


class Loopback(Scripted):
    """Every message arrives; those for peers that cannot take any are noted as a mistake."""

    def __init__(self, full: set[int]):
        super().__init__()
        self.full, self.sent, self.waiting = full, [], []

    def alive(self, node: int) -> bool:
        return True

    def can_take(self, node: int) -> bool:
        return node not in self.full

    def publish(self, round: int, receivers: list[int], payload: Payload, until: float) -> None:
        self.sent += [(round, receiver, payload(receiver)) for receiver in receivers]

    def collect(self, round: int, senders: list[int], until: float) -> list[Arrived]:
        came, self.waiting = self.waiting, []
        return came


def test_the_share_of_a_receiver_that_cannot_take_it_stays_with_its_sender() -> None:
    experiment = replace(SGP, asynchronous=True)
    node = lone_node(experiment, me=3)
    receivers = node.neighbours(0)[0]
    network = Loopback({receivers[0]})
    node.step(network)  # type: ignore[arg-type]
    assert [receiver for _, receiver, _ in network.sent] == receivers[1:]
    assert node.block.state.u.item() == pytest.approx(2 / 3)  # of itself and the one that could not
    assert node.counters.totals()["mass_sent"] == pytest.approx(1 / 3)


def test_several_messages_of_a_quick_peer_count_once_each_in_whatever_round_they_come() -> None:
    experiment = replace(SGP, asynchronous=True)
    slow = lone_node(experiment, me=3)
    sender = slow.neighbours(0)[1][0]
    quick, network = lone_node(experiment, me=sender), Loopback(set())
    for _ in range(4):
        quick.step(network)  # type: ignore[arg-type]
    frames = [(t, content) for t, receiver, content in network.sent if receiver == 3]
    assert len(frames) == 4
    there = Loopback(set())
    there.waiting = [Arrived(sender, t, slow.check(content, sender, t)) for t, content in frames]
    slow.step(there)  # type: ignore[arg-type]
    row = slow.step(there)  # type: ignore[arg-type]
    shares = sum((1 / 3) ** (k + 1) for k in range(4))  # the quick one heard nobody, and sent a third to each of two
    assert row["mass_received"] == pytest.approx(shares, abs=1e-12)
    assert row["mass_on_node"] == pytest.approx(1 - row["mass_sent"] + row["mass_received"], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "redrawn"),
    [(Sgp(), False), (SparsePush(TopK(0.3), 0.4), True), (JwinsPush(), True), (QuantSgp(TopK(0.5), 0.4), False)],
    ids=["sgp", "sparse-push", "jwins-push", "quant-sgp"],
)
def test_a_slow_peer_holds_nobody_up_and_no_mass_is_lost(algorithm: Algorithm, redrawn: bool, tmp_path: Path) -> None:
    together = replace(SGP, algorithm=algorithm, topology=Redrawn(SGP.topology) if redrawn else SGP.topology)
    with LocalGroup(
        replace(together, asynchronous=True), tmp_path / "up", Timeouts(deadline_seconds=30), **PACE
    ) as peers:
        peers.start(*peers.names[:-1])
        peers.options = {**PACE, "round_seconds": 5 * PACE["round_seconds"]}
        peers.start(peers.names[-1])
        peers.wait(240)
        found = results(peers)
        assert {result["rounds"] for result in found} == {together.rounds}
        accuracy = sum(result["accuracy"] for result in found) / len(found)
        assert accuracy >= undisturbed_accuracy(together) - 0.03
        (joined,) = events(peers, peers.names[-1], "settles with the others")
        assert joined["round"] < 30  # of 60, in the time in which the others ran all
        last = [lines(peers.directory_of(name) / "metrics.jsonl")[-1] for name in peers.names]
        on_its_way = sum(row["mass_sent"] - row["mass_received"] for row in last)
        assert sum(row["mass_on_node"] for row in last) + on_its_way == pytest.approx(6, abs=1e-5)
        assert on_its_way == pytest.approx(sum(row["mass_lost"] for row in last), abs=1e-5)
        for name in peers.names[:-1]:
            rows = [row for row in lines(peers.directory_of(name) / "metrics.jsonl") if row["round"] <= 60]
            assert len(rows) == 60
            assert sum(row["waited_seconds"] for row in rows) < 60 * PACE["round_seconds"]
