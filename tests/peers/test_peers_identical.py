"""Peers as processes on this machine: the same models and bytes as the simulator's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PATIENT = ["--deadline", "120", "--start-deadline", "300", "--dead-after", "60"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["8", "jwins-digits", "--rounds", "8"],
        pytest.param([
            "8", "sparse-push-ring", "--rounds", "8", "--set", "algorithm.compressor.fraction=0.1",
            "--set", 'topology={name = "redrawn", graph = {name = "directed-random", out_degree = 2}}',
        ], marks=pytest.mark.slow),
        pytest.param([
            "8", "silk-digits", "--rounds", "8",
            "--set", 'topology={name = "redrawn", graph = {name = "random-regular", degree = 4}}',
        ], marks=pytest.mark.slow),
        pytest.param(["8", "silk-digits", "--rounds", "8", "--set", "exchanges=2"], marks=pytest.mark.slow),
        pytest.param(["8", "lace-digits", "--rounds", "8", "--set", "settle=3"], marks=pytest.mark.slow),
        pytest.param(["8", "comp-cga-digits", "--rounds", "8", "--set", "settle=2"], marks=pytest.mark.slow),
        pytest.param(["8", "jwins-digits", "--rounds", "8", "--set", "optimizer.name=adam"], marks=pytest.mark.slow),
    ],
    ids=[
        "jwins", "sparse-push on changing graphs", "silk on changing graphs", "silk with two exchanges per round",
        "lace in pairs, with rounds that settle", "gradients of neighbours' models, compressed", "adam",
    ],
)  # fmt: skip
def test_eight_peers_end_with_the_simulators_models_and_bytes(arguments: list[str], tmp_path: Path) -> None:
    check_verified(arguments, tmp_path)


@pytest.mark.slow
def test_a_transformer_trained_with_adam_ends_with_the_same_models_on_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "ag_news"
    folder.mkdir(parents=True)
    for name, rows in (("train.csv", 160), ("test.csv", 40)):
        folder.joinpath(name).write_text(
            "".join(f'"{i % 4 + 1}","News {i % 7}","Of {i % 11} and"\n' for i in range(rows))
        )
    monkeypatch.setenv("GOSSAMER_DATA", str(folder.parent))
    model = '{name = "transformer", width = 16, heads = 2, layers = 2, dropout = 0.1}'
    task = f'{{name = "ag-news", vocabulary = 40, length = 8, model = {model}}}'
    settings = [
        f"task={task}",
        'partition={name = "iid"}',
        "batch_size=8",
        'optimizer={name = "adam", learning_rate = 0.01}',
    ]
    changes = [word for setting in settings for word in ("--set", setting)]
    check_verified(["8", "jwins-digits", "--rounds", "8", *changes], tmp_path)


def check_verified(arguments: list[str], directory: Path) -> None:
    """Start eight peers for eight rounds, and compare them with the simulator."""
    command = [sys.executable, "-m", "gossamer", "up", *arguments, *PATIENT, "--verify", "--json"]
    done = subprocess.run([*command, "--out", str(directory / "up")], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verified"], "models differ"
    assert report["verified_bytes"], "bytes differ"
    assert len(report["peers"]) == 8
    for peer in report["peers"]:
        assert (peer["rounds"], peer["missing"], peer["lost_out"], peer["neighbours_lost"]) == (8, 0, 0, 0)
        assert len(peer["model_sha256"]) == 64
    assert sum(peer["bytes_in"] for peer in report["peers"]) == sum(report["ledger_bytes"]) == report["bytes_total"]
