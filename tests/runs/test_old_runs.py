"""Runs that earlier versions began are opened, continued and reported."""

import hashlib
import shutil
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.experiments import toml

# Begun and stopped after four of six rounds by a version that had `from-start`, `index_coding` and no `exchanges`; the
# digest and the bytes are those of the whole run there.
OLD = Path(__file__).parent / "before_exchanges"
MODELS = "6f2ad39a0b28029c1a6fcafb0cb20537a422aedaba947539cf316a8df22a6c71"
NUM_BYTES = 18984


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_a_run_of_an_earlier_version_is_continued_to_the_same_models_and_bytes(old: Path) -> None:
    run = gs.resume(old)
    assert run.models is not None
    assert hashlib.sha256(run.models.numpy().tobytes()).hexdigest() == MODELS
    assert run.result["bytes_total"] == NUM_BYTES
    assert (old / "report.html").exists()


def test_a_run_with_the_range_coder_is_opened_and_not_continued(old: Path) -> None:
    file = old / "experiment.toml"
    file.write_text(file.read_text().replace('index_coding = "auto"', 'index_coding = "range"'))
    assert len(gs.open_run(old).metrics) == 4
    with pytest.raises(gs.ExperimentError, match="the range coder was removed"):
        gs.resume(old)


def test_cifar_of_a_version_with_one_size_of_images_is_the_same_experiment() -> None:
    now = toml.write(gs.Experiment(task=gs.tasks.Cifar10()))
    before = now | {"task": {key: value for key, value in now["task"].items() if key != "size"}}
    assert "size" in now["task"]
    assert toml.differences(before, now) == []
    small = toml.write(gs.Experiment(task=gs.tasks.Cifar10(size=16)))
    assert toml.differences(before, small) == ["task.size"]


def test_the_experiment_may_be_given_again(old: Path) -> None:
    experiment = gs.open_run(old).experiment
    assert experiment is not None
    assert experiment.exchanges == 1
    assert isinstance(experiment.algorithm, gs.RelativeToInit)
    assert gs.resume(old, experiment).result["rounds"] == 6


@pytest.mark.parametrize(("model", "norm", "groups"), [("resnet20", "evonorm-s0", 0), ("gn-lenet", "group", 2)])
def test_no_other_network_is_built_from_the_weights_of_a_run_with_groups_of_two_channels(
    old: Path, model: str, norm: str, groups: int
) -> None:
    file = old / "experiment.toml"
    before, rest = file.read_text().split("[task]")
    task = f'[task]\nname = "cifar10"\n\n[task.model]\nname = "{model}"\nnorm = "{norm}"\n\n'
    file.write_text(before + task + rest[rest.index("[partition]") :])
    run = gs.open_run(old)
    assert len(run.metrics) == 4
    assert run.experiment is not None
    found = run.experiment.task.model  # type: ignore[attr-defined]
    assert found.groups == groups
    if not groups:
        with pytest.raises(ValueError, match="began with groups of two channels"):
            found.build((3, 32, 32), 10)
