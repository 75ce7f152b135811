"""The last phase: rounds that exchange without training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

import gossamer as gs
from contract import CASES, QUADRATIC, in_blocks, of, simulated
from gossamer.algorithms import Choco, DeepSqueeze, Jwins, Scsp, Silk, SparsePush
from gossamer.cli.main import cli
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRandom, RandomRegular
from gossamer.simulator.simulation import Simulation

ROUNDS, SETTLE = 18, 12


def models_before_and_after(experiment: Experiment) -> tuple[Tensor, Tensor, list[dict[str, Any]]]:
    metrics = []
    with Simulation(experiment, 1) as simulation:
        while simulation.round < experiment.rounds:
            if simulation.round == experiment.training_rounds:
                before = simulation.models().clone()
            metrics.append(simulation.step())
        return before, simulation.models().clone(), metrics


def distance(models: Tensor) -> float:
    return (models - models.mean(0)).norm(dim=1).mean().item()


@pytest.mark.parametrize("case", [case for case in CASES if case != "local-only"])
def test_models_that_settle_come_together_where_their_exchange_leads(case: str) -> None:
    before, after, metrics = models_before_and_after(of(case, rounds=ROUNDS, settle=SETTLE))
    assert distance(after) < 0.7 * distance(before) + 1e-6
    assert ["train_loss" in row for row in metrics] == [True] * (ROUNDS - SETTLE) + [False] * SETTLE
    if CASES[case].conserves == "mean":
        torch.testing.assert_close(after.mean(0), before.mean(0), atol=2e-5, rtol=1e-5)


def test_models_of_nodes_that_share_nothing_stay_as_they_are() -> None:
    before, after, _ = models_before_and_after(of("local-only", rounds=4, settle=2))
    assert torch.equal(before, after)


@pytest.mark.parametrize("algorithm", [Jwins(), Choco(TopK(0.1), 0.1), DeepSqueeze(TopK(0.1), 0.1)], ids=str)
def test_where_entries_are_chosen_all_are_sent_and_it_is_plain_averaging(algorithm: Algorithm) -> None:
    experiment = replace(QUADRATIC, topology=RandomRegular(degree=4), algorithm=algorithm, rounds=4, settle=1)
    before, after, _ = models_before_and_after(experiment)
    mixing = experiment.topology.at(7, experiment.seed, 3)
    weights = torch.zeros(7, 7, dtype=torch.float64)
    weights[mixing.receivers.tolist(), mixing.senders.tolist()] = torch.tensor(
        mixing.weights.tolist(), dtype=torch.float64
    )
    torch.testing.assert_close(after, (weights @ before.double()).float(), atol=2e-5, rtol=1e-5)


def test_scsp_is_sparse_push_that_settles() -> None:
    directed = replace(QUADRATIC, topology=DirectedRandom(2), rounds=9)
    as_paper = replace(directed, algorithm=Scsp(TopK(0.3), 0.2, full_rounds=4))
    as_settings = replace(directed, algorithm=SparsePush(TopK(0.3), 0.2), settle=4)
    assert torch.equal(simulated(as_paper), simulated(as_settings))


@pytest.mark.parametrize("case", ["jwins", "choco", "silk", "sparse-push", "dcd-psgd", "jwins-push", "jwins-8-bit"])
def test_nodes_that_settle_by_bytes_alone_have_the_models_of_the_simulator(case: str) -> None:
    experiment = of(case, settle=3)
    assert torch.equal(in_blocks(experiment, [[i] for i in range(7)]), simulated(experiment, workers=2))


def test_results_tell_nodes_before_and_after_and_the_mean_model(tmp_path: Path) -> None:
    experiment = gs.Experiment(
        rounds=46, settle=6, algorithm=Silk(), partition=gs.LabelShards(), evaluation=Evaluation(every=50, nodes="all")
    )
    run = gs.simulate(experiment, tmp_path / "run")
    assert [row["round"] for row in run.metrics if "test_loss" in row] == [40, 46]
    assert run.result["accuracy_mean_before_settle"] == run.metrics[39]["accuracy_mean"]
    assert run.result["accuracy_mean"] == run.metrics[45]["accuracy_mean"]
    assert run.result["accuracy_mean"] > run.result["accuracy_mean_before_settle"] + 0.02
    assert run.result["accuracy_of_mean_model"] == pytest.approx(run.result["accuracy_mean"], abs=0.1)
    assert run.result["train_loss"] == run.metrics[39]["train_loss"]
    assert "before_settle" not in str(gs.simulate(replace(experiment, settle=0, rounds=2)).result)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "before settling" in page


def test_a_run_that_must_not_settle_for_ever_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"rounds: 8 was given, and the last 8 only settle.*a smaller settle"):
        simulated(replace(QUADRATIC, rounds=8, settle=8))
    with pytest.raises(ExperimentError, match=r"the last 40 only settle.*a smaller full_rounds"):
        simulated(replace(QUADRATIC, topology=DirectedRandom(2), rounds=8, algorithm=Scsp(TopK(0.3), 0.2)))
    with pytest.raises(ValueError, match="settle must be at least 0, -1 was given"):
        replace(QUADRATIC, settle=-1)


def test_mass_that_is_lost_while_models_settle_is_accounted_for() -> None:
    lossy = of("sparse-push", rounds=ROUNDS, settle=SETTLE, faults=Faults(drop=0.2))
    _, _, metrics = models_before_and_after(lossy)
    for row in metrics:
        assert row["mass_on_nodes"] + row["mass_lost"] == pytest.approx(7, abs=1e-6)
    assert metrics[-1]["mass_lost"] > metrics[ROUNDS - SETTLE]["mass_lost"] + 0.1


@pytest.mark.parametrize("case", ["sparse-push", "scsp", "scsp-scaled-qsgd", "quant-sgp"])
def test_mass_that_is_on_its_way_when_the_rate_changes_counts_by_the_rate_of_its_sender(case: str) -> None:
    late = of(case, rounds=ROUNDS, settle=SETTLE, faults=Faults(late=((1, 2), (3, 1))))
    _, _, metrics = models_before_and_after(late)
    for row in metrics:
        assert row["mass_on_nodes"] + row["mass_in_flight"] == pytest.approx(7, abs=1e-6)


def test_rounds_that_settle_spend_no_privacy() -> None:
    private = replace(QUADRATIC, privacy=gs.Privacy(clip=1.0, noise=1.0))
    epsilons = [gs.simulate(replace(private, rounds=r, settle=s)).result["epsilon"] for r, s in ((4, 0), (6, 2))]
    assert epsilons[0] == epsilons[1]


@pytest.mark.parametrize(
    ("algorithm", "rounds", "settle", "told"),
    [
        (Jwins(), 2, 0, None),
        (Jwins(), 4, 2, "had settled for 2 rounds already; these are 3 more"),
        (Scsp(TopK(0.3), 0.2, full_rounds=2), 4, 0, "had settled for 2 rounds already; these are 3 more"),
    ],
)
def test_the_command_says_when_a_run_has_settled_before(
    algorithm: Algorithm, rounds: int, settle: int, told: str | None, tmp_path: Path
) -> None:
    topology = DirectedRandom(2) if isinstance(algorithm, Scsp) else RandomRegular(4)
    run = replace(QUADRATIC, rounds=rounds, settle=settle, algorithm=algorithm, topology=topology)
    gs.simulate(run, tmp_path / "run", workers=1)
    result = CliRunner().invoke(cli, ["settle", str(tmp_path / "run"), "--rounds", "3", "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert (told in result.stderr) if told else ("already" not in result.stderr)
