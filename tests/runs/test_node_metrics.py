"""Metrics as a table: one row per round, and one per node that was tested."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet

import gossamer as gs
from gossamer.runs import node_metrics

EVALUATION = gs.Evaluation(every=2, nodes=3, samples="all", personal=True)
EXPERIMENT = gs.Experiment(
    nodes=5, rounds=4, task=gs.Digits(hidden=4), partition=gs.LabelShards(2), topology=gs.Ring(), evaluation=EVALUATION
)


def test_the_table_has_what_metrics_and_nodes_have(tmp_path: Path) -> None:
    run = gs.simulate(EXPERIMENT, tmp_path / "run", workers=1)
    number = node_metrics.export(tmp_path / "run", tmp_path / "metrics.parquet")
    rows = parquet.read_table(tmp_path / "metrics.parquet").to_pylist()
    assert len(rows) == number == 4 + 2 * 3
    whole = [row for row in rows if row["node"] is None]
    for row, metrics in zip(whole, run.metrics, strict=True):
        for key in ("round", "train_loss", "bytes_sent", "bytes_total", "seconds"):
            assert row[key] == metrics[key]
        assert row.get("accuracy_mean") == metrics.get("accuracy_mean")
    assert isinstance(whole[0]["bytes_sent"], int)
    nodes = [row for row in rows if row["node"] is not None]
    assert [row["round"] for row in nodes] == [2] * 3 + [4] * 3
    for at in (2, 4):
        here = [row for row in nodes if row["round"] == at]
        for name in ("accuracy", "accuracy_personal"):
            mean = sum(row[name] for row in here) / 3
            assert mean == pytest.approx(run.metrics[at - 1][f"{name}_mean"], abs=1e-12)
    assert "accuracy_by_node" not in run.result


def test_peers_have_their_names(tmp_path: Path) -> None:
    """The files are as peers write them, which tests of peers show."""
    gs.simulate(replace(EXPERIMENT, rounds=1), tmp_path / "run", workers=1)
    for name in ("alice", "carol"):
        (tmp_path / "up" / name).mkdir(parents=True)
        (tmp_path / "up" / name / "experiment.toml").write_bytes((tmp_path / "run" / "experiment.toml").read_bytes())
        line = {"round": 1, "train_loss": 2.0, "test_loss": 2.0, "accuracy": 0.5, "bytes_out": 10, "seconds": 1.0}
        (tmp_path / "up" / name / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert node_metrics.export(tmp_path / "up", tmp_path / "up.parquet") == 2
    rows = parquet.read_table(tmp_path / "up.parquet").to_pylist()
    assert [(row["peer"], row["accuracy"]) for row in rows] == [("alice", 0.5), ("carol", 0.5)]


def test_nothing_is_overwritten_and_mistakes_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gs.simulate(replace(EXPERIMENT, rounds=1), tmp_path / "run", workers=1)
    (tmp_path / "there").touch()
    with pytest.raises(gs.ExperimentError, match="there exists already; name another file with --metrics"):
        node_metrics.export(tmp_path / "run", tmp_path / "there")
    with pytest.raises(gs.ExperimentError, match="cannot be written: No such file or directory; name another file"):
        node_metrics.export(tmp_path / "run", tmp_path / "no" / "where")
    with pytest.raises(gs.ExperimentError, match="nowhere is not a run"):
        node_metrics.export(tmp_path / "nowhere", tmp_path / "new")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(gs.ExperimentError, match="has no round yet"):
        node_metrics.export(tmp_path / "run", tmp_path / "new")
    monkeypatch.setattr(node_metrics, "find_spec", lambda name: None)
    with pytest.raises(gs.ExperimentError, match=r"pip install 'gossamer\[arrow\]'"):
        node_metrics.export(tmp_path / "run", tmp_path / "new")
