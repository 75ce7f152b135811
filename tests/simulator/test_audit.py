"""Membership inference by neighbours: it finds what is memorized, and nothing under differential privacy."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import gossamer as gs
from gossamer.cli.main import cli
from gossamer.core import Algorithm
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.simulator.audit import Halves, _attack, _likelihood_ratios, audit
from gossamer.simulator.simulation import Simulation


def memorized(**changes: object) -> Experiment:
    """Labels by chance: all that a model can learn is the samples themselves."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(400, 20, generator=generator), torch.randint(0, 4, (400,), generator=generator)
    task = gs.Supervised(
        model=lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)),
        train=(inputs[:200], labels[:200]), test=(inputs[200:], labels[200:]),
    )  # fmt: skip
    small = {"task": task, "nodes": 4, "rounds": 8, "local_steps": 40, "topology": gs.Ring()}
    return Experiment(optimizer=gs.Optimizer(0.2), **{**small, **changes})


@pytest.mark.slow
def test_a_model_overfitted_on_purpose_gives_its_data_away_and_a_private_one_does_not() -> None:
    found = {}
    for name, privacy in (("plain", gs.Privacy()), ("private", gs.Privacy(clip=1.0, noise=2.0))):
        run = gs.simulate(memorized(privacy=privacy), workers=1)
        found[name] = audit(run, nodes=2, shadows=8, workers=1)
    plain, private = found["plain"], found["private"]
    assert plain.loss.auc > 0.8
    assert plain.likelihood_ratio is not None
    assert plain.likelihood_ratio.auc > 0.8
    assert plain.epsilon is None
    assert private.likelihood_ratio is not None
    assert private.loss.auc < 0.6
    assert private.likelihood_ratio.auc < 0.6
    assert private.epsilon == pytest.approx(gs.Privacy(clip=1.0, noise=2.0).epsilon(8), rel=1e-3)
    assert (plain.nodes, plain.neighbours) == ((0, 3), (1, 0))


@pytest.mark.parametrize(
    ("algorithm", "near"),
    [
        (gs.Dpsgd(), 0.0),
        (gs.Jwins(budget=1.0), 1e-3),
        (gs.RelativeToInit(gs.QuantizedJwins(budget=1.0)), 0.02),
        (gs.Choco(gs.NoCompression(), 1.0), 1e-3),
        (gs.Silk(), 0.9),
    ],
)
def test_a_neighbours_view_is_the_model_that_was_sent(algorithm: Algorithm, near: float) -> None:
    """With everything sent it is the model before the exchange; with few signs, some of the way to it."""
    experiment = memorized(algorithm=algorithm, rounds=2)
    with Simulation(experiment, workers=1) as simulation:
        simulation.step()
        before = simulation.models().clone()
        simulation.step()
        last = {name: part.values[:1].clone() for name, part in simulation.messages().items()}
        view = simulation.experiment.algorithm.neighbours_view(last, simulation.task.initial_model(0)[None])
        assert view is not None
        if isinstance(algorithm, gs.Dpsgd):
            w = torch.from_numpy(experiment.topology.at(4, 0, 0).dense())
            sent = simulation.messages()["x"].values
            torch.testing.assert_close((w @ sent.double()).float(), simulation.models())
            assert torch.equal(view, sent[:1])
        elif near < 0.1:
            dpsgd = memorized(algorithm=gs.Dpsgd(), rounds=2)
            with Simulation(dpsgd, workers=1) as plain:
                plain.step()
                plain.step()
                torch.testing.assert_close(view, plain.messages()["x"].values[:1], atol=near, rtol=near)
        else:
            moved = (simulation.models()[0] - simulation.task.initial_model(0)).norm()
            assert (view[0] - simulation.models()[0]).norm() < moved
    assert before.isfinite().all()


def test_an_attack_counts_ranks_and_ties() -> None:
    members = np.array([True, True, True, False, False, False])
    assert _attack(np.array([3.0, 4, 5, 0, 1, 2]), members).auc == 1
    assert _attack(np.array([0.0, 1, 2, 3, 4, 5]), members).auc == 0
    assert _attack(np.ones(6), members).auc == 0.5
    assert _attack(np.array([0.0, 2, 4, 1, 3, 5]), members).auc == pytest.approx(3 / 9)
    assert _attack(np.array([3.0, 4, 1, 0, 1, 2]), members).true_positives_at_1_percent == pytest.approx(2 / 3)


def test_likelihood_ratios_are_larger_where_the_loss_is_as_with_the_sample() -> None:
    inside = np.array([[True, False], [False, True], [True, False], [False, True]])
    shadows = np.where(inside, 0.1, 2.0) + np.array([[0.01], [-0.01], [0.02], [0.0]])
    ratios = _likelihood_ratios(np.array([0.1, 2.0]), shadows, inside, True)
    assert ratios[0] > 10
    assert ratios[1] < -10


def test_every_sample_is_in_half_of_the_shadows() -> None:
    shards = Halves().split(None, None, 30, 6, seed=1)
    counts = np.bincount(np.concatenate(shards), minlength=30)
    assert (counts == 3).all()


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, {"shadows": 3}, "shadows must be an even number, or 0, 3 was given"),
        ({}, {"nodes": 5}, "nodes must be from 1 to 4, 5 was given"),
        ({"faults": gs.Faults(drop=0.1)}, {}, "take a run without faults"),
        ({"exchanges": 2}, {}, "one exchange per round"),
        ({"algorithm": gs.LocalOnly()}, {"shadows": 0}, "cannot read the messages of local-only"),
        ({"task": gs.Quadratic()}, {"shadows": 0}, "needs data that are tensors; quadratic has others"),
    ],
)
def test_what_cannot_be_audited_is_refused(changes: dict[str, object], arguments: dict[str, int], words: str) -> None:
    run = gs.simulate(memorized(**{"rounds": 1, "local_steps": 1, **changes}), workers=1)
    with pytest.raises(ExperimentError, match=words):
        audit(run, **{"nodes": 1, "workers": 1, **arguments})


def test_a_run_that_is_not_complete_or_cannot_be_repeated_is_refused() -> None:
    run = gs.simulate(memorized(rounds=1, local_steps=1), workers=1)
    longer = replace(run, experiment=memorized(rounds=2, local_steps=1))
    with pytest.raises(ExperimentError, match="is not complete; continue it with gossamer resume"):
        audit(replace(longer, weights=None), 1, 0, workers=1)
    with pytest.raises(ExperimentError, match=r"was ended by a callback after round 1 of 2; an audit, .* needs all"):
        audit(longer, 1, 0, workers=1)
    other = replace(run, experiment=memorized(rounds=1, local_steps=2))
    with pytest.raises(ExperimentError, match="repeated gave other models"):
        audit(other, 1, 0, workers=1)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    gs.simulate(gs.Experiment(nodes=4, rounds=2, topology=gs.Ring()), directory, workers=1)
    words = ["audit", str(directory), "--nodes", "1", "--workers", "1"]
    told = CliRunner().invoke(cli, [*words, "--shadows", "2"])
    assert told.exit_code == 0, told.output
    assert "likelihood ratio" in told.output
    as_json = CliRunner().invoke(cli, [*words, "--shadows", "0", "--json"])
    assert json.loads(as_json.stdout)["likelihood_ratio"] is None
