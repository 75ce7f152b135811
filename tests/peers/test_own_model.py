"""A module of one's own on two sites with a table each, by docs/deploy.md and examples/own_model_on_peers.py alone."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import gossamer as gs
from gossamer.data.sources import DataError
from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.identity import greeting
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.local_group import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model_on_peers.py"
SITES = ("north", "south")
EXPERIMENT = 'name = "ward-7"\nnodes = 2\nrounds = 40\ntopology = "ring"\nalgorithm = "dpsgd"\n\n'
AGREED = gs.Table(
    "patients.csv", "ill", numbers=(("age", 50.0, 10.0),), words=(("smokes", ("no", "yes")),), classes=("no", "yes")
)


def write_table(path: Path, rows: int, older: float, seed: int) -> None:
    draw = random.Random(seed)
    lines = ["name,age,pressure,smokes,ill"]
    for number in range(rows):
        age, pressure, smokes = draw.gauss(50 + older, 12), draw.gauss(120, 15), draw.choice(["yes", "no", "no"])
        risk = (age - 50) / 12 + (pressure - 120) / 15 + (smokes == "yes") + draw.gauss(0, 0.5)
        lines.append(f"person {number},{age:.1f},{pressure:.0f},{smokes},{'yes' if risk > 0.5 else 'no'}")
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")


def started(directory: Path, *words: str) -> subprocess.Popen[str]:
    given = {"cwd": directory, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": os.environ}
    return subprocess.Popen([sys.executable, *words], **given)  # type: ignore[call-overload,no-any-return]


def said(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-2000:]
    return out


@pytest.mark.slow
def test_two_sites_train_a_module_of_their_own_and_predict_with_it(tmp_path: Path) -> None:
    north, south = (tmp_path / site for site in SITES)
    for site, rows, older in ((north, 400, 0.0), (south, 300, 8.0)):
        write_table(site / "data" / "patients.csv", rows, older, seed=rows)
        shutil.copy(EXAMPLE, site)
        words = ("data/patients.csv", "--target", "ill", "--leave-out", "name", "--out", f"{site.name}.json")
        said(started(site, "-m", "gossamer", "data", "describe", *words))
    shutil.copy(south / "south.json", north)
    agreed = said(
        started(north, "-m", "gossamer", "data", "agree", "north.json", "south.json", "--file", "patients.csv")
    )
    (north / "experiment.toml").write_text(EXPERIMENT + agreed)
    ports = free_ports(3)
    listed = [f'[peers.{site}]\nnode = {i}\naddress = "127.0.0.1:{ports[i]}"\n' for i, site in enumerate(SITES)]
    (north / "peers.toml").write_text('run = "first"\n' + "".join(listed))
    said(started(north, "-m", "gossamer", "keys", "keys", "north"))
    files = ("--peers", "peers.toml", "--experiment", "experiment.toml")
    at = ("--certs", "keys", "--at", f"127.0.0.1:{ports[2]}")
    invitation = started(north, "-m", "gossamer", "invite", "south", *at, *files)
    assert invitation.stdout is not None
    code = invitation.stdout.readline().split()[-1]
    said(started(south, "-m", "gossamer", "join", code))
    said(invitation)
    for words in (["--check"], []):
        running = [started(tmp_path / site, EXAMPLE.name, site, *words) for site in SITES]
        outputs = [said(process) for process in running]
    assert all("40 rounds" in output for output in outputs)
    models = [load_file(tmp_path / site / "runs" / site / "model.safetensors") for site in SITES]
    assert sorted(models[0]) == ["first.bias", "first.weight", "last.bias", "last.weight"]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    (south / "new.csv").write_text("age,pressure,smokes\n80,150,yes\n25,95,no\n50,,unheard of\n")
    lines = said(started(south, EXAMPLE.name, "south", "--predict", "new.csv")).splitlines()
    assert [line.split()[2] for line in lines[:2]] == ["yes,", "no,"]
    (south / "new.csv").write_text("age,smokes\n80,yes\n")
    wrong = started(south, EXAMPLE.name, "south", "--predict", "new.csv")
    assert wrong.communicate(timeout=60)[1] == "new.csv has no column 'pressure', only age, smokes\n"
    assert wrong.returncode == 1


def test_new_rows_become_inputs_as_the_sites_agreed(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("smokes,age\nyes,60\nnever,\n")
    assert AGREED.inputs(tmp_path / "new.csv").tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    with pytest.raises(DataError, match="cannot be read"):
        AGREED.inputs(tmp_path / "none.csv")
    (tmp_path / "word.csv").write_text("smokes,age\nyes,old\n")
    with pytest.raises(DataError, match="its column 'age' has 'old' where a number belongs"):
        AGREED.inputs(tmp_path / "word.csv")
    with pytest.raises(DataError, match="numbers and words say how rows become inputs"):
        gs.Table("patients.csv", "ill").inputs(tmp_path / "new.csv")


def test_sites_that_scale_their_columns_differently_are_told_at_the_greeting() -> None:
    members = Group("run", {"north": Member("north", 0, "127.0.0.1", 1)})
    of = [
        greeting.greeting(members, gs.Experiment(task=task, asynchronous=slow), 10, 1)
        for task, slow in (
            (AGREED, False),
            (gs.Table("other.csv", "ill", classes=("no", "yes")), False),
            (AGREED, True),
        )
    ]
    assert of[0].differences(of[0]) == ""
    assert of[0].differences(of[1]) == "task.numbers; task.words"
    assert of[0].differences(of[2]) == "asynchronous"


def test_an_experiment_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    assert gs.read_experiment(tmp_path / "experiment.toml").topology == gs.Ring()
    with pytest.raises(ExperimentError, match=r"none\.toml"):
        gs.read_experiment(tmp_path / "none.toml")
