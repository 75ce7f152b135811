"""Carrying a paper's table out: runs, stops, failures, targets, files."""

import json
import os
import re
import signal
from collections import Counter
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gossamer.algorithms import Dpsgd, Jwins, LocalOnly, Scsp, SparsePush
from gossamer.cli.console import SweepProgress
from gossamer.cli.main import cli
from gossamer.compressors import Compressor, Qsgd, Scaled, TopK
from gossamer.data import Cifar10, Digits
from gossamer.experiments import papers
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.experiments.papers.table import (
    ACCURACY,
    COMPRESSION,
    DIVERGENCE,
    MEGABYTES,
    MEGABYTES_TO_TARGET,
    ROUNDS_TO_TARGET,
    Finding,
    Row,
    Size,
    Table,
    above,
    row,
)
from gossamer.graphs.topologies import DirectedRing, Ring
from gossamer.simulator import reproduce as driver
from gossamer.simulator import simulation
from gossamer.simulator.reproduce import Reproduction, first_at, matching, reproduce, run_directory
from gossamer.simulator.reproduce_check import check_table, differences, stored
from gossamer.simulator.run_pool import News
from gossamer.training.optimizer import Optimizer

SHARED = Experiment(
    name="shared", nodes=4, rounds=6, task=Digits(hidden=4), topology=Ring(), algorithm=Dpsgd(),
    evaluation=Evaluation(every=2, nodes="all", samples=100),
)  # fmt: skip
ALONE = replace(SHARED, name="alone", algorithm=LocalOnly())


def rows(size: Size) -> list[Row]:
    return [row(SHARED, 90.0), row(ALONE, 80.0)]


TABLE = Table(
    "a table of digits",
    rows,
    (Finding("sharing helps", above("shared", "alone"), agrees_from=-100.0, contradicts_below=-100.0),),
    small="it is a toy",
    columns=(ACCURACY, MEGABYTES, ROUNDS_TO_TARGET),
    target="alone",
)


def carried_out(out: Path, table: Table = TABLE, seeds: int = 2, **more: Any) -> Reproduction:
    return reproduce({"toy": table}, "small", seeds, out, **more)[0]


def test_a_table_ends_beside_the_papers_with_verdicts(tmp_path: Path) -> None:
    found = carried_out(tmp_path)
    kept = json.loads((tmp_path / "toy-small.json").read_text())
    assert [one["row"] for one in kept["rows"]] == ["shared", "alone"]
    assert kept["rows"][0]["paper"] == {ACCURACY: 90.0}
    accuracies = [one[ACCURACY] for one in kept["rows"][0]["seeds"].values()]
    assert kept["rows"][0]["ours"][ACCURACY][0] == pytest.approx(sum(accuracies) / 2)
    assert kept["findings"][0]["paper"] == 10
    assert kept["findings"][0]["verdict"] == "agrees"
    text = (tmp_path / "toy-small.md").read_text()
    assert "| shared | 90.00 |" in text
    assert "**agrees**" in text
    assert "it is a toy" in text
    assert "<svg" in (tmp_path / "toy-small.html").read_text()
    assert len(found.runs) == 4
    assert run_directory(tmp_path, "small", "alone", 1).is_dir()


def test_some_rows_can_be_run_alone_and_those_that_are_there_count(tmp_path: Path) -> None:
    alone = carried_out(tmp_path, seeds=1, only="al*")
    assert list(alone.figures) == ["alone"]
    assert alone.verdict(TABLE.findings[0]) == "not run yet"
    both = carried_out(tmp_path, seeds=1, only="nothing, shared")
    assert set(both.figures) == {"shared", "alone"}
    assert both.verdict(TABLE.findings[0]) == "agrees"
    with pytest.raises(ExperimentError, match="no row is like theirs; the rows are shared, alone"):
        carried_out(tmp_path, only="theirs")


def test_tables_go_on_together_and_a_row_that_two_have_is_run_once(tmp_path: Path) -> None:
    other = replace(TABLE, rows=lambda size: [row(SHARED), row(replace(SHARED, name="more", rounds=8))])
    news: list[News] = []
    both = reproduce({"toy": TABLE, "other": other}, "small", 2, tmp_path, on_news=news.append)
    started = [one.run.name for one in news if one.what == "started"]
    assert started == [f"{name}, seed {seed}" for seed in (0, 1) for name in ("shared", "alone", "more")]
    assert both[0].figures == carried_out(tmp_path / "by itself").figures
    assert both[1].figures["shared"][0][ACCURACY] == both[0].figures["shared"][0][ACCURACY]
    assert (tmp_path / "other-small.md").exists()
    one = reproduce({"toy": TABLE, "other": other}, "small", 1, tmp_path / "some", only="more")
    assert [set(found.figures) for found in one] == [set(), {"more"}]


def test_a_row_of_another_version_that_was_not_asked_for_is_passed_over(tmp_path: Path) -> None:
    changed = replace(TABLE, rows=lambda size: [row(replace(SHARED, rounds=8)), row(ALONE)])
    carried_out(tmp_path, seeds=1)
    found = carried_out(tmp_path, changed, seeds=1, only="alone")
    assert (set(found.figures), found.failed) == ({"alone"}, {})


def test_of_many_rows_a_few_are_named_once_where_none_is_meant() -> None:
    rows = [row(replace(SHARED, name=str(number % 20))) for number in range(40)]
    with pytest.raises(ExperimentError, match=r"no row is like x; the rows are 0, 1, .*, 15 and 4 more$"):
        matching(rows, "x")


@pytest.mark.parametrize("compressor", [TopK(0.1), Scaled(Qsgd(2))])
def test_a_row_that_is_the_start_of_another_is_read_from_its_run(tmp_path: Path, compressor: Compressor) -> None:
    pushed = replace(SHARED, name="pushed", algorithm=SparsePush(compressor, 0.1), topology=DirectedRing())
    ended = replace(pushed, name="ended", algorithm=Scsp(compressor, 0.1, full_rounds=3), rounds=pushed.rounds + 3)

    def with_rows(*rows: Row) -> Table:
        return Table("starts", lambda size: list(rows), (), "", columns=(ACCURACY, COMPRESSION, MEGABYTES, DIVERGENCE))

    both = with_rows(replace(row(pushed), told_by=row(ended)), row(ended))
    news: list[News] = []
    found = carried_out(tmp_path / "once", both, on_news=news.append)
    assert sorted(one.run.name for one in news if one.what == "started") == ["ended, seed 0", "ended, seed 1"]
    apart = carried_out(tmp_path / "twice", with_rows(row(pushed), row(ended)))
    for label, seed in product(("pushed", "ended"), (0, 1)):
        own, apart_from_it = found.figures[label][seed], apart.figures[label][seed]
        assert (own[ACCURACY], own[DIVERGENCE]) == (apart_from_it[ACCURACY], apart_from_it[DIVERGENCE])
        few_bytes = 0 if isinstance(compressor, TopK) else 4.1 * SHARED.rounds / 1e6  # 4 per message
        assert own[MEGABYTES] == pytest.approx(apart_from_it[MEGABYTES], abs=few_bytes)
    assert found.figures["pushed"] != found.figures["ended"]
    assert not run_directory(tmp_path / "once", "small", "pushed", 0).exists()
    assert len(found.runs) == 2  # of the longer row, one per seed
    first = carried_out(tmp_path / "alone", both, only="pushed")
    assert first.figures["pushed"] == found.figures["pushed"]
    without = carried_out(tmp_path / "without", with_rows(both.rows("small")[0]))  # the longer one is no row
    assert without.figures == {"pushed": found.figures["pushed"]}
    assert "<svg" in (tmp_path / "without" / "toy-small.html").read_text()
    assert "2 seeds" in (tmp_path / "without" / "toy-small.md").read_text()


def test_figures_do_not_depend_on_how_many_runs_go_on_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def note(news: News) -> None:
        began.extend([news.run.name] if news.what == "started" else [])

    one, two = (carried_out(tmp_path / str(jobs), jobs=jobs, on_news=note) for jobs in (1, 2))
    assert one.figures == two.figures
    assert began == 2 * ["shared, seed 0", "alone, seed 0", "shared, seed 1", "alone, seed 1"]
    assert {path.name for path in (tmp_path / "2" / "runs" / "small").iterdir()} == {
        f"{label}-seed-{seed}" for label in ("shared", "alone") for seed in (0, 1)
    }
    monkeypatch.setattr(simulation, "default_start", lambda: "spawn")
    monkeypatch.setattr(simulation, "default_workers", lambda: 1)
    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", None)
    assert carried_out(tmp_path / "without forks").figures == one.figures


def test_the_same_command_carries_on_to_the_same_figures(tmp_path: Path) -> None:
    whole = carried_out(tmp_path / "whole")

    def dies(news: News) -> None:
        if news.run.name == "alone, seed 1" and news.what == "round":
            raise RuntimeError("the machine went down")

    with pytest.raises(RuntimeError, match="went down"):
        carried_out(tmp_path / "killed", on_news=dies, jobs=1)
    seen: list[News] = []
    continued = carried_out(tmp_path / "killed", on_news=seen.append)
    assert {one.run.name for one in seen if one.what == "round"} == {"alone, seed 1"}  # the others are complete
    assert Counter(one.what for one in seen if one.what != "round") == {
        "kept": 3, "waiting": 1, "preparing": 1, "started": 1, "complete": 1,
    }  # fmt: skip
    assert continued.figures == whole.figures


def test_ctrl_c_saves_and_leaves_the_table_so_far(tmp_path: Path) -> None:
    def stops(news: News) -> None:
        if news.run.name == "alone, seed 0" and news.what == "round":
            os.kill(os.getpid(), signal.SIGINT)

    longer = replace(TABLE, rows=lambda size: [row(SHARED), row(replace(ALONE, rounds=100))])
    with pytest.raises(KeyboardInterrupt):
        carried_out(tmp_path, longer, on_news=stops, jobs=1)
    kept = json.loads((tmp_path / "toy-small.json").read_text())
    assert list(kept["rows"][0]["seeds"]) == ["0"]
    assert ROUNDS_TO_TARGET not in kept["rows"][0]["seeds"]["0"]  # the target is not known yet
    assert kept["rows"][1]["seeds"] == {}
    assert kept["findings"][0]["verdict"] == "not run yet"
    assert carried_out(tmp_path, longer).figures == carried_out(tmp_path / "whole", longer).figures


def test_ctrl_c_saves_all_that_is_under_way(tmp_path: Path) -> None:
    under_way: set[str] = set()
    ends: list[str] = []

    def stops(news: News) -> None:
        if news.what == "round" and news.run.name not in under_way:
            under_way.add(news.run.name)
            if len(under_way) == 2:
                os.kill(os.getpid(), signal.SIGINT)
        if news.what in ("complete", "stopped"):
            ends.append(news.what)

    rounds, rarely = 1000, Evaluation(every=500, samples=10)
    longer = replace(
        TABLE, rows=lambda size: [row(replace(one, rounds=rounds, evaluation=rarely)) for one in (SHARED, ALONE)]
    )
    with pytest.raises(KeyboardInterrupt):
        carried_out(tmp_path / "stopped", longer, on_news=stops, jobs=2)
    assert ends == ["stopped", "stopped"]
    assert len(list((tmp_path / "stopped").glob("runs/small/*/checkpoint.safetensors"))) == 2
    seen: list[News] = []
    continued = carried_out(tmp_path / "stopped", longer, seeds=1, on_news=seen.append, jobs=2)
    first = {}
    for one in seen:
        if one.metrics:
            first.setdefault(one.run.name, one.metrics["round"])
    assert min(first.values()) > 1  # from where they were
    assert continued.figures == carried_out(tmp_path / "whole", longer, seeds=1, jobs=2).figures


def test_a_run_that_fails_is_told_and_the_others_are_run(tmp_path: Path) -> None:
    refused = replace(SHARED, name="refused", algorithm=Jwins(), topology=DirectedRing())
    diverging = replace(SHARED, name="diverging", optimizer=Optimizer(learning_rate=1e30))
    table = replace(TABLE, rows=lambda size: [row(refused), row(diverging), *rows(size)])
    for _ in range(2):  # they are tried again
        found = carried_out(tmp_path, table, seeds=1, jobs=2)
        assert set(found.figures) == {"shared", "alone"}
        assert len(found.runs) == 2
        reasons = {Path(directory).name: why for directory, why in found.failed.items()}
        assert "symmetric" in reasons.pop("refused-seed-0")
        assert "learning_rate would help" in reasons.pop("diverging-seed-0")
        assert not reasons
        for why in found.failed.values():
            assert why in (tmp_path / "toy-small.md").read_text()


def test_another_experiment_under_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    carried_out(tmp_path, seeds=1)
    other = replace(TABLE, rows=lambda size: [row(replace(SHARED, rounds=8)), row(ALONE)])
    for what in ("complete", "begun"):
        found = carried_out(tmp_path, other, seeds=1)
        ((directory, why),) = found.failed.items()
        assert why == f"rounds: {directory} is of another version of this table; give another --out, or delete it", what
        assert list(found.figures) == ["alone"]
        (Path(directory) / "result.json").unlink(missing_ok=True)


def test_a_file_in_place_of_the_directory_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match="file cannot be made: File exists; name another directory"):
        carried_out(tmp_path / "file")


def test_a_row_that_never_reaches_the_target_has_no_mean() -> None:
    found = Reproduction("toy", TABLE, "small", 2)
    found.figures = {"shared": {0: {ROUNDS_TO_TARGET: 4.0}, 1: {ROUNDS_TO_TARGET: inf}}}
    assert found.mean("shared", ROUNDS_TO_TARGET)[0] == inf
    assert driver.table_cells(found)[0][-1] == "never"
    assert ("MB per node", "paper") not in driver.headings(found)  # the paper prints none


def test_rows_without_data_are_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    images = replace(SHARED, name="images", task=Cifar10())
    found = carried_out(tmp_path / "some", replace(TABLE, rows=lambda size: [*rows(size), row(images)]), seeds=1)
    assert "CIFAR-10 is not here: there is no" in found.missing["images"]
    with pytest.raises(ExperimentError, match="data_batch_1"):
        carried_out(tmp_path / "none", replace(TABLE, rows=lambda size: [row(images)]))


def test_rounds_to_the_target_are_those_of_the_first_test_that_reaches_it(tmp_path: Path) -> None:
    found = carried_out(tmp_path, seeds=1)
    run = next(run for run in found.runs if run.document["name"] == "shared")
    tested = {m["round"]: m["accuracy_mean"] for m in run.metrics if "accuracy_mean" in m}
    target = found.figures["alone"][0][ACCURACY] / 100
    expected = next((r for r, accuracy in tested.items() if accuracy >= target - 1e-9), inf)
    assert found.figures["shared"][0][ROUNDS_TO_TARGET] == expected
    assert first_at(run, 1.1) == (inf, inf)
    rounds, megabytes = first_at(run, 0.0)
    assert rounds == 2
    assert 0 < megabytes < found.figures["shared"][0][MEGABYTES]
    assert found.figures["alone"][0][MEGABYTES_TO_TARGET] == 0


def test_what_formulas_give_needs_no_run(tmp_path: Path) -> None:
    name = "sparse-push-figure3"
    (found,) = reproduce({name: papers.TABLES[name]}, "small", 3, tmp_path)
    assert [found.verdict(finding) for finding in found.table.findings] == ["agrees", "agrees"]
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / f"{name}-small.html").exists()


@pytest.mark.slow  # gossamer reproduce --check, table by table
@pytest.mark.parametrize("name", papers.TABLES)
def test_a_slice_of_every_table_has_the_stored_values(name: str) -> None:
    assert not differences(name, check_table(name), stored())


def test_values_that_are_not_as_stored_are_told() -> None:
    known = {"table": {"row": {"test_loss": 2.0, "bytes_total": 1000.0}}}
    assert not differences("table", {"row": {"test_loss": 2.01, "bytes_total": 1000.0}}, known)
    assert differences("table", {"row": {"test_loss": 2.1}}, known) == ["table, row: test_loss is 2.1, and was 2"]
    assert differences("table", {"new": {"test_loss": 2.1}}, known) == ["table, new: no test_loss is stored"]
    assert differences("other", {}, known) == ["other: no values are stored"]


MISTAKES = {
    "": "name a table or figure, such as sparse-push-table2",
    "sparse-push-tabel2": "did you mean sparse-push-table2?",
    "--check sparse-push-table99": "sparse-push-table99 is no table or figure that is known here",
    "sparse-push-table2 --size large": "'large' is not one of 'small', 'paper'",
    "sparse-push-table2 --seeds 0": "0 is not in the range x>=1",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_wrong_command_is_a_sentence(words: str) -> None:
    result = CliRunner().invoke(cli, ["reproduce", *words.split()])
    assert result.exit_code == 2
    assert MISTAKES[words] in result.output


def test_the_command_prints_the_table_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(papers.TABLES, "toy", TABLE)
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "toy", "--seeds", "1", "--out", "here", "--jobs", "2"]
    shown = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "sharing helps: paper +10.00" in shown.output
    machine = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    assert json.loads(machine.stdout)["findings"][0]["verdict"] == "agrees"
    assert driver.run_directory(Path("here"), "small", "shared", 0).is_dir()


def test_a_pattern_names_tables_and_what_has_no_data_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    images = row(replace(SHARED, name="images", task=Cifar10()))
    for name, made in (("toy-first", rows), ("toy-images", lambda size: [images]), ("toy-last", rows)):
        monkeypatch.setitem(papers.TABLES, name, replace(TABLE, rows=made))
    words = ["reproduce", "toy-*", "--seeds", "1", "--out", str(tmp_path / "here"), "--json"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert [json.loads(line)["table"] for line in result.stdout.splitlines()] == ["toy-first", "toy-last"]
    assert "toy-images: 1 of 1 rows are left out: CIFAR-10 is not here" in result.stderr
    alone = CliRunner().invoke(cli, ["reproduce", "toy-images", "--out", str(tmp_path / "none")])
    assert alone.exit_code == 2
    assert "there are no data here for toy-images" in alone.stderr


def test_a_command_that_is_stopped_says_how_it_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(self: SweepProgress, news: News) -> None:
        tell(self, news)
        if news.what == "started":
            os.kill(os.getpid(), signal.SIGINT)

    tell = SweepProgress.tell
    monkeypatch.setattr(SweepProgress, "tell", stops)
    monkeypatch.setitem(papers.TABLES, "toy", TABLE)
    monkeypatch.setattr("sys.argv", ["gossamer", "reproduce", "toy", "--out", "a place"])
    words = ["reproduce", "toy", "--out", str(tmp_path / "here"), "--jobs", "1"]
    stopped = CliRunner().invoke(cli, words)
    assert stopped.exit_code == 130
    told = "of 6 runs done; the same command carries on: gossamer reproduce toy --out 'a place'"
    assert told in stopped.output
    assert (tmp_path / "here" / "toy-small.json").exists()


def test_the_list_of_recipes_has_the_papers_in_a_section_of_their_own() -> None:
    listed = CliRunner().invoke(cli, ["list", "recipes", "--json"], catch_exceptions=False)
    kinds = {one["name"]: one["kind"] for one in json.loads(listed.stdout)}
    assert kinds["jwins-digits"] == "recipes"
    assert kinds["sparse-push-table2"].startswith("tables and figures")
    assert set(papers.TABLES) <= kinds.keys()


def test_a_list_of_a_table_has_its_rows_and_findings_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    result = CliRunner().invoke(cli, ["reproduce", "sparse-push-table2", "--list"])
    assert result.exit_code == 0
    row = next(line.split() for line in result.stdout.splitlines() if "ResNet-20 SP top-1 " in line)
    assert row[3:] == ["90.68", "66.80", "1.51e-05", "4", "2,000"]
    assert "keeping 1 % costs little (against SGP): paper -1.41, agrees from -3.00 points\n" in result.stdout
    assert "12 of 12 rows are left out: CIFAR-10 is needed and no directory with data is named" in result.stderr
    assert not list(tmp_path.iterdir())
    words = ["reproduce", "low-precision-table10", "sparse-push-table2", "--list", "--json"]
    formulas, trained = map(json.loads, CliRunner().invoke(cli, words).stdout.splitlines())
    assert formulas["rows"][0]["paper"]["MB"] == 170.6
    assert [trained["rows"][0][key] for key in ("nodes", "rounds")] == [4, 2000]
    some = CliRunner().invoke(cli, ["reproduce", "sparse-push-table2", "--list", "--rows", "*SCSP*"])
    assert "SCSP top-1 " in some.stdout
    assert "SP top-100" not in some.stdout


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("jwins-digits", "but one experiment; run it with: gossamer run jwins-digits"),
        ("sparse-push-table22", r"\(did you mean sparse-push-table2\?\)$"),
        ("nonsense", "gossamer list recipes has their names"),
    ],
)
def test_what_is_no_table_is_told_with_what_would_work(name: str, told: str) -> None:
    result = CliRunner().invoke(cli, ["reproduce", name])
    assert result.exit_code == 2
    assert re.search(told, result.stderr.strip())
