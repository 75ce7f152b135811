"""The benchmarks name what there is. What they measure is not tested."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("program", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.name)
def test_a_benchmark_can_be_loaded(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    names = runpy.run_path(str(program))
    for owner, name, _ in names.get("PARTS", ()):
        assert callable(getattr(owner, name)), f"{owner} has no {name} to be timed"
