"""Cumulative parts: replicas that survive lost messages, nodes that go away, and graphs that change."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gossamer
from contract import CASES, QUADRATIC, in_blocks, of
from gossamer.algorithms import Choco, Silk
from gossamer.compressors import TopK
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Wire
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import Matchings, RandomRegular, Redrawn
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Optimizer

CUMULATIVE = [case for case in CASES if any(spec.cumulative for spec in CASES[case].algorithm.parts.values())]
BAD = Faults(drop=0.3, down=((2, 2, 7), (5, 4, 6)), late=((1, 2), (3, 1)))
LARGE = {"task": Quadratic(dimension=400, num_samples=210)}  # a frame is then a small part of a model


def test_the_algorithms_with_replicas_are_held_to_this() -> None:
    assert {"choco", "silk", "lace", "quant-sgp", "dcd-psgd"} <= set(CUMULATIVE)


@pytest.mark.parametrize("case", CUMULATIVE)
@pytest.mark.parametrize("faults", [Faults(), BAD])
def test_blocks_that_exchange_only_bytes_have_the_simulators_models_and_its_ledger(
    case: str, faults: Faults, tmp_path: Path
) -> None:
    experiment = of(case, faults=faults, rounds=12, wire=Wire(ledger=True), **LARGE)
    run = gossamer.simulate(experiment, out=tmp_path / "run")
    ledger: dict[tuple[int, int, int], int] = {}
    assert run.models is not None
    assert run.models.isfinite().all()
    assert torch.equal(in_blocks(experiment, [[0, 4, 5], [1], [2, 3, 6]], ledger), run.models)
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    kinds = ("header", "indices", "values", "resync")
    times = [(e["round"] - 1) * experiment.exchanges + e.get("exchange", 0) + 1 for e in lines]
    counts = [sum(e.get(kind, 0) for kind in kinds) for e in lines]
    links = [(e["sender"], e["receiver"]) for e in lines]
    assert {(t, *link): count for t, link, count in zip(times, links, counts, strict=True)} == ledger
    assert run.result["bytes_total"] == sum(ledger.values())
    in_pairs = isinstance(experiment.topology, Matchings)  # whose channels have the same links for ever
    changing = faults.any or not (experiment.topology.static or in_pairs)
    assert ("bytes_resync" in run.result) == changing
    if changing:
        assert 0 < run.result["bytes_resync"] == sum(e["resync"] for e in lines) < run.result["bytes_total"]


def test_both_ways_of_resending_are_taken_in_these_runs(tmp_path: Path) -> None:
    gossamer.simulate(of("choco", faults=BAD, rounds=12, wire=Wire(ledger=True), **LARGE), out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    again = [line for line in lines if line["resync"]]
    assert any(line["header"] == 0 for line in again)  # a resync frame instead of the round's own
    assert any(line["header"] > 0 for line in again)  # earlier frames beside it


@pytest.mark.parametrize("case", CUMULATIVE)
def test_a_run_with_faults_through_real_bytes_is_the_run_that_counts_them(case: str) -> None:
    counted, encoded = (
        gossamer.simulate(of(case, faults=BAD, rounds=12, wire=Wire(mode), **LARGE), workers=1)
        for mode in ("count", "encode")
    )
    assert torch.equal(counted.models, encoded.models)
    assert counted.result["bytes_resync"] == encoded.result["bytes_resync"] > 0


@pytest.mark.parametrize("case", CUMULATIVE)
def test_a_continued_run_counts_what_the_whole_one_counts(case: str) -> None:
    experiment = of(case, faults=BAD, rounds=8)
    whole = gossamer.simulate(experiment)
    with Simulation(experiment, workers=2) as first:
        for _ in range(4):
            first.step()
        saved, totals = {name: tensor.clone() for name, tensor in first.save().items()}, dict(first.totals)
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, round=4, totals=totals)
        rest = [second.step() for _ in range(4)]
        assert torch.equal(second.models(), whole.models)
    assert [m["bytes_resync"] for m in rest] == [m["bytes_resync"] for m in whole.metrics[4:]]


@pytest.mark.parametrize("faults", [Faults(), BAD])
def test_what_receivers_add_up_is_what_the_sender_believes(faults: Faults) -> None:
    with Simulation(of("choco", faults=faults, rounds=9), workers=2) as simulation:
        for t in range(9):
            simulation.step()
            saved = simulation.save()
            first = t % faults.depth * 7
            assert torch.equal(saved["messages.q.values"][first : first + 7], saved["replica"])


def test_without_faults_nothing_is_resent() -> None:
    run = gossamer.simulate(of("choco", topology=RandomRegular(4)))
    assert "bytes_resync" not in run.result
    late = gossamer.simulate(of("choco", topology=RandomRegular(4), faults=Faults(late=((1, 2),))))
    assert late.result["bytes_resync"] == 0  # late is not lost
    assert late.result["bytes_total"] == pytest.approx(run.result["bytes_total"], rel=0.05)


def test_a_node_that_comes_back_costs_its_neighbours_and_not_itself() -> None:
    experiment = of("choco", topology=RandomRegular(4), rounds=6, faults=Faults(down=((2, 2, 3),)), **LARGE)
    with Simulation(experiment, workers=1) as simulation:
        resync = []
        for _ in range(6):
            simulation.step()
            resync.append({(e["sender"], e["receiver"]): e["resync"] for e in simulation.ledger() if e["resync"]})
    neighbours = set(experiment.topology.at(7, 3, 0).dense()[2].nonzero()[0].tolist()) - {2}
    assert resync[0] == resync[1] == resync[4] == resync[5] == {}
    assert set(resync[2]) == set(resync[3]) == {(j, 2) for j in neighbours}  # still down, and back


@pytest.mark.parametrize("algorithm", [Choco(TopK(0.3), 0.4), Silk(kept=0.3, rate=0.4)])
@pytest.mark.parametrize(
    "changes",
    [
        {"faults": Faults(drop=0.2)},
        {"faults": Faults(down=((2, 10, 40),))},
        {"faults": Faults(late=((1, 1), (2, 2)))},
        {"topology": Redrawn(RandomRegular(4))},
    ],
    ids=["drop", "down", "late", "redrawn"],
)
def test_learning_goes_on_with_replicas_over_bad_links(algorithm: gossamer.Algorithm, changes: dict) -> None:
    base = replace(QUADRATIC, algorithm=algorithm, topology=RandomRegular(4), rounds=80, optimizer=Optimizer(0.05))
    good, bad = (gossamer.simulate(replace(base, **c)).result["distance_mean"] for c in ({}, changes))
    assert bad < 1.3 * good


def test_two_way_outages_conserve_the_mean_and_one_way_losses_move_it_a_little() -> None:
    """Without gradients: a node that is down is missing in both directions of its links."""
    drift = {}
    for name, faults in {"down": Faults(down=((2, 3, 9),)), "drop": Faults(drop=0.3)}.items():
        experiment = of("choco", rounds=30, faults=faults, optimizer=Optimizer(1e-30))
        with Simulation(experiment, workers=1) as simulation:
            x = torch.randn(7, 53, generator=torch.Generator().manual_seed(1))
            start = {key: tensor.clone() for key, tensor in simulation.save().items()} | {"x": x}
            simulation.restore(start, 0, simulation.totals)
            for _ in range(30):
                simulation.step()
            after = simulation.models()
        assert (after - after.mean(0)).norm() < 0.02 * (x - x.mean(0)).norm()
        drift[name] = ((after.double().mean(0) - x.double().mean(0)).norm() / x.double().mean(0).norm()).item()
    assert drift["down"] < 1e-6
    assert 1e-3 < drift["drop"] < 0.5
