"""Plans, against what the runs then take."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gossamer
from gossamer.algorithms import Choco, Dpsgd, Jwins, JwinsPush, LocalOnly, QuantizedJwins, Scsp
from gossamer.compressors import TopK
from gossamer.data import Quadratic, Supervised
from gossamer.data.partition import LabelShards
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.experiments.recipes import RECIPES, dpsgd_digits, jwins_digits, lace_digits, scsp_ring
from gossamer.graphs.clock import Clock
from gossamer.graphs.facts import facts
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRing, FullyConnected, Matchings, RandomMatching, Redrawn, Ring, Torus
from gossamer.simulator.plan import Plan, plan
from gossamer.simulator.rehearsal import resident_bytes

KINDS = ("bytes_total", "bytes_values", "bytes_metadata")


def errors(found: Plan, result: Any) -> dict[str, float]:
    """How far off the bytes are, as shares of what was sent in all."""
    return {kind: abs(getattr(found, kind) - result[kind]) / result["bytes_total"] for kind in KINDS}


@pytest.fixture
def _processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have other things to do."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)


@pytest.fixture
def _counted_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes five milliseconds, so that as many rounds are rehearsed on every machine."""
    looks = count()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.005 * next(looks))


@pytest.mark.usefixtures("_counted_time")
@pytest.mark.parametrize(
    "experiment",
    [
        replace(jwins_digits(), algorithm=Jwins(budget=0.2), settle=5, rounds=60),
        replace(lace_digits(), rounds=84),
        replace(scsp_ring(), rounds=100, algorithm=Scsp(TopK(0.01), full_rounds=20)),
        replace(dpsgd_digits(), nodes=7, topology=Redrawn(RandomMatching()), rounds=200),
        pytest.param(jwins_digits(), marks=pytest.mark.slow),
        pytest.param(lace_digits(), marks=pytest.mark.slow),
        pytest.param(
            replace(jwins_digits(), algorithm=QuantizedJwins(), rounds=60, exchanges=2), marks=pytest.mark.slow
        ),
        pytest.param(
            replace(jwins_digits(), algorithm=JwinsPush(), topology=DirectedRing(), rounds=60), marks=pytest.mark.slow
        ),
    ],
    ids=lambda experiment: f"{experiment.algorithm.__class__.__name__}-{experiment.rounds}",
)
def test_the_bytes_of_a_run_are_known_to_five_percent(experiment: Experiment) -> None:
    found = plan(experiment, workers=1, seconds=0.1)
    assert found.rounds_rehearsed < experiment.rounds / 2, "it would prove nothing"
    assert max(errors(found, gossamer.simulate(experiment, workers=1).result).values()) < 0.05


@pytest.mark.usefixtures("_processor_time")
def test_lost_messages_are_in_a_plan() -> None:
    experiment = replace(RECIPES["silk-digits"](), rounds=60, faults=Faults(drop=0.2))
    found, result = plan(experiment, workers=1, seconds=0.3), gossamer.simulate(experiment, workers=1).result
    assert max(errors(found, result).values()) < 0.05
    assert found.bytes_resync == pytest.approx(result["bytes_resync"], rel=0.2)


@pytest.mark.usefixtures("_processor_time")
@pytest.mark.parametrize(
    "name",
    ["dpsgd-digits", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jwins-digits", "lace-digits"))],
)
def test_the_processor_time_of_a_run_is_known_to_a_factor_of_two(name: str) -> None:
    """Nearer on a quiet machine (docs/plan.md); what else runs changes the processor time of the same work."""
    experiment = RECIPES[name]()
    result = gossamer.simulate(experiment, workers=1).result
    assert 0.5 < plan(experiment, workers=1, seconds=0.7).seconds / result["seconds"] < 2


@pytest.mark.usefixtures("_processor_time")
def test_virtual_time_and_energy_are_in_a_plan() -> None:
    for experiment in (jwins_digits(), lace_digits()):
        timed = replace(experiment, rounds=60, clock=Clock("lora", 0.02))
        found, result = plan(timed, workers=1, seconds=0.1), gossamer.simulate(timed, workers=1).result
        assert found.clock_seconds == pytest.approx(result["clock_seconds"], rel=0.3)  # what is sent is drawn
        assert found.energy_joules_mean == pytest.approx(result["energy_joules_mean"], rel=0.3)
    assert plan(jwins_digits(), workers=1, seconds=0).clock_seconds is None


def test_a_plan_leaves_nothing_behind_and_can_be_written_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state(), torch.get_num_threads()
    found = gossamer.plan(replace(dpsgd_digits(), rounds=5), workers=1, seconds=0)
    assert not list(tmp_path.iterdir())
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == torch.get_num_threads()
    assert json.loads(json.dumps(asdict(found)))["graph"]["degree_max"] == 4
    assert found.parameters == 4810
    assert np.sum(found.labels) == 1437
    assert (np.array(found.labels) > 0).sum(1).max() <= 3  # two shards of samples sorted by label
    assert gossamer.plan(Experiment(task=Quadratic(), rounds=5), seconds=0).bytes_total > 0
    with pytest.raises(ExperimentError, match="plan takes an Experiment"):
        gossamer.plan("dpsgd-digits")  # type: ignore[arg-type]


def test_an_algorithm_that_sends_nothing_has_no_bytes() -> None:
    found = plan(replace(dpsgd_digits(), algorithm=LocalOnly(), rounds=20), workers=1, seconds=0)
    assert (found.bytes_total, found.bytes_per_round) == (0, 0)


def test_what_is_known_of_a_graph() -> None:
    ring = facts(Ring(), 8, 0)
    assert (ring.degree_min, ring.degree_max, ring.diameter, ring.strongly_connected, ring.period) == (2, 2, 4, True, 1)
    assert ring.spectral_gap == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 4)) / 3)  # weights of a third each
    assert facts(FullyConnected(), 8, 0).spectral_gap == pytest.approx(1)
    assert facts(DirectedRing(), 8, 0).diameter == 7
    assert facts(Torus(), 16, 0).diameter == 4
    pairings = facts(Matchings(), 8, 0)  # the hypercube: exact after three meetings
    assert (pairings.period, pairings.degree_max, pairings.diameter, pairings.spectral_gap) == (3, 1, 3, 0)
    assert pairings.spectral_gap_of_period == pytest.approx(1)
    alone = facts(RandomMatching(), 8, 0)
    assert (alone.strongly_connected, alone.diameter) == (False, None)
    assert facts(Redrawn(RandomMatching()), 8, 0).strongly_connected


def warnings_of(experiment: Experiment) -> str:
    return " ".join(plan(replace(experiment, rounds=12), workers=1, seconds=0).warnings)


def test_what_will_go_wrong_is_told_before() -> None:
    inputs, targets = torch.randn(400, 8), torch.arange(400) % 10

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))

    task = Supervised(model, (inputs, targets), (inputs, targets))
    plain = replace(dpsgd_digits(), evaluation=Evaluation(every=12, nodes=0, samples=50))
    assert warnings_of(plain) == ""
    assert "batch normalization" in warnings_of(replace(plain, task=task, partition=LabelShards(2)))
    assert "batch normalization" not in warnings_of(replace(plain, task=task, partition=gossamer.Iid()))
    assert "not connected" in warnings_of(replace(plain, topology=RandomMatching()))
    assert "averaging rate is 1 and the rule says" in warnings_of(replace(plain, algorithm=Choco(TopK(0.05), 1.0)))
    assert warnings_of(replace(plain, algorithm=Choco(TopK(0.05)))) == ""
    tested = replace(plain, local_steps=1, batch_size=1, evaluation=Evaluation(every=1, nodes="all", samples="all"))
    assert "testing takes" in warnings_of(tested)
    lora = warnings_of(replace(plain, algorithm=Dpsgd(), clock=Clock("lora", battery_wh=0.001)))
    assert "hours; take an algorithm that sends less" in lora
    assert "times its battery of 0.001 Wh" in lora


def test_what_does_not_fit_into_memory_is_refused_before_it_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.simulator.plan.free_bytes", lambda: 10**5)
    with pytest.raises(ExperimentError, match=r"16 nodes take .* GB, and 0\.0 GB are free; take fewer nodes"):
        plan(dpsgd_digits(), workers=1)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("name", ["dpsgd-digits", "jwins-digits", "lace-digits"])
def test_the_memory_of_a_run_is_known_to_thirty_percent(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gossamer"]
    told = subprocess.run([*command, "plan", name, "--json"], capture_output=True, text=True, check=True).stdout
    run = [*command, "run", name, "--rounds", "60", "--out", str(tmp_path / "run")]
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        most = 0
        while process.poll() is None:
            most = max(most, resident_bytes(process.pid))
            time.sleep(0.05)
    assert process.returncode == 0
    assert json.loads(told)["memory_bytes"] == pytest.approx(most, rel=0.3)


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_virtual_time_of_a_run_as_short_as_its_rehearsal_is_exact(rounds: int) -> None:
    ring = replace(jwins_digits(), nodes=4, topology=Ring(), rounds=rounds, clock=Clock("lora", 0.02))
    found, result = plan(ring, workers=1, seconds=0.1), gossamer.simulate(ring, workers=1).result
    assert found.clock_seconds == pytest.approx(result["clock_seconds"], rel=1e-9)
