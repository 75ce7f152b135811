"""The tables and figures of three papers as recipes: that they are whole, and that verdicts follow from figures."""

import runpy
from dataclasses import fields, replace
from math import isnan, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from gossamer.algorithms import Scsp, SparsePush
from gossamer.data import Cifar10, MovieLens
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.papers import TABLES, Row, Size, Verdict
from gossamer.experiments.papers.slices import slice_of, stand_in
from gossamer.experiments.papers.table import (
    ACCURACY,
    COMPRESSION,
    MEGABYTES,
    MEGABYTES_TO_TARGET,
    ROUNDS_TO_TARGET,
    SIZES,
    Finding,
    above,
    first_known,
    halved,
    least_above,
    mean_above,
    tenfold_drops,
    times,
)
from gossamer.simulator.reproduce import paper_gap

OF_THEMSELVES = ("low-precision-table2", "low-precision-figure1")  # every row has a run of its own


def row_of(table: str, label: str) -> Row:
    return next(row for row in TABLES[table].rows("paper") if row.label == label)


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_one_name_are_one_experiment_in_all_tables(size: Size) -> None:
    experiments: dict[str, Experiment] = {}
    for table in TABLES.values():
        rows = table.rows(size)
        assert len({row.label for row in rows}) == len(rows)
        for row in rows:
            assert (row.experiment is None) != (row.computed is None)
            if row.experiment is not None:
                assert experiments.setdefault(row.label, row.experiment) == row.experiment


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("size", SIZES)
def test_a_row_that_another_tells_of_differs_in_the_last_phase_alone(name: str, size: Size) -> None:
    rows = TABLES[name].rows(size)
    told = [row for row in rows if row.told_by]
    assert bool(told) == (rows[0].computed is None and not name.startswith("jwins") and name not in OF_THEMSELVES)
    for row in told:
        own, whole = row.experiment, row.source.experiment
        assert own is not None
        assert whole is not None
        assert own.rounds == own.training_rounds == whole.training_rounds
        last_phase = {"name": whole.name, "rounds": whole.rounds, "settle": whole.settle}
        if isinstance(whole.algorithm, Scsp):
            assert isinstance(own.algorithm, SparsePush)
            settings = {field.name: getattr(own.algorithm, field.name) for field in fields(SparsePush)}
            assert replace(whole.algorithm, **settings) == whole.algorithm
            last_phase["algorithm"] = whole.algorithm
        assert replace(own, **last_phase) == whole
        assert whole.rounds > own.rounds or not name.startswith("sparse-push")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("size", SIZES)
def test_every_finding_is_about_rows_that_are_there(name: str, size: Size) -> None:
    table = TABLES[name]
    columns = {ACCURACY, COMPRESSION, MEGABYTES, ROUNDS_TO_TARGET, MEGABYTES_TO_TARGET, *table.columns}
    rows = table.rows(size)
    figures = {row.label: dict.fromkeys(columns, 1.0 + number) for number, row in enumerate(rows)}
    assert table.findings
    for finding in table.findings:
        assert not isnan(finding.gap(figures)), finding.text
        assert isnan(finding.gap({}))
        assert finding.contradicts_below <= finding.agrees_from
    assert table.target in ("", *figures)


@pytest.mark.parametrize("name", TABLES)
def test_the_papers_own_figures_agree_with_what_it_finds(name: str) -> None:
    table = TABLES[name]
    for finding in table.findings:
        gap = paper_gap(table, "paper", finding)
        assert finding.contradicts_below <= finding.agrees_from
        assert finding.verdict([gap]) in ("agrees", "not run yet"), (finding.text, gap)


HEADLINES = [  # of the three papers: table, row, column, figure
    ("jwins-target-cifar10", "CIFAR-10 random sampling", ACCURACY, 40.1),
    ("jwins-target-movielens", "MovieLens random sampling", ACCURACY, 89.2),
    ("jwins-target-shakespeare", "Shakespeare random sampling", ACCURACY, 33.5),
    ("jwins-target-celeba", "CelebA random sampling", ACCURACY, 93.4),
    ("jwins-target-femnist", "handwriting random sampling", ACCURACY, 86.9),
    ("sparse-push-table2", "ResNet-20 SP top-100", ACCURACY, 92.09),
    ("sparse-push-table2", "ResNet-20 SP top-10", ACCURACY, 91.27),
    ("sparse-push-table2", "ResNet-20 SP top-1", ACCURACY, 90.68),
    ("sparse-push-table2", "ResNet-20 SP top-0.1", ACCURACY, 90.51),
    ("sparse-push-table2", "ResNet-20 SP top-0", ACCURACY, 85.44),
    ("sparse-push-table2", "ResNet-20 SCSP top-1", ACCURACY, 91.27),
    ("sparse-push-table2", "ResNet-20 SCSP top-0.1", ACCURACY, 91.09),
    ("sparse-push-table2", "ResNet-20 SP top-10", COMPRESSION, 6.68),
    ("sparse-push-table2", "ResNet-20 SP top-1", COMPRESSION, 66.8),
    ("sparse-push-table2", "ResNet-20 SP top-0.1", COMPRESSION, 665),
    ("sparse-push-table2", "ResNet-20 SCSP top-0.1", COMPRESSION, 466),
    ("low-precision-table10", "ResNet-20 range-evonorm training", "MB", 124.60),
    ("low-precision-table10", "ResNet-20 range-evonorm training", "MB 8-bit", 35.43),
    ("low-precision-table10", "ResNet-20 range-evonorm training", "mJ", 68.82),
    ("low-precision-table10", "ResNet-20 range-evonorm inference", "mJ 8-bit", 1.16),
]


@pytest.mark.parametrize(("table", "label", "column", "figure"), HEADLINES)
def test_the_papers_headline_figures_have_a_row(table: str, label: str, column: str, figure: float) -> None:
    assert row_of(table, label).paper[column] == figure


def test_the_papers_protocols_are_theirs() -> None:
    jwins = row_of("jwins-scale", "384 nodes JWINS").experiment
    assert jwins is not None
    assert (jwins.nodes, jwins.batch_size, jwins.local_steps) == (384, 8, 3)
    ring = row_of("sparse-push-table2", "ResNet-20 SP top-1").experiment
    assert ring is not None
    assert (ring.nodes, ring.rounds, ring.batch_size) == (4, 200 * 391, 32)
    assert [ring.optimizer.learning_rate_at(391 * epoch, ring.rounds) for epoch in (99, 100, 150)] == pytest.approx(
        [0.1, 0.01, 0.001]
    )
    low = row_of("low-precision-table3", "ResNet-20 ring 8 8-bit CHOCO top-1 skew 0.8").experiment
    assert low is not None
    assert (low.nodes, low.rounds) == (8, 39_200)
    assert low.optimizer.nesterov
    assert not low.optimizer.quasi_global
    scsp = row_of("sparse-push-table4", "ResNet-20 SCSP top-1").experiment
    assert scsp is not None
    assert (scsp.training_rounds, scsp.rounds - scsp.training_rounds) == (200 * 391, 40)


SPEEDS = {  # node-steps per second and core, by model, at the batch of the small size; on a busy machine
    "GnLeNet": 105, "GnLeNet none": 180, "GnLeNet evonorm": 55, "GnLeNet evonorm 16": 110, "StackedLstm": 136,
    "FemnistCnn": 44, "CelebaCnn": 15, "MatrixFactorization": 20_000, "ResNet20": 57, "ResNet54": 22, "ResNet18": 14,
    "Transformer": 170, "Mlp": 5000,
}  # fmt: skip
EIGHT_BITS = 2.5  # times as long as in float
OF_TEXTS = 1.8  # the same of a transformer on short texts


def minutes(name: str) -> float:
    """Of the small size with three seeds on two cores, by counting steps; tests and messages are a third more."""
    seconds = {}
    for row in TABLES[name].rows("small"):
        if row.experiment is not None:
            task: Any = row.experiment.task
            kind = type(task.model).__name__
            if kind == "GnLeNet" and task.model.norm != "group":
                kind += " none" if task.model.norm == "none" else " evonorm"
                kind += " 16" if kind.endswith("evonorm") and task.size == 16 else ""
            eight_bits = OF_TEXTS if kind == "Transformer" else EIGHT_BITS
            slower = max(row.experiment.batch_size / 32, 1) * (eight_bits if task.precision == "int8" else 1)
            steps = row.experiment.nodes * row.experiment.training_rounds * row.experiment.local_steps
            seconds[row.source.label] = steps * slower / SPEEDS[kind]
    return 3 * sum(seconds.values()) * 1.33 / 1.77 / 60


@pytest.mark.parametrize("name", TABLES)
def test_the_small_size_takes_at_most_forty_minutes(name: str) -> None:
    assert minutes(name) <= 40


def with_accuracies(**accuracies: float) -> dict[str, dict[str, float]]:
    return {label: {ACCURACY: accuracy} for label, accuracy in accuracies.items()}


def test_gaps_are_differences_and_quotients_of_rows() -> None:
    rows = with_accuracies(a=90.0, b=88.0, c=80.0)
    assert above("a", "b")(rows) == 2
    assert mean_above([("a", "b"), ("a", "c"), ("a", "missing")])(rows) == 6
    assert least_above([("a", "b"), ("a", "c")])(rows) == 2
    assert isnan(least_above([("a", "b"), ("a", "missing")])(rows))
    assert first_known(above("a", "missing"), above("a", "c"), above("a", "b"))(rows) == 10
    assert isnan(first_known(above("a", "missing"))(rows))
    assert times("a", "c", ACCURACY)(rows) == 1.125
    assert isnan(times("a", "b", COMPRESSION)(rows))


def test_a_verdict_agrees_is_weaker_or_contradicts() -> None:
    finding = Finding("a is above b by 2 points", above("a", "b"), agrees_from=2.0)
    assert finding.verdict([2.5, 1.9]) == "agrees"
    assert finding.verdict([1.0, 0.5]) == "weaker"
    assert finding.verdict([1.0, -3.0]) == "weaker"  # the seeds differ
    assert finding.verdict([5.0, -0.2]) == "weaker"  # one is on the other side
    assert finding.verdict([-0.1, -3.0]) == "contradicts"
    assert finding.verdict([nan, 2.0]) == "agrees"
    assert finding.verdict([nan]) == finding.verdict([]) == "not run yet"
    within = Finding("a is within 1 point of b", above("a", "b"), agrees_from=-1.0, contradicts_below=-3.0)
    assert [within.verdict([gap]) for gap in (0.4, -0.9, -2.0, -3.5)] == ["agrees", "agrees", "weaker", "contradicts"]


def test_schedules_fall_in_proportion_to_the_rounds() -> None:
    tenfold, half = tenfold_drops(400), halved(400, 0.05, every=0.15, weight_decay=5e-4)
    assert [tenfold.learning_rate_at(r, 400) for r in (199, 200, 300)] == pytest.approx([0.1, 0.01, 0.001])
    assert [half.learning_rate_at(r, 400) for r in (59, 60, 399)] == pytest.approx([0.05, 0.025, 0.05 / 2**6])


def test_a_stand_in_has_the_tasks_own_model() -> None:
    ratings, images = stand_in(MovieLens()), stand_in(Cifar10())
    assert ratings.metric == "accuracy"
    assert ratings.clients is not None
    assert sum(images.layer_sizes) == 89_834  # GN-LeNet


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_the_small_size_can_be_prepared(name: str) -> None:
    for row in TABLES[name].rows("small"):
        if row.experiment is not None:
            sliced = slice_of(row.experiment)
            sliced.prepared(sliced.load_task())


@pytest.fixture
def papers_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that writes the page of results, with the page that it writes."""
    monkeypatch.setattr("sys.argv", ["papers_page.py"])
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "papers_page.py")))


def test_the_page_of_results_has_every_finding_with_the_papers_gap_and_the_limits(papers_page: Any) -> None:
    lines = papers_page.PAGE.read_text().splitlines()
    known = papers_page.on_page(lines)
    assert known.keys() == {(name, finding.text) for name, table in TABLES.items() for finding in table.findings}
    assert {verdict for _, verdict, *_ in known.values()} <= set(get_args(Verdict))
    for paper in ("jwins", "sparse-push", "low-precision"):
        assert all(row in lines for row in papers_page.rows_of(paper, known))


def test_the_picture_of_the_results_is_of_lines_of_the_page(papers_page: Any) -> None:
    drawn = [key for lines in papers_page.PICTURE.values() for key in lines]
    assert {*drawn} <= papers_page.on_page(papers_page.PAGE.read_text().splitlines()).keys()
    known = {drawn[0]: ["+3.00 (+1.00 to +5.00)", "agrees", "2", "abc"]}
    assert papers_page.plot(known).count("not run yet") == len(drawn) - 1


@pytest.mark.parametrize("method", ["DeepSqueeze", "CHOCO"])
@pytest.mark.parametrize(("kept", "rate"), [("full", 1.0), ("top-1", 0.01)])
def test_at_the_papers_size_averaging_rates_are_the_authors(method: str, kept: str, rate: float) -> None:
    experiment = row_of("low-precision-table3", f"ResNet-20 ring 8 8-bit {method} {kept} skew 0.8").experiment
    assert experiment is not None
    assert experiment.algorithm.rate == rate  # type: ignore[attr-defined]


def test_a_row_that_two_tables_have_is_told_by_one_run() -> None:
    for size in SIZES:
        sources: dict[str, str] = {}
        for table in TABLES.values():
            for row in table.rows(size):
                assert sources.setdefault(row.label, row.source.label) == row.source.label
