"""Push-sum without rounds in common: mass counts once, whenever it comes."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import gossamer
from contract import CASES, in_blocks, of
from gossamer.algorithms import Dpsgd, Jwins, Sgp
from gossamer.data import Digits
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.graphs.clock import Clock
from gossamer.graphs.delivery import NEVER
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRandom, Redrawn
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Optimizer

WITH_MASS = [case for case in CASES if CASES[case].conserves == "mass"]
SLOW = Faults(slow=((2, 3), (4, 5)))
LOSSY = replace(SLOW, drop=0.1, down=((0, 4, 6), (4, 7, 7)), late=((1, 2),))
PARTS = {
    "sgp": ["x"],
    "sparse-push": ["v"],
    "scsp-scaled-qsgd": ["v", "whole"],
    "quant-sgp": ["q"],
    "jwins-push": ["mass"],
}


def asynchronous(case: str, faults: Faults = SLOW, **changes: object) -> Experiment:
    return of(case, rounds=16, settle=4, asynchronous=True, faults=faults, **changes)


@pytest.mark.parametrize(("case", "faults"), [*((c, LOSSY) for c in WITH_MASS), ("sgp", SLOW), ("jwins-push", SLOW)])
def test_the_weight_is_on_nodes_on_its_way_or_lost_after_every_round(case: str, faults: Faults) -> None:
    run = gossamer.simulate(asynchronous(case, faults), workers=1)
    for row in run.metrics:
        assert row["mass_on_nodes"] + row["mass_in_flight"] + row["mass_lost"] == pytest.approx(7, abs=1e-6)
    assert any(row["mass_in_flight"] > 0.1 for row in run.metrics[:12])
    assert (run.metrics[-1]["mass_lost"] > 0) == (faults is LOSSY)
    if faults is SLOW:
        assert run.metrics[-1]["mass_in_flight"] == 0  # they settle together


@pytest.mark.parametrize("case", PARTS)
def test_the_sum_of_the_models_is_conserved_with_what_is_on_its_way(case: str) -> None:
    experiment = asynchronous(case, optimizer=Optimizer(learning_rate=1e-30))  # nothing is learned
    name = "mass" if case == "jwins-push" else "inner.x"
    with Simulation(experiment, workers=1) as simulation:
        start = {key: tensor.clone() for key, tensor in simulation.save().items()}
        start[name] = torch.randn(start[name].shape, generator=torch.Generator().manual_seed(1))
        simulation.restore(start, 0, simulation.totals)
        for exchange in range(experiment.rounds):
            metrics = simulation.step()
            total = simulation.save()[name].double().sum(0) + _on_the_way(simulation, case, exchange)
            torch.testing.assert_close(total, start[name].double().sum(0), atol=2e-6 * (exchange + 1), rtol=0)
            assert metrics["mass_on_nodes"] + metrics["mass_in_flight"] == pytest.approx(7, abs=1e-6)


def _on_the_way(simulation: Simulation, case: str, exchange: int) -> Tensor:
    """The sum of the shares of models in messages that are not taken in yet."""
    experiment, messages = simulation.experiment, simulation._shared.messages
    delivery, total = experiment.delivery, torch.zeros(53, dtype=torch.float64)
    for links in delivery.in_flight(exchange):
        for sender, age, weight in zip(
            links.senders.tolist(), links.ages.tolist(), links.weights.tolist(), strict=True
        ):
            for part in PARTS[case]:
                values = messages[part].values[delivery.slot(exchange - age, sender)]
                total += experiment.averaging_rate(exchange - age) * weight * values.double()
    return total


@pytest.mark.parametrize("case", WITH_MASS)
def test_nodes_with_clocks_of_their_own_are_in_blocks_as_in_the_simulator(case: str) -> None:
    experiment = asynchronous(case, LOSSY)
    models = gossamer.simulate(experiment, workers=1).models
    assert models is not None
    assert torch.equal(in_blocks(experiment, [[0, 4, 5], [1], [2, 3, 6]]), models)


@pytest.mark.parametrize("case", WITH_MASS)
def test_a_run_continued_in_the_middle_is_the_same(case: str) -> None:
    experiment = asynchronous(case, LOSSY)
    with Simulation(experiment, workers=1) as first:
        for _ in range(7):
            first.step()
        saved, totals = {name: tensor.clone() for name, tensor in first.save().items()}, dict(first.totals)
        rows = [first.step() for _ in range(7, 16)]
        whole = first.models().clone()
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, round=7, totals=totals)
        for row in rows:
            again = second.step()
            assert all(again[key] == row[key] for key in row if key != "seconds")
        assert torch.equal(second.models(), whole)


@pytest.mark.parametrize("exchanges", [1, 2])
def test_every_message_is_taken_in_once_by_a_receiver_that_is_ready(exchanges: int) -> None:
    delivery = asynchronous("sgp", LOSSY, exchanges=exchanges).delivery
    sent: Counter[tuple[int, int, int]] = Counter()
    taken: Counter[tuple[int, int, int]] = Counter()
    for t in range(12 * exchanges):
        links, at = delivery.sent(t), delivery.taken_at(t)
        assert all(delivery.up(int(e))[r] for r, e in zip(links.receivers, at, strict=True) if e != NEVER)
        arrive = links.where(at != NEVER)
        sent.update((s, r, t) for s, r in zip(arrive.senders.tolist(), arrive.receivers.tolist(), strict=True))
    for t in range((12 + 4) * exchanges):
        links = delivery.arrivals(t)
        columns = (column.tolist() for column in (links.senders, links.receivers, t - links.ages))
        taken.update((s, r, at) for s, r, at in zip(*columns, strict=True) if s != r and at < 12 * exchanges)
    assert taken == sent
    assert max(taken.values()) == 1


def test_what_reaches_a_node_that_goes_down_before_it_is_ready_is_lost() -> None:
    delivery = asynchronous("sgp", Faults(slow=((4, 5),), down=((4, 4, 4),))).delivery
    to_it = [delivery.taken_at(t)[delivery.sent(t).receivers == 4].tolist() for t in range(5)]
    assert [set(found) for found in to_it[:4]] == [{NEVER}] * 4  # it would have been ready in exchange 4
    assert set(to_it[4]) == {4}


def test_speeds_of_a_clock_are_as_slow_nodes() -> None:
    experiment = replace(asynchronous("sgp", Faults()), clock=Clock(step_seconds=(0.1,) * 6 + (0.5,)))
    by_clock = gossamer.simulate(experiment, workers=1)
    by_faults = gossamer.simulate(replace(experiment, faults=Faults(slow=((6, 5),)), clock=Clock()), workers=1)
    assert torch.equal(by_clock.models, by_faults.models)
    assert by_clock.metrics[5]["mass_in_flight"] == by_faults.metrics[5]["mass_in_flight"] > 0


DIRECTED = Experiment(
    nodes=8, rounds=60, settle=6, task=Digits(), algorithm=Sgp(), topology=Redrawn(DirectedRandom(2)),
    optimizer=Optimizer(0.1), evaluation=Evaluation(every=1000, nodes="all", samples="all"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", ["sgp", "sparse-push", "scsp", "quant-sgp", "jwins-push"])
def test_the_digits_are_learned_as_well_with_one_node_that_is_five_times_slower(case: str) -> None:
    together = replace(DIRECTED, algorithm=CASES[case].algorithm)
    apart = replace(together, asynchronous=True, faults=Faults(slow=((5, 5),)))
    accuracies = [gossamer.simulate(each).result["accuracy_mean"] for each in (together, apart)]
    assert accuracies[1] > accuracies[0] - 0.02


@pytest.mark.parametrize("algorithm", [Dpsgd(), Jwins()])
def test_what_averages_with_messages_of_a_round_is_refused(algorithm: gossamer.Algorithm) -> None:
    with pytest.raises(ExperimentError, match=r"needs the messages of one round at a time.*such as sgp"):
        gossamer.simulate(replace(of("dpsgd"), algorithm=algorithm, asynchronous=True))
