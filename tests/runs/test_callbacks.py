"""Callbacks: a clean stop, the best model on disk, and the same after a resume."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import gossamer as gs
from gossamer.runs import files
from gossamer.simulator.pack import pack

EXPERIMENT = gs.Experiment(
    nodes=4, rounds=12, task=gs.Digits(hidden=4), topology=gs.Ring(), evaluation=gs.Evaluation(every=2)
)


def test_a_callback_that_returns_true_ends_the_run_with_a_checkpoint_a_result_and_a_report(tmp_path: Path) -> None:
    run = gs.simulate(EXPERIMENT, tmp_path / "run", workers=1, callbacks=[lambda run: len(run.metrics) == 5])
    shorter = gs.simulate(replace(EXPERIMENT, rounds=5), workers=1)
    assert torch.equal(run.models, shorter.models)
    assert run.result["rounds"] == 5
    assert run.result["accuracy_mean"] == shorter.result["accuracy_mean"]  # round 5 was evaluated, being the last
    assert {"result.json", "report.html", "checkpoint.safetensors"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    again = gs.open_run(tmp_path / "run")
    assert again.metrics == run.metrics
    assert again.models_sha256 == run.models_sha256
    assert gs.resume(tmp_path / "run").result["rounds"] == 5  # it is complete


def test_a_run_that_a_callback_ended_settles_without_more_training(tmp_path: Path) -> None:
    run = gs.simulate(EXPERIMENT, tmp_path / "run", workers=1, callbacks=[lambda run: len(run.metrics) == 5])
    settled = gs.settle(tmp_path / "run", tmp_path / "settled", rounds=2, workers=1)
    assert [row["round"] for row in settled.metrics if "train_loss" in row] == [1, 2, 3, 4, 5]
    assert settled.result["rounds"] == 7
    torch.testing.assert_close(settled.models.mean(0), run.models.mean(0))
    told = "was ended by a callback after round 5 of 12; .* needs all"
    with pytest.raises(gs.ExperimentError, match=told):
        gs.compare(tmp_path / "run", tmp_path / "settled")
    with pytest.raises(gs.ExperimentError, match=told):
        pack(tmp_path / "run")


def test_a_callback_sees_the_models_of_the_round() -> None:
    seen = []

    def look(run: gs.Run) -> None:
        seen.append(run.models.clone())
        module = run.module("mean")
        torch.testing.assert_close(torch.cat([p.reshape(-1) for p in module.parameters()]).detach(), seen[-1].mean(0))

    run = gs.simulate(replace(EXPERIMENT, rounds=3), workers=2, callbacks=[look])
    assert len(seen) == 3
    assert torch.equal(seen[-1], run.models)
    assert not torch.equal(seen[0], seen[1])


def run_with(values: list[float], metric: str = "accuracy") -> gs.Run:
    rows = [{"round": i + 1, "test_loss": 1.0, f"{metric}_mean": v, f"{metric}_min": v} for i, v in enumerate(values)]
    return gs.Run(EXPERIMENT, rows)


@pytest.mark.parametrize(
    ("values", "stops"),
    [([0.1], False), ([0.1, 0.2, 0.2], False), ([0.1, 0.2, 0.2, 0.19], True), ([0.3, 0.2, 0.4], False), ([], False)],
)
def test_early_stopping_waits_for_as_many_evaluations_as_it_is_told(values: list[float], stops: bool) -> None:
    assert gs.EarlyStopping(patience=2)(run_with(values)) == stops
    assert gs.EarlyStopping("accuracy_mean", 2, higher_is_better=False)(run_with([-v for v in values])) == stops


def test_of_a_loss_the_smaller_is_the_better() -> None:
    run = run_with([0.1, 0.1, 0.1, 0.1])
    for row, loss in zip(run.metrics, [1.0, 0.9, 0.8, 0.7], strict=True):
        row["test_loss"] = loss
    assert not gs.EarlyStopping("test_loss", patience=2)(run)
    assert gs.EarlyStopping("test_loss", patience=2, min_delta=0.5)(run)
    with pytest.raises(gs.ExperimentError, match="the metrics have no number 'f1_mean'; they have test_loss, acc"):
        gs.EarlyStopping("f1_mean")(run)


def test_a_metric_that_was_no_number_is_worse_than_any() -> None:
    run = run_with([0.1, 0.1, 0.1, 0.1])

    def stops(values: list[float | None], **more: bool) -> bool:
        for row, value in zip(run.metrics, values, strict=True):
            row["correlation_mean"] = value
        return gs.EarlyStopping("correlation_mean", patience=3, **more)(run)

    assert not stops([None, 0.2, 0.5, 0.9])
    assert stops([0.2, None, None, None])
    assert not stops([None, 0.9, 0.5, 0.2], higher_is_better=False)


@pytest.mark.parametrize(("key", "falls"), [("rmse_mean", True), ("mae_of_mean_model", True), ("f1_mean", False)])
def test_of_errors_by_their_usual_names_the_smaller_is_the_better(key: str, falls: bool) -> None:
    run = run_with([0.1, 0.1, 0.1, 0.1])
    for row, value in zip(run.metrics, [4.0, 3.0, 2.0, 1.0], strict=True):
        row[key] = value
    assert gs.EarlyStopping(key, patience=2)(run) != falls


def test_a_resumed_run_stops_where_one_would_that_was_never_interrupted(tmp_path: Path) -> None:
    stopping = gs.EarlyStopping(patience=1, min_delta=0.2)
    whole = gs.simulate(EXPERIMENT, workers=1, callbacks=[stopping])
    assert 2 < whole.result["rounds"] < 12

    def crash(run: gs.Run) -> None:
        if len(run.metrics) == 3:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        gs.simulate(EXPERIMENT, tmp_path / "run", workers=1, callbacks=[stopping, crash])
    assert len(files.read_lines(tmp_path / "run" / "metrics.jsonl", 99)) == 3  # and a checkpoint, so nothing is lost
    resumed = gs.resume(tmp_path / "run", workers=1, callbacks=[stopping])
    assert resumed.result["rounds"] == whole.result["rounds"]
    assert resumed.models_sha256 == whole.models_sha256


def test_the_best_checkpoint_has_the_weights_of_the_best_round(tmp_path: Path) -> None:
    kept = {}

    def keep(run: gs.Run) -> None:
        if "test_loss" in run.metrics[-1]:
            kept[run.metrics[-1]["accuracy_of_mean_model"]] = run.state_dict("mean")

    best = gs.BestCheckpoint(tmp_path / "best.safetensors", "accuracy_of_mean_model")
    gs.simulate(EXPERIMENT, workers=1, callbacks=[best, keep])
    found, expected = load_file(tmp_path / "best.safetensors"), kept[max(kept)]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
