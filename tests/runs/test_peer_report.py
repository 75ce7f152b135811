"""A report of peers' directories, and of the one that `gossamer up` makes."""

import json
import sys
from pathlib import Path

import pytest

from gossamer.cli import main as cli
from gossamer.data.toy import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.graphs.topologies import Ring
from gossamer.peers.local.local_group import LocalGroup
from gossamer.runs.report.text import plain
from gossamer.runs.run import open_run
from gossamer.runs.watch.listing import parts, runs_under
from gossamer.runs.watch.pages import content

EXPERIMENT = Experiment(name="small", nodes=2, rounds=6, task=Quadratic(), topology=Ring(), evaluation=Evaluation(2))


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("peers") / "up"
    with LocalGroup(EXPERIMENT, directory) as peers:
        peers.start()
        peers.wait(120)
    return directory


def report(monkeypatch: pytest.MonkeyPatch, *words: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["gossamer", "report", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code or 0)


def test_a_report_of_a_group_shows_each_of_its_peers(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report(monkeypatch, group) == 0
    said = capsys.readouterr().out
    page = Path("report.html").read_text()
    for name in ("peer-0", "peer-1"):
        found = json.loads((group / name / "result.json").read_text())
        assert f"{found['distance']:.4g}" in said
        assert name in said
        assert name in page
    assert "values" not in said  # which a peer does not know
    assert "2 nodes, 1 link; colour by distance" in page
    for node in range(2):
        found = json.loads((group / f"peer-{node}" / "result.json").read_text())
        assert f"<title>node {node}: {plain(found['distance'])}</title>" in page


def test_a_group_is_watched_as_one(group: Path) -> None:
    [found] = runs_under(group.parent)
    assert (found.name, found.state, found.directory) == (group.name, "complete", group)
    assert [part.name for part in parts(found.directory)] == ["peer-0", "peer-1"]
    page = content([found])
    assert "<h1>small</h1>" in page
    assert 'data-name="peer-1"' in page


def test_a_peers_result_is_what_the_peer_itself_reported(group: Path) -> None:
    found, run = json.loads((group / "peer-1" / "result.json").read_text()), open_run(group / "peer-1")
    assert run.peer == "peer-1"
    assert run.result["distance_mean"] == found["distance"]  # type: ignore[typeddict-item]
    assert 0 < run.result["bytes_total"] <= found["bytes_out"]  # the last message may arrive after its round
    assert run.result["rounds"] == found["rounds"] == 6


def test_rounds_for_which_a_peer_was_away_are_no_damage(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = tmp_path / "alice"
    peer.mkdir()
    (peer / "experiment.toml").write_bytes((group / "experiment.toml").read_bytes())
    rows = (group / "peer-0" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (peer / "metrics.jsonl").write_bytes(b"".join(rows[:1] + rows[3:]))
    monkeypatch.chdir(tmp_path)
    assert report(monkeypatch, peer) == 0
    assert [row["round"] for row in open_run(peer).metrics] == [1, 4, 5, 6]
    assert open_run(peer).result["bytes_total"] == open_run(group / "peer-0").result["bytes_total"]
    (peer / "metrics.jsonl").write_bytes(b"".join(rows[3:] + rows[:1]))
    with pytest.raises(ExperimentError, match="rounds are not in order"):
        open_run(peer)
