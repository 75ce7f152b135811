"""Tables at several sites, encoded in the same way without a row leaving a site."""

from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from gossamer.cli.main import cli
from gossamer.data import Table
from gossamer.data.arrays import fixed_split
from gossamer.data.description import agreed, read_summary, summary
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.topologies import Ring
from gossamer.peers.data import prepare

TABLE = Table("table.csv", "ill")


def site(directory: Path, seed: int, colours: str, age: float, rows: int = 60) -> Path:
    random = Random(seed)
    lines = ["age,colour,ill"]
    for _ in range(rows):
        years = "" if random.random() < 0.1 else f"{random.gauss(age, 10):.2f}"
        lines.append(f"{years},{random.choice(colours)},{random.choice(['no', 'yes'])}")
    directory.mkdir()
    (directory / "table.csv").write_text("\n".join(lines) + "\n")
    return directory / "table.csv"


def test_sites_encode_as_one_that_had_all_rows(tmp_path: Path) -> None:
    paths = [site(tmp_path / "north", 1, "rg", 40), site(tmp_path / "south", 2, "gb", 60)]
    settings = agreed([summary(TABLE, path, least=1) for path in paths])
    shared = toml.read({"task": {"name": "table", "file": "table.csv", **settings}}).task
    assert isinstance(shared, Table)
    both = paths[0].read_text() + "".join(paths[1].read_text().splitlines(keepends=True)[1:])
    (tmp_path / "table.csv").write_text(both)
    (pooled, _), *_ = _all_rows(replace(shared, root=str(tmp_path)))
    parts = [_all_rows(replace(shared, root=str(path.parent)))[0][0] for path in paths]
    torch.testing.assert_close(pooled, torch.cat(parts))
    assert pooled.shape[1] == 4  # age, and three colours
    ages = np.array([float(line.split(",")[0]) for line in both.splitlines()[1:] if line.split(",")[0]])
    assert shared.numbers[0][1:] == pytest.approx((ages.mean(), ages.std()))


def _all_rows(table: Table) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """In the order of the file."""
    arrays = table.arrays()
    train, test = fixed_split(len(arrays.train[1]) + len(arrays.test[1]), 0.2)
    order = torch.argsort(torch.cat([train, test]))
    return [(torch.cat([arrays.train[0], arrays.test[0]])[order], torch.cat([arrays.train[1], arrays.test[1]])[order])]


def test_rare_words_are_not_told_and_become_zeros(tmp_path: Path) -> None:
    path = site(tmp_path / "north", 1, "rrrrrrrrrg", 40)
    told = summary(TABLE, path, least=20)
    assert told.words == {"colour": ["r"]}
    assert told.rows == 60
    table = toml.read({"task": {"name": "table", "file": "table.csv", **agreed([told])}}).task
    inputs = _all_rows(replace(table, root=str(path.parent)))[0][0]  # type: ignore[type-var, arg-type]
    rare = [",g," in line for line in path.read_text().splitlines()[1:]]
    assert (inputs[rare][:, 1] == 0).all()


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ("age,ill\n1,no\n", "not all sites have the columns colour"),
        ("age,colour,ill\nold,r,no\n", "the columns age are numbers at one site and words at another"),
    ],
)
def test_sites_that_cannot_agree_are_told_why(tmp_path: Path, theirs: str, told: str) -> None:
    ours = summary(TABLE, site(tmp_path / "north", 1, "rg", 40), 1)
    (tmp_path / "table.csv").write_text(theirs)
    with pytest.raises(ValueError, match=told):
        agreed([ours, summary(TABLE, tmp_path / "table.csv", 1)])


def test_a_strange_class_is_named(tmp_path: Path) -> None:
    path = site(tmp_path / "north", 1, "rg", 40)
    with pytest.raises(ValueError, match=r"its column 'ill' has 'yes', and the classes are no, maybe"):
        replace(TABLE, classes=("no", "maybe"), root=str(path.parent)).arrays()


def test_the_commands_lead_to_peers_that_use_all_of_their_own_rows(tmp_path: Path) -> None:
    summaries = []
    for name, colours in (("north", "rg"), ("south", "gb")):
        path = site(tmp_path / name, len(summaries), colours, 50)
        out = tmp_path / f"{name}.json"
        words = ["data", "describe", str(path), "--target", "ill", "--out", str(out)]
        assert CliRunner().invoke(cli, words).exit_code == 0
        assert "exists" in str(CliRunner().invoke(cli, words).exception)  # nothing is overwritten
        assert read_summary(out).rows == 60
        summaries.append(str(out))
    printed = CliRunner().invoke(cli, ["data", "agree", *summaries]).stdout
    (tmp_path / "experiment.toml").write_text(f'nodes = 2\ntopology = "ring"\n{printed}')
    experiment = toml.read(toml.load(tmp_path / "experiment.toml"))
    parts = [prepare(experiment, node, tmp_path / name) for node, name in enumerate(("north", "south"))]
    assert [len(part.samples) for part in parts] == [48, 48]  # a fifth is for tests
    assert parts[0].task.layer_sizes == parts[1].task.layer_sizes


def test_a_class_in_few_rows_is_told_to_the_site_itself_and_to_nobody_else(tmp_path: Path) -> None:
    path = site(tmp_path / "north", 1, "rg", 40)
    path.write_text(path.read_text().replace("yes", "Yes", 3))
    out = tmp_path / "north.json"
    told = CliRunner().invoke(cli, ["data", "describe", str(path), "--target", "ill", "--out", str(out)])
    assert "too rare to be told: ill = 'Yes' (3 rows); such rows would be refused" in told.stderr
    assert "Yes" not in out.read_text()
    wrong = CliRunner().invoke(cli, ["data", "describe", str(path), "--target", "il"])
    assert str(wrong.exception).count(str(path)) == 1


def test_a_task_without_files_needs_tensors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no train\.safetensors, and Digits reads no other files"):
        prepare(Experiment(nodes=2, topology=Ring()), 0, tmp_path)


def table(path: Path, ages: list[str]) -> Path:
    path.write_text("age,ill\n" + "".join(f"{age},{'yes' if i % 2 else 'no'}\n" for i, age in enumerate(ages)))
    return path


def test_numbers_of_few_rows_are_not_told(tmp_path: Path) -> None:
    path = table(tmp_path / "table.csv", ["", "81.5", "", "", "", "79", "", "", "", "", "", ""])
    assert summary(TABLE, path).numbers == {"age": (0, 0.0, 0.0)}
    assert summary(TABLE, path, least=2).numbers["age"][:2] == (2, 160.5)
    with pytest.raises(ValueError, match="no site tells of numbers in the columns age: all have too few; leave them"):
        agreed([summary(TABLE, path)])
    other = summary(TABLE, table(tmp_path / "other.csv", ["40", "50", "60"] * 4))
    assert agreed([summary(TABLE, path), other])["numbers"] == [["age", 50.0, pytest.approx(np.std([40, 50, 60]))]]


@pytest.mark.parametrize("missing", ["nan", "NaN", "inf"])
def test_what_a_table_takes_to_be_missing_is_missing_in_a_summary(tmp_path: Path, missing: str) -> None:
    path = table(tmp_path / "table.csv", ["1", "2", "3", missing, "4", "5", "6", ""])
    (tmp_path / "summary.json").write_bytes(msgspec.json.encode(summary(TABLE, path)))
    assert read_summary(tmp_path / "summary.json").numbers["age"] == (6, 21.0, 17.5)


def test_large_numbers_that_differ_little_keep_their_deviation(tmp_path: Path) -> None:
    times = [1.7e9 + i % 7 for i in range(140)]
    halves = [
        table(tmp_path / name, list(map(str, part))) for name, part in (("a.csv", times[:40]), ("b.csv", times[40:]))
    ]
    ((_, mean, deviation),) = agreed([summary(TABLE, path) for path in halves])["numbers"]
    assert (mean, deviation) == pytest.approx((np.mean(times), np.std(times)), rel=1e-8)


def test_classes_that_one_site_alone_has_are_named_in_a_warning(tmp_path: Path) -> None:
    paths = [site(tmp_path / name, seed, "rg", 40) for seed, name in enumerate(("north", "south"))]
    told = []
    for path in paths:
        out = tmp_path / f"{path.parent.name}.json"
        words = ["data", "describe", str(path), "--target", "ill", "--out", str(out)]
        assert CliRunner().invoke(cli, words).exit_code == 0
        told.append(str(out))
    done = CliRunner().invoke(cli, ["data", "agree", *told])
    assert (done.exit_code, done.stderr) == (0, "")
    assert CliRunner().invoke(cli, ["data", "agree", told[0]]).stderr == "", "one site alone shares with nobody"
    paths[1].write_text(paths[1].read_text().replace("yes", "Yes"))
    Path(told[1]).unlink()
    CliRunner().invoke(cli, ["data", "describe", str(paths[1]), "--target", "ill", "--out", told[1]])
    done = CliRunner().invoke(cli, ["data", "agree", *told])
    assert done.exit_code == 0
    assert done.stderr.startswith(
        f"gossamer: warning: some classes are told by one site only: {told[0]} ('yes'), {told[1]} ('Yes'); if two"
    )
    assert 'classes = [\n    "Yes",\n    "no",\n    "yes",\n]' in done.stdout
