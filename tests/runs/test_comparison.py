"""Settings side by side: means, paired differences, what it takes to reach a target, and the table as files."""

import csv
import re
import shutil
import subprocess
from math import isnan, sqrt
from pathlib import Path

import pytest

from gossamer import Experiment, ExperimentError, Run
from gossamer.algorithms import Dpsgd, Jwins
from gossamer.runs import tables
from gossamer.runs.comparison import Comparison, Difference, Estimate, choose_baseline, compared
from gossamer.runs.tables import Texts


def run(algorithm: object, seed: int, curve: list[float], bytes_per_round: int = 100, metric: str = "accuracy") -> Run:
    """One that was evaluated after every second round."""
    rows = []
    for round in range(1, 2 * len(curve) + 1):
        sent = {"bytes_header": 1, "bytes_indices": 9, "bytes_values": bytes_per_round - 10}
        row = {"round": round, "train_loss": 1.0, "strategy": "rows", "seconds": 0.5, **sent}
        row |= {"bytes_sent": bytes_per_round * round, "bytes_full": 400 * round}
        if round % 2 == 0:
            score = curve[round // 2 - 1]
            row |= {"test_loss": 1.0, f"{metric}_mean": score, f"{metric}_min": score, f"{metric}_max": score}
            row |= {f"{metric}_of_mean_model": score + 0.01}
            row |= {} if metric == "accuracy" else {"higher_is_better": False}
        rows.append(row)
    return Run(Experiment(name=str(algorithm)[:5], rounds=len(rows), seed=seed, algorithm=algorithm), rows)


def two(target: object = None) -> Comparison:
    full = [run(Dpsgd(), seed, [0.5, 0.6, last], 400) for seed, last in enumerate((0.70, 0.80, 0.90))]
    few = [run(Jwins(), seed, [0.4, 0.7, last]) for seed, last in enumerate((0.71, 0.83, 0.92))]
    return compared({"full": full, "few": few}, target=target)


def test_a_confidence_interval_is_that_of_a_table_of_students_t() -> None:
    """Differences 1, 2, 3, 4, 5: mean 3, deviation sqrt(2.5), and t of 4 degrees of freedom at 97.5 % is 2.776."""
    found = Difference.of(dict(enumerate([11, 22, 33, 44, 55])), dict(enumerate([10, 20, 30, 40, 50])))
    assert found is not None
    half = 2.7764451 * sqrt(2.5) / sqrt(5)
    assert (found.mean, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half))
    assert found.seeds == (0, 1, 2, 3, 4)


def test_differences_are_taken_seed_by_seed_and_only_of_seeds_that_both_have() -> None:
    values, baseline = {3: 0.9, 1: 0.5, 2: 0.7}, {1: 0.4, 2: 0.6, 3: 0.8, 7: 0.0}
    found = Difference.of(values, baseline)
    assert found is not None
    assert found.seeds == (3, 1, 2)
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))  # unpaired it would be +- 0.45
    alone = Difference.of({1: 0.5}, baseline)
    assert alone is not None
    assert alone.mean == pytest.approx(0.1)
    assert isnan(alone.low)
    assert Difference.of({9: 0.5}, baseline) is None


def test_a_table_says_how_many_seeds_each_setting_has_where_that_differs() -> None:
    runs = [run(Dpsgd(), seed, [0.5]) for seed in (0, 1)]
    found = tables.texts(compared({"a": runs, "b": [run(Jwins(), 1, [0.6])]}))
    assert [row[:3] for row in found.rows] == [["a", "2", "50.0 ± 0.0"], ["b", "1", "60.0"]]
    assert found.rows[1][-1] == "+10.0"


def test_means_and_deviations_are_over_the_seeds() -> None:
    full, few = two().settings
    assert (full.metric.mean, full.metric.deviation) == pytest.approx((0.8, 0.1))
    assert full.metric_of_mean_model is not None
    assert full.metric_of_mean_model.mean == pytest.approx(0.81)
    assert (full.bytes_total, full.share_of_full.mean) == (Estimate(2400, 0.0), 1.0)
    assert (few.bytes_total.mean, few.share_of_full.mean, few.seconds.mean) == (600, 0.25, 3.0)
    assert full.difference is None
    assert few.difference is not None
    assert few.difference.mean == pytest.approx(0.02)
    assert few.seeds == (0, 1, 2)


def test_a_target_is_reached_at_the_first_test_whose_mean_over_the_seeds_is_there() -> None:
    full, few = two(target=0.69).settings
    assert full.to_target is not None
    assert few.to_target is not None
    assert (full.to_target.rounds, few.to_target.rounds) == (6, 4)
    assert (few.to_target.bytes_total, few.to_target.bytes_values, few.to_target.bytes_metadata) == (400, 360, 40)
    assert few.to_target.seconds == 2.0
    assert few.to_target.times_fewer_bytes == 2400 / 400
    assert [setting.to_target for setting in two(target=0.99).settings] == [None, None]


def test_by_default_the_worst_setting_reaches_the_target_in_its_last_round() -> None:
    found = two(target="worst")
    assert found.target == pytest.approx(0.8)
    assert [setting.to_target and setting.to_target.rounds for setting in found.settings] == [6, 6]


def test_an_error_is_better_when_it_is_smaller() -> None:
    runs = [
        run(Dpsgd(), 0, [0.5, 0.3, 0.2], metric="absolute_error"),
        run(Jwins(), 0, [0.4, 0.3, 0.25], metric="absolute_error"),
    ]
    found = compared({"a": runs[:1], "b": runs[1:]}, target="worst")
    assert found.target == 0.25
    assert [setting.to_target and setting.to_target.rounds for setting in found.settings] == [6, 6]
    assert [
        s.to_target and s.to_target.rounds for s in compared({"a": runs[:1], "b": runs[1:]}, target=0.3).settings
    ] == [4, 4]


def test_what_differs_is_told_without_the_seed() -> None:
    found = two().differing
    assert found["algorithm.name"] == ["dpsgd", "jwins"]
    assert "seed" not in found


def test_settings_of_two_metrics_are_not_compared() -> None:
    groups = {"a": [run(Dpsgd(), 0, [0.5])], "b": [run(Jwins(), 0, [0.5], metric="error")]}
    with pytest.raises(ExperimentError, match="a measures accuracy and b error; compare runs of one metric"):
        compared(groups)


@pytest.mark.parametrize("wanted", ["few", "algorithm.name=jwins", ["algorithm.name=jwins", "rounds=6"]])
def test_a_baseline_is_a_name_or_values_that_one_setting_has(wanted: str | list[str]) -> None:
    documents = {setting.name: setting.runs[0].document for setting in two().settings}
    assert choose_baseline(documents, wanted) == "few"
    assert choose_baseline(documents, ()) is None


@pytest.mark.parametrize(
    ("wanted", "told"), {"none": "no setting", "nodes=16": "2 settings", "nodes=3": "no setting"}.items()
)
def test_a_baseline_that_is_not_one_setting_is_refused(wanted: str, told: str) -> None:
    documents = {setting.name: setting.runs[0].document for setting in two().settings}
    with pytest.raises(ExperimentError, match=f"^--baseline {wanted} is {told}; name one of: full; few$"):
        choose_baseline(documents, wanted)


def test_csv_and_parquet_have_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = two(target=0.75)
    found.write_csv(tmp_path / "t.csv")
    found.write_parquet(tmp_path / "t.parquet")
    rows = found.rows()
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == rows
    with (tmp_path / "t.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows] == read
    assert [row["setting"] for row in read] == ["full", "few"]
    assert read[0]["difference_mean"] == ""
    assert float(read[1]["difference_mean"]) == pytest.approx(0.02)


def test_parquet_without_pyarrow_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match=r"Parquet is written with pyarrow; install gossamer\[arrow\]"):
        two().write_parquet(tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()


AWKWARD = r"""a_b & c%d #1 $x$ {y} \z ~^ <|> "q" [0] ñ ± 日 -0.5"""


def test_a_latex_table_says_what_the_table_says_and_nothing_else() -> None:
    text = tables.latex(Texts(["setting", "x"], [[AWKWARD, "+1 [-0.5, +2]"], ["[b]", "-1"]]))
    first, *lines, last = text.rstrip().split("\n")
    assert (first, last) == (r"\begin{tabular}{lr}", r"\end{tabular}")
    assert [line for line in lines if line.startswith("\\")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    cells = [line for line in lines if not line.startswith("\\")]
    assert all(line.endswith(r" \\") and len(re.findall(r"(?<!\\)&", line)) == 1 for line in cells)
    assert text.isascii()
    plain = re.sub(r"\\[&%#_${}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert r"a\_b \& c\%d \#1 \char36{}x\char36{} \{y\} \textbackslash{}z" in text
    assert r"{[}$-$0.5, +2{]}" in text
    assert cells[2].startswith("{[}b{]} & $-$1")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_a_latex_table_compiles(tmp_path: Path) -> None:
    two(target=0.75).write_latex(tmp_path / "table.tex")
    tables.write_latex(tmp_path / "awkward.tex", AWKWARD, Texts(["setting", AWKWARD], [[AWKWARD, "-"], ["[b]", "±"]]))
    inputs = r"\input{table} \input{awkward}"
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    (tmp_path / "page.tex").write_text(page)
    done = subprocess.run(["pdflatex", "-halt-on-error", "page.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "page.pdf").stat().st_size > 0


def test_one_seed_has_no_deviation_and_no_interval() -> None:
    found = compared({"a": [run(Dpsgd(), 0, [0.5])], "b": [run(Jwins(), 0, [0.75])]})
    assert tables.texts(found).headings == [
        *("setting", "accuracy %", "mean model", "bytes", "of full", "s", "difference")
    ]
    assert tables.texts(found).rows[1] == ["b", "75.0", "76.0", "200 B", "25.0%", "1.0", "+25.0"]
    assert found.rows()[1]["difference_low"] is None
    assert isnan(found.settings[0].metric.deviation)
