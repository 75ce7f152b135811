"""What loggers tell TensorBoard, MLflow and Weights & Biases is what metrics.jsonl has, as their own readers see it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.runs import loggers
from gossamer.runs.loggers import numbers

EXPERIMENT = gs.Experiment(name="logged", nodes=5, rounds=4, task=gs.Digits(hidden=4), topology=gs.Ring())


def logged(on_round: Any, workers: int = 1) -> list[dict[str, Any]]:
    return gs.simulate(EXPERIMENT, on_round=on_round, workers=workers).metrics


def read_events(directory: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory))
    found.Reload()
    return {tag: {event.step: event.value for event in found.Scalars(tag)} for tag in found.Tags()["scalars"]}


def expected(metrics: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for row in metrics:
        for name, number in numbers(row):
            found.setdefault(name, {})[row["round"]] = pytest.approx(number, rel=1e-6)  # float32
    return found


def test_numbers_are_those_of_the_whole_round() -> None:
    row = {"round": 3, "strategy": "rows", "loss": 0.5, "parts": {"x": {"values": 7}}, "accuracy_by_node": {"0": 1.0}}
    assert dict(numbers(row)) == {"loss": 0.5, "parts/x/values": 7}


def test_tensorboard_has_every_number_of_every_round_though_workers_were_forked(tmp_path: Path) -> None:
    logger = gs.TensorBoardLogger(tmp_path)
    metrics = logged(logger, workers=2)
    found = read_events(tmp_path)  # the logger is not closed yet: the last evaluation has written all
    assert found == expected(metrics)
    assert len(found["train_loss"]) == 4
    assert "accuracy_mean" in found
    logger.close()


def test_a_run_that_a_callback_ends_early_has_its_last_evaluation_logged(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, rounds=20, evaluation=gs.Evaluation(every=10))
    logger = gs.TensorBoardLogger(tmp_path)
    run = gs.simulate(experiment, on_round=logger, workers=1, callbacks=[lambda run: len(run.metrics) == 3])
    found = read_events(tmp_path)
    assert found == expected(run.metrics)
    assert list(found["test_loss"]) == [3]
    logger.close()


def test_the_command_writes_events_into_the_run_and_a_resumed_run_adds_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from gossamer.cli.main import cli

    monkeypatch.chdir(tmp_path)
    words = ["run", "dpsgd-digits", "--rounds", "4", "--set", "task.hidden=4", "--out", "run", "--workers", "1"]
    done = CliRunner().invoke(cli, [*words, "--tensorboard", "--checkpoint-every", "2"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert read_events(Path("run/tensorboard")) == expected(gs.open_run("run").metrics)
    (Path("run") / "result.json").unlink()
    again = ["resume", "run", "--tensorboard", "--workers", "1"]
    assert CliRunner().invoke(cli, again, catch_exceptions=False).exit_code == 0
    assert len(read_events(Path("run/tensorboard"))["train_loss"]) == 4


def test_without_the_package_the_run_does_not_begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    for make, extra in (
        (lambda: gs.TensorBoardLogger(tmp_path), "tensorboard"),
        (lambda: gs.MLflowLogger(EXPERIMENT), "mlflow"),
        (lambda: gs.WandbLogger(EXPERIMENT), "wandb"),
    ):
        with pytest.raises(gs.ExperimentError, match=rf"install it with: pip install 'gossamer\[{extra}\]'"):
            make()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_settings_and_metrics_and_a_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = f"file:{tmp_path}"
    logger = gs.MLflowLogger(EXPERIMENT, "digits", store)
    metrics = logged(logger)
    second = gs.MLflowLogger(EXPERIMENT, "digits", store)
    logged(second)
    client = mlflow.MlflowClient(tracking_uri=store)
    run = client.get_run(logger.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "logged"
    assert run.data.params["algorithm.name"] == "dpsgd"
    assert run.data.params["task.hidden"] == "4"
    for name, values in expected(metrics).items():
        assert {point.step: point.value for point in client.get_metric_history(logger.run_id, name)} == values
    assert client.get_run(second.run_id).info.experiment_id == run.info.experiment_id
    early = gs.MLflowLogger(EXPERIMENT, "digits", store)
    gs.simulate(EXPERIMENT, on_round=early, workers=1, callbacks=[lambda run: len(run.metrics) == 2])
    assert [point.step for point in client.get_metric_history(early.run_id, "test_loss")] == [2]
    assert client.get_run(early.run_id).info.status == "RUNNING"
    early.close()
    assert client.get_run(early.run_id).info.status == "FINISHED"


@pytest.mark.slow
def test_wandb_has_settings_and_metrics_of_an_offline_run(tmp_path: Path) -> None:
    """In a process of its own, since wandb starts others and hooks itself in."""
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    program = """
import gossamer as gs
experiment = gs.Experiment(name="logged", nodes=5, rounds=4, task=gs.Digits(hidden=4), topology=gs.Ring())
logger = gs.WandbLogger(experiment, project="digits", mode="offline")
gs.simulate(experiment, "run", on_round=logger, workers=2)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    records = [(record.WhichOneof("record_type"), record) for record in wandb_records(file)]
    (run,) = (record.run for kind, record in records if kind == "run")
    assert (run.project, run.display_name) == ("digits", "logged")
    settings = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert settings["algorithm"] == {"name": "dpsgd"}
    history = [record.history.item for kind, record in records if kind == "history"]
    lines = [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in line} for line in history]
    for line, metrics in zip(lines, gs.open_run(tmp_path / "run").metrics, strict=True):
        assert line["_step"] == metrics["round"]
        assert {key: value for key, value in line.items() if not key.startswith("_")} == dict(numbers(metrics))


def wandb_records(path: Path) -> Iterator[Any]:
    """What a file of wandb's holds: LevelDB's log format, behind seven bytes, in blocks of 32 kB."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:  # too little for a head
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last piece
            yield Record.FromString(record)
            record = b""
