"""Shell completion, in a real bash and by click's own classes, which all shells go through."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from gossamer.cli.main import cli
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.experiments.recipes import RECIPES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gossamer" / "completion.json"


def completed(*words: str) -> list[str]:
    """What can stand for the last of these words."""
    shell = ShellComplete(cli, {}, "gossamer", "_GOSSAMER_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1]) if item.type == "plain"]


def test_recipes_and_commands_are_completed() -> None:
    assert completed("run", "") == list(RECIPES)
    assert completed("show", "lace-d") == ["lace-digits"]
    assert completed("up", "8", "lace-d") == ["lace-digits"]
    assert completed("init", "--from", "lace-d") == ["lace-digits"]
    assert completed("compl") == ["completion"]


def test_keys_are_those_of_the_experiment_on_the_line(tmp_path: Path) -> None:
    assert "algorithm.budget=" in completed("run", "jwins-digits", "--set", "algorithm.")
    assert completed("run", "dpsgd-digits", "--set", "algorithm.") == ["algorithm.name="]
    assert completed("run", "dpsgd-digits", "--set", "rou") == ["rounds="]
    assert completed("run", "dpsgd-digits", "--set", "optimizer.schedule.") == ["optimizer.schedule.name="]
    mine = tmp_path / "mine.toml"
    mine.write_text('algorithm = "jwins"')
    assert "algorithm.budget=" in completed("run", str(mine), "--set", "algorithm.b")
    renamed = ("run", "dpsgd-digits", "--set", "algorithm.name=choco", "--set")
    assert "algorithm.compressor.name=" in completed(*renamed, "algorithm.c")
    renamed = (*renamed, "algorithm.compressor.name=top-k", "--set")
    assert completed(*renamed, "algorithm.compressor.f") == ["algorithm.compressor.fraction="]


def test_values_are_completed_where_there_is_a_choice() -> None:
    assert completed("run", "x", "--set", "algorithm.name=jw") == [
        f"algorithm.name={name}" for name in ("jwins", "jwins-push", "jwins-quantized")
    ]
    assert completed("run", "x", "--set", "fast=") == ["fast=true", "fast=false"]
    assert completed("run", "x", "--set", "wire.mode=") == ["wire.mode=count", "wire.mode=encode"]
    assert completed("run", "x", "--set", "rounds=") == []


@pytest.mark.parametrize("recipe", ["jwins-digits", "low-precision-cifar10"])
def test_every_key_that_is_completed_is_one_that_can_be_set(recipe: str) -> None:
    keys = completed("run", recipe, "--set", "")
    assert {key.split(".")[0].rstrip("=") for key in keys} == {f.name for f in fields(Experiment)}
    for key in keys:
        document = toml.write(RECIPES[recipe]())
        toml.change(document, f"{key}1979-05-27")  # a date, which none is
        with pytest.raises(ExperimentError, match=r"was given|a name is needed"):
            toml.read(document)


def test_what_was_found_is_kept_until_the_package_changes(cache: Path) -> None:
    completed("run", "")
    kept = json.loads(cache.read_text())
    cache.write_text(json.dumps(kept | {"recipes": {"kept": {"help": "", "document": {}}}}))
    assert completed("run", "") == ["kept"]
    cache.write_text(json.dumps(kept | {"stamp": "another", "recipes": {}}))
    assert completed("run", "") == list(RECIPES)
    cache.write_text("{")
    assert completed("run", "") == list(RECIPES)


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="there is no bash")
def test_bash_completes_a_key_and_puts_no_space_behind_it(tmp_path: Path, cache: Path) -> None:
    completed("run", "")  # so that the processes below need not import PyTorch
    program = tmp_path / "gossamer"
    program.write_text(f"#!{sys.executable}\nfrom gossamer.__main__ import main\nmain()\n")
    program.chmod(0o755)
    script = CliRunner().invoke(cli, ["completion", "bash"]).output
    ask = """
compopt() { echo compopt "$@"; }
ask() { COMPREPLY=(); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gossamer_words gossamer; echo "${COMPREPLY[*]}"; }
ask gossamer run jwins-digits --set algorithm.bud
ask gossamer run lace-d
"""
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["/bin/bash", "-c", script + ask], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout == "compopt -o nospace\nalgorithm.budget=\ncompopt -o default\nlace-digits\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_script_of_click(shell: str) -> None:
    assert f"_GOSSAMER_COMPLETE={shell}_complete" in CliRunner().invoke(cli, ["completion", shell]).output
