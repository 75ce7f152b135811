"""The program behind the table of accuracy against bytes: what it counts, chooses and runs again. On the digits."""

import json
import sys
from dataclasses import replace
from math import log2
from pathlib import Path
from types import ModuleType

import pytest
import torch

import gossamer as gs

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ARGUMENTS = "--task digits --nodes 8 --rounds 5 --settle 2 --seeds 3 4 --workers 1 --json --methods"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accuracy_per_byte

    return accuracy_per_byte


@pytest.fixture
def rows(program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """What the program prints, by method, when it is given these methods."""

    def printed(*methods: str) -> dict[str, dict[str, object]]:
        monkeypatch.setattr(sys, "argv", ["program", "--out", str(tmp_path), *ARGUMENTS.split(), *methods])
        program.main()
        return {row["method"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}

    return printed


def test_times_fewer_is_full_sharings_bytes_by_the_methods(rows) -> None:
    found = rows("full", "lace:exchanges=1")["Lace, kept 0.02, 1 exchange"]
    experiment = gs.Experiment(
        nodes=8,
        rounds=7,
        settle=2,
        partition=gs.LabelShards(2),
        optimizer=gs.Optimizer(0.1),
        fast=True,
        evaluation=gs.Evaluation(7, "all", "all"),
    )
    ratios, gains = [], []
    for seed in (3, 4):
        full = gs.simulate(replace(experiment, seed=seed), workers=1).result
        lace = gs.simulate(
            replace(experiment, seed=seed, algorithm=gs.Lace(), topology=gs.Matchings()), workers=1
        ).result
        ratios.append(full["bytes_total"] / lace["bytes_total"])
        gains.append(lace["accuracy_mean"] - full["accuracy_mean"])
    assert found["times_fewer"] == pytest.approx(sum(ratios) / 2, abs=0.006)
    assert found["against_full"] == pytest.approx(sum(gains) / 2, abs=1e-5)


def test_counting_codings_changes_nothing_but_the_bytes(rows) -> None:
    lace, *others = list(rows("lace", "lace-counted").values())[1:]
    assert [row["method"].rpartition(", ")[2] for row in others] == [
        "levels at their order-0 entropy",
        "three bytes for an entry that is sent",
    ]
    for row in others:
        assert (row["before"], row["after"], row["loss"]) == (lace["before"], lace["after"], lace["loss"])
        assert row["times_fewer"] != lace["times_fewer"]


def test_the_entropy_that_is_noted_is_that_of_the_levels(program: ModuleType, tmp_path: Path) -> None:
    counted = program.Counted(gs.DeadZone(kept=0.2))
    program.Counted.notes = tmp_path / "levels.txt"
    x = torch.tensor([[10.0, -10, 0, 0, 0, 0, 0, 0]])  # root mean square 5: levels 2 and -2
    for _ in range(2):  # a round that is run again counts once
        counted(x, gs.Round(4, 0.1, gs.Streams(0, [6], 4)))
    [(number, entries, bits)] = program.Counted.read(program.Counted.notes)
    assert (number, entries) == (4, 2)
    assert bits == pytest.approx(6 * log2(8 / 6) + 2 * log2(8), abs=0.05)


def test_runs_that_are_there_are_not_done_again(rows, program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows("full", "jwins:budget=0.2")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it ran again")

    monkeypatch.setattr(program, "simulate", refuse)
    monkeypatch.setattr(program, "resume", refuse)
    assert rows("jwins:budget=0.2") == first
    with pytest.raises(AssertionError, match="ran again"):
        rows("jwins:budget=0.1")
    assert rows("jwins:budget=0.1", "--markdown").keys() == {"full sharing"}


def test_tuning_takes_the_fewest_bytes_that_are_good_enough(program: ModuleType) -> None:
    dear = {"after": 0.5, "against_full": 0.02, "times_fewer": 3.0}
    cheap = {"after": 0.47, "against_full": -0.009, "times_fewer": 30.0}
    poor = {"after": 0.4, "against_full": -0.08, "times_fewer": 300.0}
    assert program.choose([dear, cheap, poor, {"diverged": [100]}], -0.01) == cheap
    assert program.choose([poor, cheap], -0.001) == cheap  # none is good enough: the most accurate
    assert program.choose([{"diverged": [100]}], -0.01) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lase", "there is no method lase; take one of full, "),
        ("lace:steps=3", "lace has no setting steps; it has kept, exchanges, wavelet"),
        ("lace:kept=few", "kept of lace must be like 0.02, 'few' was given"),
    ],
)
def test_a_method_that_does_not_exist_is_refused(program: ModuleType, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        program.Method.parse(text)


def test_a_method_has_a_learning_rate_of_its_own_and_full_sharing_with_one_is_what_others_are_compared_with(
    program: ModuleType, rows
) -> None:
    method = program.Method.parse("lace:kept=0.04@0.2")
    assert method == program.Method.parse(method.text)
    assert method.on(program.setting("digits")).optimizer.learning_rate == 0.2
    assert program.Method.parse("lace").on(program.setting("digits")).optimizer.learning_rate == 0.1
    with pytest.raises(ValueError, match=r"learning rate such as 0\.01, 'fast' was given"):
        program.Method.parse("full@fast")
    found = rows("full@0.001", "full@0.2")
    assert list(found) == ["full sharing, learning rate 0.001", "full sharing, learning rate 0.2"]
    slow, fast = found.values()
    assert slow["against_full"] == 0
    assert fast["against_full"] == pytest.approx(fast["after"] - slow["after"], abs=1e-4)
    assert fast["after"] > slow["after"]
