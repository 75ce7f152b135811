"""An archive of a run, unpacked elsewhere, gives the same result with the command that its README names."""

import hashlib
import json
import re
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import gossamer as gs
import official
from gossamer.cli.main import cli

DIGITS = replace(gs.recipes.jwins_digits(), rounds=6, task=gs.Digits(hidden=8), wire=gs.Wire(ledger=True))


def invoke(*words: str) -> str:
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def without_seconds(path: Path) -> dict:
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "seconds"}


def unpack(archive: Path, to: Path) -> Path:
    with zipfile.ZipFile(archive) as found:
        found.extractall(to)
    return to / archive.stem


def repeat(directory: Path, monkeypatch: pytest.MonkeyPatch) -> gs.Run:
    """What the README's command gives."""
    (command,) = re.findall(r"^    gossamer (.*)$", (directory / "README.md").read_text(), re.MULTILINE)
    monkeypatch.chdir(directory)
    invoke(*shlex.split(command), "--workers", "1")
    return gs.open_run("again")


def test_the_command_of_the_readme_gives_the_same_models_and_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gs.simulate(DIGITS, tmp_path / "first", workers=2)
    monkeypatch.chdir(tmp_path)
    assert "wrote first.zip" in invoke("pack", "first")
    directory = unpack(tmp_path / "first.zip", tmp_path / "elsewhere")
    names = sorted(path.name for path in directory.iterdir())
    assert names == [
        "README.md", "experiment.toml", "ledger.jsonl", "manifest.json", "metrics.jsonl", "report.html",
        "requirements.txt", "result.json",
    ]  # fmt: skip
    again = repeat(directory, monkeypatch)
    manifest = json.loads((directory / "manifest.json").read_text())
    expected = hashlib.sha256(run.models.numpy().astype("<f4").tobytes()).hexdigest()
    assert run.models_sha256 == again.models_sha256 == manifest["models_sha256"] == expected
    assert expected in (directory / "README.md").read_text()
    assert without_seconds(directory / "result.json") == without_seconds(directory / "again" / "result.json")
    assert (directory / "ledger.jsonl").read_bytes() == (directory / "again" / "ledger.jsonl").read_bytes()


def test_a_run_packed_twice_gives_the_same_bytes_and_another_run_another_digest(tmp_path: Path) -> None:
    gs.simulate(DIGITS, tmp_path / "first", workers=1)
    gs.pack(tmp_path / "first", tmp_path / "one.zip")
    (tmp_path / "b").mkdir()
    gs.pack(tmp_path / "first", tmp_path / "b" / "one.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "b" / "one.zip").read_bytes()
    other = gs.simulate(replace(DIGITS, seed=1), workers=1)
    assert other.models_sha256 != gs.open_run(tmp_path / "first").models_sha256


def test_files_that_the_experiment_names_are_in_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ring.edges").write_text("16\n" + "\n".join(f"{i} {(i + 1) % 16}" for i in range(16)))
    Path("trace").write_text("2 3 down\n3 3 up\n")
    graph = gs.Cycle((gs.EdgeList("ring.edges"), gs.Ring()))
    Path("steps.csv").write_text("round,node,step_seconds\n1,2,0.5\n")
    named = replace(DIGITS, topology=graph, faults=gs.Faults(churn="trace"), clock=gs.Clock(steps="steps.csv"))
    first = gs.simulate(named, "first", workers=1)
    gs.pack("first")
    Path("ring.edges").unlink()
    Path("trace").unlink()
    Path("steps.csv").unlink()
    directory = unpack(tmp_path / "first.zip", tmp_path / "elsewhere")
    assert str(tmp_path) not in (directory / "experiment.toml").read_text()
    assert len(list((directory / "files").iterdir())) == 3
    assert repeat(directory, monkeypatch).models_sha256 == first.models_sha256


def test_data_files_have_digests_and_the_readme_asks_for_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official.table(tmp_path)
    task = gs.Table("pets/pets.csv", "kind", leave_out=("id",), root=str(tmp_path))
    experiment = gs.Experiment(nodes=3, rounds=2, task=task, topology=gs.Ring())
    gs.simulate(experiment, tmp_path / "first", workers=1)
    directory = unpack(gs.pack(tmp_path / "first"), tmp_path / "elsewhere")
    manifest = json.loads((directory / "manifest.json").read_text())
    content = (tmp_path / "pets" / "pets.csv").read_bytes()
    assert manifest["data_files"] == {"pets.csv": hashlib.sha256(content).hexdigest()}
    assert str(tmp_path) not in (directory / "experiment.toml").read_text()
    readme = (directory / "README.md").read_text()
    assert "gossamer run experiment.toml --out again --data DIRECTORY" in readme
    (directory / "README.md").write_text(readme.replace("DIRECTORY", shlex.quote(str(tmp_path))))
    monkeypatch.setenv("GOSSAMER_DATA", "")  # --data sets it
    assert repeat(directory, monkeypatch).models_sha256 == manifest["models_sha256"]


def test_the_packages_are_those_that_are_needed_and_installed(tmp_path: Path) -> None:
    from importlib.metadata import version

    gs.simulate(DIGITS, tmp_path / "first", workers=1)
    directory = unpack(gs.pack(tmp_path / "first"), tmp_path / "elsewhere")
    lines = (directory / "requirements.txt").read_text().splitlines()
    found = dict(line.split("==") for line in lines)
    for name in ("torch", "numpy", "numba", "llvmlite", "sympy"):  # the last two are needed by others
        assert found[name] == version(name)
    assert "pytest" not in found
    assert "gossamer" not in found


def test_what_cannot_be_repeated_is_refused(tmp_path: Path) -> None:
    gs.simulate(DIGITS, tmp_path / "first", workers=1)
    (tmp_path / "there.zip").touch()
    with pytest.raises(gs.ExperimentError, match="exists already; name another file with --out"):
        gs.pack(tmp_path / "first", tmp_path / "there.zip")
    with pytest.raises(gs.ExperimentError, match="cannot be written: No such file or directory; name another"):
        gs.pack(tmp_path / "first", tmp_path / "no" / "where.zip")
    with pytest.raises(gs.ExperimentError, match="nowhere is not a run"):
        gs.pack(tmp_path / "nowhere")
    gs.simulate(replace(DIGITS, task=gs.Digits(hidden=4).load()), tmp_path / "own", workers=1)
    with pytest.raises(gs.ExperimentError, match="classes of your own, which a file cannot repeat"):
        gs.pack(tmp_path / "own")
    (tmp_path / "first" / "result.json").unlink()
    with pytest.raises(gs.ExperimentError, match="is not complete; continue it with gossamer resume, and pack it then"):
        gs.pack(tmp_path / "first")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "own", "there.zip"]
