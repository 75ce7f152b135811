"""Runs in which messages are lost or late, and nodes are down: what still holds."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer
from contract import CASES, QUADRATIC, of, simulated
from gossamer.algorithms import Dpsgd, Jwins, LocalOnly, Sgp, SparsePush
from gossamer.compressors import TopK
from gossamer.data import Quadratic
from gossamer.experiments.experiment import ExperimentError
from gossamer.graphs.delivery import Delivery
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRandom, RandomRegular, Redrawn
from gossamer.simulator.simulation import Simulation
from gossamer.training.block import NodeError

BAD = Faults(drop=0.2, down=((2, 2, 3), (5, 4, 6)), late=((1, 2), (3, 1)))
TOLERANT = [case for case in CASES if "reliable" not in CASES[case].algorithm.requires]
WITH_MASS = [case for case in TOLERANT if CASES[case].conserves == "mass"]


@pytest.mark.parametrize("case", TOLERANT)
def test_a_run_with_faults_is_the_same_when_continued(case: str) -> None:
    experiment = of(case, faults=BAD, rounds=7)
    whole = simulated(experiment)
    assert whole.isfinite().all()
    with Simulation(experiment, workers=1) as first:
        for _ in range(4):
            first.step()
        saved = {name: tensor.clone() for name, tensor in first.save().items()}
        totals = dict(first.totals)
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, round=4, totals=totals)
        for _ in range(3):
            second.step()
        assert torch.equal(second.models(), whole)


@pytest.mark.parametrize("case", WITH_MASS)
def test_push_sum_mass_is_on_nodes_on_its_way_or_lost_and_nowhere_else(case: str) -> None:
    run = gossamer.simulate(of(case, faults=BAD, rounds=15))  # with mass, the weights of the models' gradients are lost
    for metrics in run.metrics:
        total = metrics["mass_on_nodes"] + metrics["mass_in_flight"] + metrics["mass_lost"]
        assert total == pytest.approx(7, rel=1e-6)
    assert run.metrics[-1]["mass_lost"] > 0.1
    assert any(metrics["mass_in_flight"] > 0.01 for metrics in run.metrics)


@pytest.mark.parametrize("case", WITH_MASS)
def test_late_messages_lose_no_mass(case: str) -> None:
    run = gossamer.simulate(of(case, faults=Faults(late=((1, 2), (3, 1))), rounds=40))
    assert run.metrics[-1]["mass_lost"] == 0
    last = run.metrics[-1]
    assert last["mass_on_nodes"] + last["mass_in_flight"] == pytest.approx(7, rel=1e-6)


def delivery(faults: Faults, push_sum: bool = False) -> Delivery:
    if push_sum:
        return Delivery(Redrawn(DirectedRandom(2)), 9, 1, "lose_mass", faults)
    return Delivery(Redrawn(RandomRegular(4)), 9, 1, "keep_own", faults)


def test_a_node_makes_up_itself_for_what_does_not_reach_it() -> None:
    for round in range(20):
        links = delivery(replace(BAD, drop=0.5)).arrivals(round)
        np.testing.assert_allclose(np.bincount(links.receivers, links.weights), 1)
        assert (links.weights >= 0).all()


def test_messages_are_dropped_as_often_as_asked_and_never_ones_own() -> None:
    lossy, perfect = delivery(Faults(drop=0.3)), delivery(Faults())
    sent = sum(len(lossy.sent(t).senders) for t in range(300))
    lost = sum(len(lossy.lost(t).senders) for t in range(300))
    assert sent == sum(len(perfect.sent(t).senders) for t in range(300)) == 300 * 36
    assert abs(lost / sent - 0.3) < 5 * (0.3 * 0.7 / sent) ** 0.5
    arrived = lossy.arrivals(0)
    assert set(zip(arrived.receivers.tolist(), arrived.senders.tolist(), strict=True)) >= {(i, i) for i in range(9)}


def test_a_late_message_arrives_once_and_late() -> None:
    late = delivery(Faults(late=((4, 2),)), push_sum=True)
    for round in range(2, 10):
        links = late.arrivals(round)
        old = links.ages == 2
        sent = late.sent(round - 2)
        mine = sent.senders == 4
        assert sorted(links.receivers[old]) == sorted(sent.receivers[mine])
        assert set(links.senders[old]) == {4}
        assert not (links.senders[~old & (links.receivers != 4)] == 4).any()


def test_a_node_that_is_down_stays_as_it_is_and_is_not_heard() -> None:
    experiment = replace(QUADRATIC, algorithm=Dpsgd(), rounds=3, faults=Faults(down=((2, 2, 3),)))
    with Simulation(experiment, workers=1) as simulation:
        simulation.step()
        before = simulation.models().clone()
        simulation.step()
        after = simulation.models()
        assert torch.equal(after[2], before[2])
        assert not torch.equal(after[3], before[3])
        assert 2 not in {line["sender"] for line in simulation.ledger()}


@dataclass(frozen=True)
class Overflowing(Quadratic):
    """Its first node's loss is always infinite."""

    def gradient(self, models: torch.Tensor, *given: object) -> tuple[torch.Tensor, torch.Tensor]:
        losses, gradients = super().gradient(models, *given)
        losses[0] = float("inf")
        return losses, gradients


def test_the_loss_of_a_node_that_is_down_stops_no_run() -> None:
    task = Overflowing(dimension=53, num_samples=210)
    experiment = replace(QUADRATIC, algorithm=Dpsgd(), task=task, rounds=3, faults=Faults(down=((0, 1, 2),)))
    with Simulation(experiment, workers=1) as simulation:
        for _ in range(2):
            assert np.isfinite(simulation.step()["train_loss"])
        with pytest.raises(NodeError, match="the training loss of node 0 became inf in round 3"):
            simulation.step()


def test_a_trace_of_churn_is_followed(tmp_path: Path) -> None:
    trace = tmp_path / "churn"
    trace.write_text("2 0 down\n\n5 0 up\n3 1 down\n")
    up = [Faults(churn=str(trace)).up(3, t).tolist() for t in range(5)]
    assert up == [[True] * 3, [False, True, True], [False, False, True], [False, False, True], [True, False, True]]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"drop": 1.0}, "drop must be at least 0 and under 1"),
        ({"drop": "often"}, "drop must be at least 0 and under 1, 'often' was given"),
        ({"down": ((1, 3, 2),)}, r"down must be a list of \[node, first round, last round\], \[1, 3, 2\] was given"),
        ({"down": ((1, 3),)}, r"down must be a list of \[node, first round, last round\], \[1, 3\] was given"),
        ({"down": (1, 3, 5)}, r"down must be a list of \[node, first round, last round\], 1 was given"),
        ({"down": 4}, "down must be a list of lists of whole numbers, 4 was given"),
        ({"late": ((1, 0),)}, r"late must be a list of \[node, number of rounds\], \[1, 0\] was given"),
        ({"late": ((1, 0.5),)}, r"late must be a list of \[node, number of rounds\], \[1, 0.5\] was given"),
        ({"churn": 3}, "churn must be a text, 3 was given"),
        ({"late": ((9, 1),)}, "node 9 was given, and the nodes are 0 to 6"),
        ({"churn": "nowhere"}, "nowhere cannot be read"),
    ],
)
def test_faults_that_cannot_be_are_refused(faults: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Faults(**faults).check(7)


def test_a_damaged_trace_is_refused_with_its_line(tmp_path: Path) -> None:
    trace = tmp_path / "churn"
    trace.write_text("2 0 down\n2 0 sideways\n")
    with pytest.raises(ValueError, match="line 2: '2 0 sideways' was given"):
        Faults(churn=str(trace)).check(7)


def test_an_algorithm_whose_messages_are_not_made_good_refuses_faults() -> None:
    with pytest.raises(ExperimentError, match="d2 needs every message to arrive"):
        simulated(of("d2", faults=Faults(drop=0.1)))


def test_scsp_refuses_a_run_without_training() -> None:
    with pytest.raises(ExperimentError, match="rounds: 4 was given, and the last 4 only settle"):
        simulated(of("scsp", rounds=4))


def test_an_epidemic_takes_the_mean_of_what_came() -> None:
    experiment = of("epidemic", rounds=1, local_steps=1, faults=Faults(drop=0.4))
    with Simulation(experiment, workers=1) as simulation:
        simulation.step()
        models = simulation.models().clone()
    alone = simulated(replace(experiment, algorithm=LocalOnly()))
    links = experiment.delivery.arrivals(0)
    for i in range(7):
        torch.testing.assert_close(models[i], alone[links.senders[links.receivers == i]].mean(0))


def test_a_trace_that_changed_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    trace = tmp_path / "churn"
    trace.write_text("2 0 down\n")
    pinned = Faults(churn=str(trace)).with_digests()
    trace.write_text("3 0 down\n")
    with pytest.raises(ValueError, match="is not the one whose digest is"):
        pinned.with_digests()


@pytest.mark.parametrize("algorithm", [Dpsgd(), Jwins()])
def test_learning_goes_on_over_bad_links(algorithm: gossamer.Algorithm) -> None:
    base = replace(QUADRATIC, algorithm=algorithm, rounds=60, optimizer=gossamer.Optimizer(0.05))
    good = gossamer.simulate(base).result["distance_mean"]
    bad = gossamer.simulate(replace(base, faults=Faults(drop=0.2))).result["distance_mean"]
    assert bad < 1.3 * good


@pytest.mark.parametrize("algorithm", [Sgp(), SparsePush(TopK(0.3), 0.2)])
def test_push_sum_goes_on_over_bad_links(algorithm: gossamer.Algorithm) -> None:
    base = replace(QUADRATIC, algorithm=algorithm, topology=DirectedRandom(3), optimizer=gossamer.Optimizer(0.05))
    runs = [
        gossamer.simulate(replace(base, rounds=40, faults=faults)).result["distance_mean"]
        for faults in (Faults(), Faults(late=((1, 1), (2, 2))))
    ]
    assert runs[1] < 1.5 * runs[0]
