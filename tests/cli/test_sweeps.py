"""gossamer sweep and gossamer compare, as a user meets them."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.cli import main as cli

QUICK = ["--set", "task.hidden=4", "--rounds", "2"]
Gossamer = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gossamer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Gossamer:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["gossamer", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        said = capfd.readouterr()
        code = stopped.value.code
        return subprocess.CompletedProcess(words, code if isinstance(code, int) else 0, said.out, said.err)

    return run


def test_a_sweep_ends_with_a_table_files_and_a_report_and_can_be_asked_again(
    tmp_path: Path, gossamer: Gossamer
) -> None:
    grids = ["--grid", "local_steps=1,2", "--grid", "algorithm.name=jwins,silk"]
    files = ["--csv", "t.csv", "--latex", "t.tex", "--parquet", "t.parquet"]
    done = gossamer(
        "sweep", "jwins-digits", *QUICK, *grids, "--seeds", "2", "--baseline", "local_steps=1, silk", *files
    )
    assert done.returncode == 0, done.stderr
    table = [line.strip() for line in done.stdout.splitlines()]
    for name in ("local_steps=1, jwins", "local_steps=1, silk", "local_steps=2, jwins", "local_steps=2, silk"):
        (row,) = (line for line in table if re.match(rf"{name} +\d", line))
        assert row.endswith(" -") == (name == "local_steps=1, silk")
    assert "kept in runs/sweep-jwins-digits; report: runs/sweep-jwins-digits/report.html" in done.stderr
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["runs", "t.csv", "t.parquet", "t.tex"]
    again = gossamer("sweep", "runs/sweep-jwins-digits", "--json")
    found = json.loads(again.stdout)
    assert (found["baseline"], len(found["settings"]), len(found["runs"])) == ("local_steps=1, silk", 4, 8)
    assert found["failures"] == {}
    assert again.stdout.count("\n") == 1


def test_a_sweep_file_says_what_options_say(tmp_path: Path, gossamer: Gossamer) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nnodes = 8\nrounds = 2\ntask = { name = "digits", hidden = 4 }\n'
    )
    (tmp_path / "sweep.toml").write_text(
        'base = "mine.toml"\nseeds = [5, 7]\nbaseline = "algorithm.kept=0.1"\n'
        '[[grid]]\nalgorithm.name = "jwins"\nalgorithm.budget = [0.2]\n'
        '[[grid]]\nalgorithm.name = "silk"\nalgorithm.kept = [0.1, 0.2]\n'
    )
    found = json.loads(gossamer("sweep", "sweep.toml", "--json").stdout)
    assert [row["setting"] for row in found["settings"]] == ["jwins, budget=0.2", "silk, kept=0.1", "silk, kept=0.2"]
    assert found["baseline"] == "silk, kept=0.1"
    assert {run["seed"] for run in found["runs"]} == {5, 7}
    assert found["directory"] == "runs/sweep-mine"


def test_a_sweep_with_a_run_that_failed_tells_it_and_exits_with_1(gossamer: Gossamer) -> None:
    grids = ["--grid", "optimizer.learning_rate=0.1,1e30"]
    done = gossamer("sweep", "dpsgd-digits", *QUICK, *grids)
    assert done.returncode == 1
    assert "learning_rate=0.1" in done.stdout
    assert "gossamer: learning_rate=1e+30, seed 0 failed: " in done.stderr
    assert "Traceback" not in done.stderr


def test_compare_runs_what_is_not_run_and_tells_what_differs_and_what_it_takes(gossamer: Gossamer) -> None:
    done = gossamer("compare", "dpsgd-digits", "silk-digits", *QUICK, "--seeds", "2", "--target", "0.01")
    assert done.returncode == 0, done.stderr
    for told in ("what differs", "algorithm.kept", "to reach accuracy 1.00%", "times fewer: bytes"):
        assert told in done.stdout
    done = gossamer("compare", "runs/compare-dpsgd-digits-silk-digits/silk-seed-0", "--json")
    (found,) = json.loads(done.stdout)["settings"]
    assert found["to_target_rounds"] == 2
    assert done.stderr == ""


MISTAKES = {
    "sweep nothing": "nothing is neither a file nor a recipe; gossamer list recipes has their names",
    "sweep jwins-digits --grid budget": "--grid budget: write it as key=value,value,... such as algorithm.budget=",
    "sweep jwins-digits --grid algorithm.name=jwins,silk --grid algorithm.budget=0.1": (
        "algorithm.name=silk, algorithm.budget=0.1: algorithm.budget: there is no such key"
    ),
    "sweep jwins-digits --grid topology.degree=99": "degree=99: topology: ",
    "sweep jwins-digits --grid nodes=4 --grid nodes=8": "--grid was given twice for one key",
    "sweep jwins-digits --grid seed=1,2": "seed: a grid has none, since the seeds of a sweep are given apart,",
    "sweep jwins-digits --grid nodes=8,9 --baseline nodes=7": "--baseline nodes=7 is no setting; name one of: nodes=8",
    "sweep jwins-digits --csv there": "--csv there exists already; name another file",
    "sweep jwins-digits --latex no/t.tex": "--latex no/t.tex: there is no directory no; make it, or name another file",
    "sweep jwins-digits --out there": "there exists already, and is no sweep; name another directory",
    "sweep there": "there is a directory, but not of a sweep: it has no sweep.toml; give a recipe or a file",
    "sweep jwins-digits --seed 9223372036854775807 --seeds 2": "seeds: seed must be at least 0 and under 2^63",
    "sweep sweep.toml": "sweep.toml: it contains unknown field `seed`; a sweep file has base, set, grid, seeds",
    "compare there": "there is not a run: it has no experiment.toml; gossamer run makes one",
    "compare jwins-digits --target 85": "target: 85.0 was given, and accuracy is between 0 and 1; take one such as",
    "compare jwins-digits silk-digits --baseline lace": "--baseline lace is no setting; name one of: jwins; silk",
    "compare there --rounds 3": "all of these were run; --set, --rounds, --seed, --seeds and --out are for what is run",
    "compare jwins-digits jwins-digits": "jwins-digits was given twice with one seed; give each run once",
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.items(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_runs(words: str, told: str, tmp_path: Path, gossamer: Gossamer) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "sweep.toml").write_text('base = "jwins-digits"\nseed = 3\n')
    done = gossamer(*words.split(), *(QUICK if words.startswith("compare jwins") else []))
    assert done.returncode == 2, done.stderr
    *before, sentence = done.stderr.splitlines()
    assert sentence.startswith(f"gossamer: {told}")
    assert all(line.startswith("preparing ") for line in before)  # a graph is looked at when its runs are prepared
    assert not (tmp_path / "runs").exists()


def test_a_sweep_that_was_begun_takes_no_new_settings(tmp_path: Path, gossamer: Gossamer) -> None:
    assert gossamer("sweep", "dpsgd-digits", *QUICK, "--out", "mine").returncode == 0
    done = gossamer("sweep", "mine", "--rounds", "9")
    assert done.returncode == 2
    assert done.stderr.startswith("gossamer: mine is a sweep that was begun; with it go --seeds, --baseline and --jobs")
    more = gossamer("sweep", "mine", "--seeds", "2", "--json")
    assert [run["seed"] for run in json.loads(more.stdout)["runs"]] == [0, 1]
