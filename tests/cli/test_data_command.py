"""`gossamer data check`, and `--data` of the commands that load data sets."""

import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import official
from gossamer.cli.main import cli
from gossamer.data import Mnist
from gossamer.data.sources import VARIABLE


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands set the variable for the process."""
    monkeypatch.setenv(VARIABLE, "")


def check(*arguments: str) -> tuple[list[dict], int, str]:
    done = CliRunner().invoke(cli, ["data", "check", *arguments, "--json"])
    return json.loads(done.stdout or "[]"), done.exit_code, str(done.exception)


def test_what_is_there_is_counted(tmp_path: Path) -> None:
    for write in (official.mnist, official.movielens, official.femnist, official.cifar10, official.emnist):
        write(tmp_path)
    told, code, _ = check(str(tmp_path))
    found = {one["data_set"]: (one["train"], one["test"], one["classes"], one["clients"]) for one in told}
    assert found == {
        "cifar10": (20, 4, 10, None),
        "emnist letters": (3, 3, 26, None),
        "femnist": (5, 5, 62, 2),
        "mnist": (4, 4, 10, None),
        "movielens latest-small": (9, 6, None, 3),
    }
    assert code == 0
    assert {one["data_set"]: one["md5"] for one in told}["mnist"] == "not the official"
    assert {one["data_set"]: one["md5"] for one in told}["femnist"] == "unknown"


@pytest.mark.parametrize("zipped", [False, True])
def test_official_files_are_known_by_what_they_hold(
    zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official.mnist(tmp_path)
    sums = {}
    for path in list((tmp_path / "mnist").iterdir()):
        sums[path.name] = hashlib.md5(path.read_bytes()).hexdigest()
        if zipped:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    monkeypatch.setitem(Mnist.source.md5, "train-images-idx3-ubyte", sums["train-images-idx3-ubyte"])
    (told,) = check(str(tmp_path))[0]
    assert told["md5"] == "not the official"
    for name, value in sums.items():
        monkeypatch.setitem(Mnist.source.md5, name, value)
    (told,) = check(str(tmp_path))[0]
    assert told["md5"] == "ok"


def test_a_damaged_data_set_is_told_and_the_others_are_still_counted(tmp_path: Path) -> None:
    official.mnist(tmp_path)
    official.movielens(tmp_path)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(b"nothing")
    told, code, _ = check(str(tmp_path))
    assert code == 1
    assert "train-labels-idx1-ubyte cannot be read as MNIST" in told[0]["damage"]
    assert told[1]["train"] == 9
    shown = CliRunner().invoke(cli, ["data", "check", str(tmp_path)])
    assert "movielens latest-small" in shown.stdout
    assert "cannot be read as MNIST" in shown.stderr


def test_the_directory_comes_from_the_variable_too_and_must_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no directory was given; name the one that holds the data sets" in check()[2]
    assert "is not a directory" in check(str(tmp_path / "nowhere"))[2]
    official.mnist(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert [one["data_set"] for one in check()[0]] == ["mnist"]


def test_an_empty_directory_has_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["data", "check", str(tmp_path)])
    assert (done.exit_code, done.stdout[:11]) == (0, "no data set")


def test_a_run_takes_its_data_from_the_named_directory_and_names_it_nowhere(tmp_path: Path) -> None:
    official.movielens(tmp_path)
    out = tmp_path / "run"
    words = ["run", "dpsgd-digits", "--rounds", "2", "--set", "nodes=3", "--set", "topology.name=ring"]
    words += ["--set", "task.name=movielens", "--set", "partition.name=by-client", "--workers", "1"]
    done = CliRunner().invoke(cli, [*words, "--data", str(tmp_path), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rounds"] == 2
    assert str(tmp_path) not in (out / "experiment.toml").read_text()
    os.environ[VARIABLE] = ""
    resumed = CliRunner().invoke(cli, ["resume", str(out), "--data", str(tmp_path), "--workers", "1", "--json"])
    assert resumed.exit_code == 0, resumed.output
