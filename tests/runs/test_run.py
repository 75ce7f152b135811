"""Run directories: whatever a crash, a full disk or an editor leaves behind is continued rightly or refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

import gossamer
from contract import QUADRATIC
from gossamer import Dpsgd, ExperimentError, Run
from gossamer.experiments.experiment import Wire
from gossamer.graphs.topologies import Cycle, EdgeList, Matchings, Ring
from gossamer.runs import checkpoint

EXPERIMENT = replace(QUADRATIC, topology=Ring())


class CrashError(Exception):
    pass


def crashed(directory: Path, after: int, experiment: gossamer.Experiment = EXPERIMENT) -> Path:
    """A run that died after so many of its 6 rounds, with a checkpoint after every second one."""

    def on_round(metrics: dict) -> None:
        if metrics["round"] == after:
            raise CrashError

    with pytest.raises(CrashError):
        gossamer.simulate(experiment, directory, workers=1, checkpoint_every=2, on_round=on_round)
    return directory


def as_undisturbed(run: Run, experiment: gossamer.Experiment = EXPERIMENT) -> bool:
    whole = gossamer.simulate(experiment, workers=1)
    rounds = [[{k: v for k, v in m.items() if k != "seconds"} for m in r.metrics] for r in (run, whole)]
    return rounds[0] == rounds[1] and torch.equal(run.models, whole.models)


@pytest.mark.parametrize("after", [1, 5, 6])
def test_a_run_that_died_is_continued_or_begun_again(after: int, tmp_path: Path) -> None:
    run = crashed(tmp_path / "run", after)
    assert (run / "checkpoint.safetensors").exists() == (after > 1)
    assert as_undisturbed(gossamer.resume(run, workers=1))


def test_the_experiment_alone_is_enough_to_begin_again(tmp_path: Path) -> None:
    run = crashed(tmp_path / "run", 1)
    (run / "metrics.jsonl").unlink()
    assert as_undisturbed(gossamer.resume(run, workers=1))
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 6
    assert not (run / "ledger.jsonl").exists()


def test_a_finished_run_has_its_models_when_it_is_resumed(tmp_path: Path) -> None:
    run = gossamer.simulate(EXPERIMENT, tmp_path / "run", workers=1)
    assert torch.equal(gossamer.resume(tmp_path / "run", workers=1).models, run.models)
    (tmp_path / "run" / "checkpoint.safetensors").unlink()  # they may be large
    past = gossamer.resume(tmp_path / "run", workers=1)
    assert past.models is None
    assert past.result == run.result


def test_a_run_is_finished_once_its_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("gossamer.runs.report.write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            gossamer.simulate(EXPERIMENT, tmp_path / "run", workers=1)
    assert not (tmp_path / "run" / "result.json").exists()
    assert as_undisturbed(gossamer.resume(tmp_path / "run", workers=1))
    assert (tmp_path / "run" / "report.html").exists()


def test_metrics_and_ledger_reach_the_disk_before_the_checkpoint_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    crashed(tmp_path / "run", 3, replace(EXPERIMENT, wire=Wire(ledger=True)))
    saved = ["metrics.jsonl", "ledger.jsonl", "checkpoint.safetensors.partial", "run"]
    assert synced == ["experiment.toml.partial", "run", "nodes.json.partial", "run", *saved]


METRICS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "shorter than the checkpoint": lambda lines: lines[:3],
    "a round is missing": lambda lines: [lines[0], *lines[2:]],
    "a round twice": lambda lines: [lines[0], *lines],
    "a number": lambda lines: [b"3\n", *lines],
    "a list": lambda lines: [b"[]\n", *lines],
    "no round": lambda lines: [b"{}\n", *lines],
    "round of another type": lambda lines: [b'{"round": true}\n', *lines[1:]],
    "not JSON": lambda lines: [*lines[:3], b"{\n", *lines[3:]],
    "not text": lambda lines: [*lines[:3], b"\xff\xfe\n", *lines[3:]],
    "gone": lambda lines: [],
}
AFTER_THE_CHECKPOINT: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "not JSON": lambda lines: [*lines, b"{\n"],
    "not text": lambda lines: [*lines, bytes(100), b"\xff\xfe\n"],
    "two rows in a line": lambda lines: [*lines[:4], lines[4][:20], lines[4]],
    "a round is missing": lambda lines: [*lines[:4], lines[4].replace(b'"round": 5', b'"round": 6')],
}


@pytest.mark.parametrize("damage", METRICS)
def test_damaged_metrics_are_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    run = crashed(tmp_path / "run", 5)
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(b"".join(METRICS[damage](metrics.read_bytes().splitlines(keepends=True))))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(ExperimentError, match=r"metrics.jsonl is damaged \(.*\); start the run again$"):
        gossamer.resume(run, workers=1)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize("damage", AFTER_THE_CHECKPOINT)
def test_what_stands_in_metrics_after_the_checkpoint_does_not_matter(damage: str, tmp_path: Path) -> None:
    run = crashed(tmp_path / "run", 5)
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(b"".join(AFTER_THE_CHECKPOINT[damage](metrics.read_bytes().splitlines(keepends=True))))
    assert as_undisturbed(gossamer.resume(run, workers=1))
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 6


CHECKPOINTS: dict[str, Callable[[dict, dict], object]] = {
    "a tensor is missing": lambda tensors, saved: tensors.clear(),
    "a tensor too many": lambda tensors, saved: tensors.update(y=torch.zeros(3)),
    "another shape": lambda tensors, saved: tensors.update(x=torch.zeros(7, 52)),
    "another type": lambda tensors, saved: tensors.update(x=torch.zeros(7, 53, dtype=torch.float64)),
    "no round": lambda tensors, saved: saved.pop("round"),
    "round in words": lambda tensors, saved: saved.update(round="four"),
    "round in a fraction": lambda tensors, saved: saved.update(round=3.5),
    "round that is true": lambda tensors, saved: saved.update(round=True),
    "round before the first": lambda tensors, saved: saved.update(round=-1),
    "round after the last": lambda tensors, saved: saved.update(round=7),
    "totals of another kind": lambda tensors, saved: saved.update(totals=[1, 2]),
    "totals incomplete": lambda tensors, saved: saved["totals"].pop("sent"),
    "totals in words": lambda tensors, saved: saved["totals"].update(sent="many"),
    "no experiment": lambda tensors, saved: saved.pop("experiment"),
}


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_a_checkpoint_that_is_not_whole_is_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    run = crashed(tmp_path / "run", 5)
    path = run / "checkpoint.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        saved = json.loads(file.metadata()["checked"].partition(" ")[2])
    CHECKPOINTS[damage](tensors, saved)
    save_file(tensors, path, metadata={"gossamer": json.dumps(saved)})  # as before there were checksums
    with pytest.raises(ExperimentError, match=r"checkpoint.safetensors is damaged \(.*\); put a copy of it back, or "):
        gossamer.resume(run, workers=1)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x02" + bytes(7) + b"[]"])
def test_a_checkpoint_that_is_none_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    (crashed(tmp_path / "run", 5) / "checkpoint.safetensors").write_bytes(content)
    with pytest.raises(ExperimentError, match="is damaged"):
        gossamer.resume(tmp_path / "run", workers=1)


@pytest.mark.parametrize("metadata", [None, {}, {"gossamer": "[]"}, {"gossamer": "{"}])
def test_a_checkpoint_of_something_else_is_refused_in_a_sentence(metadata: dict | None, tmp_path: Path) -> None:
    path = crashed(tmp_path / "run", 5) / "checkpoint.safetensors"
    save_file(load_file(path), path, metadata=metadata)
    with pytest.raises(ExperimentError, match="is damaged"):
        gossamer.resume(tmp_path / "run", workers=1)


def test_a_full_disk_is_an_os_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("gossamer.runs.checkpoint.save_file", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        gossamer.simulate(EXPERIMENT, tmp_path / "run", workers=1)
    assert raised.value.filename == str(tmp_path / "run" / "checkpoint.safetensors")


@dataclass(frozen=True)
class Mine(Dpsgd):
    strength: float = 1.0


def test_a_run_of_ones_own_class_is_opened_and_reported_and_resumed_with_it(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, algorithm=Mine())
    run = crashed(tmp_path / "run", 5, experiment)
    with pytest.raises(ExperimentError, match=r"resume it from Python with gossamer.resume\(directory, experiment\)$"):
        gossamer.resume(run)
    with pytest.raises(ExperimentError, match=r"^algorithm.strength: .* has another; give the experiment that it was"):
        gossamer.resume(run, replace(experiment, algorithm=Mine(strength=2.0)))
    finished = gossamer.resume(run, experiment, workers=1)
    assert as_undisturbed(finished, experiment)
    past = gossamer.open_run(run)
    assert past.result == finished.result
    assert past.result["algorithm"] == "Mine"
    gossamer.write_report(tmp_path / "report.html", past)
    assert "Mine" in (tmp_path / "report.html").read_text()


def edges(path: Path, *links: str) -> Path:
    path.write_text("\n".join(["7", *(f"{i} {(i + 1) % 7}" for i in range(7)), *links]))
    return path


@pytest.mark.parametrize(
    "around", [lambda graph: graph, lambda graph: Cycle((Ring(), graph)), lambda graph: Matchings(graph=graph)]
)
def test_a_run_is_resumed_with_the_graph_that_it_began_with_or_not_at_all(
    around: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    edges(Path("some.edges"))
    experiment = replace(EXPERIMENT, topology=around(EdgeList("some.edges")))
    run = crashed(tmp_path / "run", 5, experiment)
    assert f'path = "{tmp_path / "some.edges"}"' in (run / "experiment.toml").read_text()
    edges(Path("some.edges"), "0 3")
    with pytest.raises(ExperimentError, match=r"^topology: the graph .*some.edges is not the one whose digest is"):
        gossamer.resume(run, workers=1)
    with pytest.raises(ExperimentError, match=r"^topology.* has another"):
        gossamer.resume(run, experiment, workers=1)
    edges(Path("some.edges"))
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert as_undisturbed(gossamer.resume(run, workers=1), replace(EXPERIMENT, topology=around(Ring())))


def test_a_changed_edge_list_is_read_again(tmp_path: Path) -> None:
    graph = EdgeList(str(edges(tmp_path / "some.edges")))
    assert graph.at(7, 0, 0).num_receivers.tolist() == [2] * 7
    edges(tmp_path / "some.edges", "0 3")
    assert graph.at(7, 0, 0).num_receivers.tolist() == [3, 2, 2, 3, 2, 2, 2]


@pytest.mark.parametrize("name", ["workers", "checkpoint_every"])
@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2"])
def test_processes_and_rounds_between_checkpoints_are_whole_numbers(name: str, given: object, tmp_path: Path) -> None:
    sentence = f"^{name} must be a whole number, at least 1, {given!r} was given$"
    with pytest.raises(ExperimentError, match=sentence):
        gossamer.simulate(EXPERIMENT, **{name: given})
    with pytest.raises(ExperimentError, match=sentence):
        gossamer.resume(tmp_path, **{name: given})


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="a report needs at least one run"):
        gossamer.write_report(tmp_path / "report.html", [])
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_a_program_that_leaves_a_simulation_open_ends() -> None:
    program = """
from contract import QUADRATIC
from gossamer.simulator.simulation import Simulation
simulation = Simulation(QUADRATIC, workers=2)
simulation.step()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=120, check=True)


def test_a_stop_that_comes_after_a_round_was_written_is_saved_with_the_next(tmp_path: Path) -> None:
    def stop_after_the_second(metrics: dict) -> None:
        if metrics["round"] == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(gossamer.StopRequest, match="stopped after round 3 of 6"):
        gossamer.simulate(QUADRATIC, tmp_path / "run", on_round=stop_after_the_second)
    found = checkpoint.load(tmp_path / "run")
    assert found is not None
    assert found[0].round == 3
