"""Names that installed packages bring: in files, in lists, and on peers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = '''
from dataclasses import dataclass
import torch
from torch import nn
import gossamer as gs
from gossamer.algorithms.dpsgd import Dpsgd

@dataclass(frozen=True)
class LazyGossip(Dpsgd):
    """Full sharing that moves only part of the way."""
    rate: float = 0.5
    def receive(self, state, inbox, round):
        return state._replace(x=state.x + self.rate * (inbox.sum("x") - state.x))

@dataclass(frozen=True)
class Half(gs.Compressor):
    """The first half of the entries."""
    kind = "contraction"
    spec = gs.PartSpec(sparse=True)
    def choose(self, x, round):
        return (torch.arange(x.shape[1]) < x.shape[1] // 2).expand(x.shape).contiguous()
    def delta(self, width):
        return 0.0

@dataclass(frozen=True)
class Line:
    """Is a number over 0?"""
    number: int = 400
    def load(self):
        x = 2 * torch.rand(self.number, 1, generator=torch.Generator().manual_seed(0)) - 1
        y = (x[:, 0] > 0).long()
        return gs.Supervised(model=lambda: nn.Linear(1, 2), train=(x[::2], y[::2]), test=(x[1::2], y[1::2]))

not_a_class = 3
'''
ENTRIES = """[gossamer.algorithms]
lazy-gossip = lazy_gossip:LazyGossip
dpsgd = lazy_gossip:LazyGossip
Wrong_Name = lazy_gossip:LazyGossip
no-class = lazy_gossip:not_a_class
not-there = lazy_gossip_of_nobody:Lazy

[gossamer.compressors]
first-half = lazy_gossip:Half
an-algorithm = lazy_gossip:LazyGossip

[gossamer.tasks]
line = lazy_gossip:Line
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That of a process in which the package is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "lazy_gossip.py").write_text(CODE)
    about = site / "lazy_gossip-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lazy-gossip\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    before = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{before}" if before else str(site)}


def gossamer(environment: dict[str, str], *words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gossamer", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)


LAZY = "algorithm={name='lazy-gossip', rate=0.25}"
CHANGES = ["--set", "task=line", "--set", "nodes=4", "--set", "topology.name=ring", "--set", "partition.name=iid"]


@pytest.mark.slow
def test_a_package_gives_algorithms_tasks_and_compressors_names(environment: dict[str, str], tmp_path: Path) -> None:
    words = ["run", "dpsgd-digits", "--rounds", "3", *CHANGES, "--workers", "1", "--json"]
    lazy = gossamer(
        environment, *words, "--set", "algorithm={name='lazy-gossip', rate=0.25}", "--out", str(tmp_path / "a")
    )
    assert lazy.returncode == 0, lazy.stderr
    result = json.loads(lazy.stdout)
    assert (result["algorithm"], result["task"]) == ("lazy-gossip", "line")
    assert "rate = 0.25" in (tmp_path / "a" / "experiment.toml").read_text()
    compressed = ["--set", "algorithm={name='choco', compressor='first-half', rate=0.5}"]
    half = gossamer(environment, *words, *compressed, "--out", str(tmp_path / "b"))
    assert half.returncode == 0, half.stderr
    again = gossamer(environment, "report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "r.html"))
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_what_does_not_fit_is_told_and_passed_over(environment: dict[str, str]) -> None:
    listed = gossamer(environment, "list", "algorithms", "--json")
    assert listed.returncode == 0, listed.stderr
    names = [row["name"] for row in json.loads(listed.stdout)]
    assert names.count("dpsgd") == 1
    assert "lazy-gossip" in names
    assert not {"Wrong_Name", "no-class", "not-there"} & set(names)
    for words in (
        "'dpsgd' of lazy-gossip is passed over: there is another of this name",
        "'Wrong_Name' of lazy-gossip is passed over: a name has small letters",
        "'no-class' of lazy-gossip is passed over: it must be a dataclass of its kind",
        "'not-there' of lazy-gossip is passed over: No module named",
        "gossamer.compressors: 'an-algorithm' of lazy-gossip is passed over",
    ):
        assert words in listed.stderr


def test_without_the_package_the_name_is_unknown() -> None:
    done = gossamer(dict(os.environ), "run", "dpsgd-digits", "--set", "algorithm=lazy-gossip")
    assert done.returncode == 2
    assert "there is no 'lazy-gossip'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_peers_with_the_package_have_the_simulators_models(environment: dict[str, str], tmp_path: Path) -> None:
    patient = ["--deadline", "120", "--start-deadline", "300", "--dead-after", "60", "--verify", "--json"]
    words = ["up", "4", "dpsgd-digits", "--rounds", "4", *CHANGES[:2], *CHANGES[4:], "--set", "algorithm=lazy-gossip"]
    done = gossamer(environment, *words, *patient, "--out", str(tmp_path / "up"), timeout=500)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verified"]
    assert report["verified_bytes"]
