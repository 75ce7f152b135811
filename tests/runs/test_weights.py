"""Trained models come back as modules and files, with what the run was tested with, to the last bit."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import gossamer as gs
from contract import QUADRATIC
from gossamer.cli.main import cli
from gossamer.runs import checkpoint

points = torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
inside = (points.norm(dim=1) < 1).long()
TASK = gs.Supervised(
    model=lambda: nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)),
    train=(points[:300], inside[:300]),
    test=(points[300:], inside[300:]),
)
EXPERIMENT = gs.Experiment(
    task=TASK,
    nodes=4,
    rounds=7,
    topology=gs.DirectedRing(),
    partition=gs.Iid(),
    algorithm=gs.Sgp(),
    evaluation=gs.Evaluation(samples="all", nodes="all"),
)
CASES = {
    "push-sum": EXPERIMENT,
    "push-sum with momentum": replace(EXPERIMENT, optimizer=gs.Optimizer(momentum=0.9, weight_decay=1e-3)),
    "relative to the start": replace(
        EXPERIMENT, local_steps=1, algorithm=gs.RelativeToInit(gs.SparsePush(gs.TopK(0.5)))
    ),
    "silk": replace(EXPERIMENT, topology=gs.Ring(), algorithm=gs.Silk()),
    "a module that is there already": replace(EXPERIMENT, task=replace(TASK, model=TASK.model())),
}


def accuracy(module: nn.Module) -> float:
    assert not module.training
    with torch.no_grad():
        return (module(points[300:]).argmax(1) == inside[300:]).float().mean().item()


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("case", CASES)
def test_modules_have_the_accuracy_that_the_run_reported_also_when_it_is_opened_again(
    case: str, tmp_path: Path
) -> None:
    done = gs.simulate(CASES[case], tmp_path / "run", workers=1)
    opened = gs.open_run(tmp_path / "run", CASES[case])
    assert torch.equal(opened.models, done.models)
    for run in (done, opened):
        assert accuracy(run.module()) == pytest.approx(run.result["accuracy_of_mean_model"], abs=1e-6)
        scores = [accuracy(run.module(node)) for node in range(4)]
        assert sum(scores) / 4 == pytest.approx(run.result["accuracy_mean"], abs=1e-6)
        assert min(scores) == pytest.approx(run.result["accuracy_min"], abs=1e-6)
    for node in ("mean", 0, 3):
        assert same(opened.state_dict(node), done.state_dict(node))
    assert not torch.equal(done.state_dict(0)["1.running_mean"], done.state_dict(3)["1.running_mean"])
    assert done.module(2)(points[:1]).shape == (1, 2)


def test_a_module_is_a_copy(tmp_path: Path) -> None:
    run = gs.simulate(EXPERIMENT, workers=1)
    before = run.state_dict(1)
    with torch.inference_mode():
        for parameter in run.module(1).parameters():
            parameter.zero_()
    assert same(run.state_dict(1), before)
    assert same(run.state_dict(np.int64(1)), before)


@pytest.mark.parametrize("node", [4, -1, True, "first", 1.0])
def test_a_node_that_there_is_not_is_refused(node: object) -> None:
    run = gs.simulate(replace(EXPERIMENT, rounds=1), workers=1)
    with pytest.raises(gs.ExperimentError, match=rf'^node must be "mean" or 0 to 3, {node!r} was given$'):
        run.module(node)


class CrashError(Exception):
    pass


def test_a_run_that_stopped_has_the_models_of_its_checkpoint(tmp_path: Path) -> None:
    def crash(metrics: dict) -> None:
        if metrics["round"] == 5:
            raise CrashError

    with pytest.raises(CrashError):
        gs.simulate(EXPERIMENT, tmp_path / "run", workers=1, checkpoint_every=3, on_round=crash)
    opened = gs.open_run(tmp_path / "run", EXPERIMENT)
    shorter = gs.simulate(replace(EXPERIMENT, rounds=3), workers=1)
    assert torch.equal(opened.models, shorter.models)
    (tmp_path / "run" / checkpoint.NAME).unlink()
    nothing = gs.open_run(tmp_path / "run", EXPERIMENT)
    assert nothing.models is None
    with pytest.raises(gs.ExperimentError, match="experiment has no weights yet: it ended before its first checkpoint"):
        nothing.module()
    with pytest.raises(gs.ExperimentError, match=r"open it with gossamer.open_run\(directory, experiment\)$"):
        gs.open_run(tmp_path / "run").module()


def test_a_task_without_a_module_has_rows_only() -> None:
    run = gs.simulate(replace(QUADRATIC, topology=gs.Ring()), workers=1)
    with pytest.raises(gs.ExperimentError, match=r"^task: Quadratic has no module; Run.models has its models$"):
        run.module()
    assert torch.equal(run.state_dict(2)["model"], run.models[2])


# gossamer export


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=True)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> gs.Run:
    experiment = replace(gs.recipes.jwins_digits(), nodes=5, rounds=2)
    return gs.simulate(experiment, tmp_path_factory.mktemp("digits") / "run", workers=1)


@pytest.mark.parametrize("node", ["mean", 3])
def test_exported_weights_have_names_and_say_whose_they_are(digits: gs.Run, node: int, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    done = invoke("export", digits.directory, "--node", node, "--out", out)
    assert done.exit_code == 0, done.output
    assert same(load_file(out), digits.state_dict(node))
    with safe_open(out, "pt") as file:
        about = {"experiment": "jwins-digits", "round": "2", "node": str(node), "metric": "accuracy"}
        assert file.metadata() == about


def test_export_refuses_in_a_sentence(digits: gs.Run, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    for words, sentence in (
        ((digits.directory, "--out", tmp_path / "there"), "there exists already; name another file with --out"),
        ((digits.directory, "--out", tmp_path / "no" / "where"), "cannot be written: No such file or directory"),
        ((digits.directory, "--out", tmp_path / "new", "--node", 5), 'node must be "mean" or 0 to 4, 5 was given'),
        ((tmp_path, "--out", tmp_path / "new"), "is not a run: it has no experiment.toml"),
    ):
        done = invoke("export", *words)
        assert isinstance(done.exception, gs.ExperimentError)
        assert sentence in str(done.exception)
    assert invoke("export", digits.directory, "--node", "-1", "--out", tmp_path / "new").exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "mine"


@dataclass(frozen=True)
class Mine(gs.Dpsgd):
    pass


def test_what_cannot_be_exported_says_how_to_have_it(tmp_path: Path) -> None:
    experiment = replace(gs.recipes.dpsgd_digits(), algorithm=Mine(), rounds=1)
    gs.simulate(experiment, tmp_path / "run", workers=1)
    done = invoke("export", tmp_path / "run", "--out", tmp_path / "new")
    assert "names a class of your own; open it in Python with gossamer.open_run(" in str(done.exception)
    run = gs.simulate(replace(QUADRATIC, topology=gs.Ring()), tmp_path / "quadratic", workers=1)
    assert invoke("export", tmp_path / "quadratic", "--node", 2, "--out", tmp_path / "new").exit_code == 0
    assert same(load_file(tmp_path / "new"), {"model": run.models[2]})
    (tmp_path / "quadratic" / checkpoint.NAME).unlink()
    done = invoke("export", tmp_path / "quadratic", "--out", tmp_path / "newer")
    assert "has no checkpoint.safetensors; continue the run with gossamer resume" in str(done.exception)


def test_a_peer_s_directory_has_its_own_weights_only(digits: gs.Run, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_bytes((digits.directory / "experiment.toml").read_bytes())
    tensors = {name: tensor[3:4] for name, tensor in load_file(digits.directory / checkpoint.NAME).items()}
    tensors["buffers"] = torch.empty(1, 0)  # a peer writes them always
    checkpoint.save(tmp_path, checkpoint.Saved(round=2, totals={}, run=77, node=3), tensors)
    assert invoke("export", tmp_path, "--out", tmp_path / "own").exit_code == 0
    assert same(load_file(tmp_path / "own"), digits.state_dict(3))
    done = invoke("export", tmp_path, "--node", "mean", "--out", tmp_path / "new")
    assert str(done.exception) == "node mean was asked for, and this is a peer's, which is node 3"


def test_a_result_is_json(digits: gs.Run) -> None:
    assert json.loads(json.dumps(digits.result)) == digits.result
    needed = gs.Result.__required_keys__
    assert needed <= digits.result.keys() <= needed | gs.Result.__optional_keys__
