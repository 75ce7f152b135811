"""Models out of a run: programs for torch.export and ONNX, and predictions, that all say the same."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import gossamer as gs
from gossamer.cli.main import cli, main
from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import inference, weights


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> gs.Run:
    directory = tmp_path_factory.mktemp("runs") / "run"
    return gs.simulate(
        gs.Experiment(nodes=4, rounds=3, topology=gs.Ring(), evaluation=gs.Evaluation(samples="all")),
        directory,
        workers=1,
    )


@pytest.fixture(scope="module")
def samples(run: gs.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = gs.Digits().load()
    path = tmp_path_factory.mktemp("samples") / "samples.safetensors"
    save_file({"inputs": task.test[0].contiguous(), "targets": task.test[1].contiguous()}, path)
    return path


def outputs(run: gs.Run, samples: Path) -> torch.Tensor:
    with torch.no_grad():
        return run.module("mean")(load_file(samples)["inputs"])


def test_predictions_are_the_mean_models_with_its_loss_and_accuracy(run: gs.Run, samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.safetensors"
    done = CliRunner().invoke(cli, ["predict", str(run.directory), str(samples), "--out", str(out)])
    assert done.exit_code == 0, done.output
    torch.testing.assert_close(load_file(out)["outputs"], outputs(run, samples))
    assert json.loads(done.stdout)["accuracy"] == pytest.approx(run.result["accuracy_of_mean_model"], abs=1e-6)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_predictions_come_as_arrays_and_tables_too(run: gs.Run, samples: Path, tmp_path: Path, suffix: str) -> None:
    given, out = tmp_path / "x.npy", tmp_path / f"p{suffix}"
    np.save(given, load_file(samples)["inputs"].double().numpy())  # what NumPy has unless told otherwise
    done = CliRunner().invoke(cli, ["predict", str(run.directory), str(given), "--out", str(out), "--node", "mean"])
    assert done.exit_code == 0, done.output
    found = np.load(out) if suffix == ".npy" else np.loadtxt(out, delimiter=",")
    np.testing.assert_allclose(found, outputs(run, samples).numpy(), rtol=1e-5, atol=1e-6)


def test_torch_export_gives_the_same_outputs_for_batches_of_any_size(
    run: gs.Run, samples: Path, tmp_path: Path
) -> None:
    assert run.directory is not None
    weights.export(run.directory, None, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    inputs = load_file(samples)["inputs"]
    for size in (1, 3, 100):
        torch.testing.assert_close(program(inputs[:size]), outputs(run, samples)[:size])


@pytest.mark.slow
def test_onnx_gives_the_same_outputs(run: gs.Run, samples: Path, tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    assert run.directory is not None
    weights.export(run.directory, 2, tmp_path / "model.onnx")
    evaluator = reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    inputs = load_file(samples)["inputs"]
    with torch.no_grad():
        expected = run.module(2)(inputs[:7])
    (found,) = evaluator.run(None, {"inputs": inputs[:7].numpy()})
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_program_takes_samples_as_the_data_have_them() -> None:
    images, labels = torch.randint(0, 256, (40, 3), dtype=torch.uint8), torch.arange(40) % 2
    task = gs.Supervised(
        model=lambda: torch.nn.Linear(3, 2), train=(images, labels), test=(images, labels),
        prepare=lambda batch: batch.float() / 255,
    ).load()  # fmt: skip
    model = inference.model_of(task, task.initial_model(0), task.buffers)
    torch.testing.assert_close(model(images), model.module(images.float() / 255))
    predictions = inference.predict(model, task, inference.Samples(images.long(), None))
    torch.testing.assert_close(predictions.outputs, model(images))
    with pytest.raises(ExperimentError, match="inputs are int64, and the model takes uint8"):
        inference.predict(model, task, inference.Samples(images.long() + 300, None))


def test_samples_of_a_dataset_are_collated_as_in_training() -> None:
    points = torch.randn(20, 3)
    made = [{"point": point, "kind": i % 2} for i, point in enumerate(points)]
    task = gs.Supervised(
        model=lambda: torch.nn.Linear(3, 2), train=[Rows(made)], test=Rows(made),
        collate_fn=lambda rows: (torch.stack([row["point"] for row in rows]), torch.tensor([r["kind"] for r in rows])),
    ).load()  # fmt: skip
    model = inference.model_of(task, task.initial_model(0), task.buffers)
    found = inference.predict(model, task, inference.Samples(points, torch.arange(20) % 2))
    torch.testing.assert_close(found.outputs, model(points).detach())
    assert inference.as_torch_export(model, task)


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows: list[dict[str, object]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, object]:
        return self.rows[i]


def test_a_task_without_a_module_has_no_program() -> None:
    task = gs.Quadratic().load()
    with pytest.raises(ExperimentError, match="has no torch module"):
        inference.model_of(task, task.initial_model(0), task.buffers)


class Odd(torch.nn.Linear):
    """A model that does what no graph can."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) * (1.0 if inputs.sum().item() > 0 else 2.0)


def test_a_model_that_cannot_be_a_program_is_told_in_a_sentence() -> None:
    points, labels = torch.randn(20, 3), torch.arange(20) % 2
    task = gs.Supervised(model=lambda: Odd(3, 2), train=(points, labels), test=(points, labels)).load()
    model = inference.model_of(task, task.initial_model(0), task.buffers)
    with pytest.raises(ExperimentError, match=r"torch.export cannot take this model .*; write a .safetensors file"):
        inference.as_torch_export(model, task)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["predict", "RUN", "nothing.npy"], "nothing.npy cannot be read (No such file or directory)"),
        (["predict", "RUN", "SAMPLES", "--out", "p.txt"], "take a file that ends in .safetensors, .npy or .csv"),
        (["predict", "RUN", "SAMPLES", "--node", "9"], 'node must be "mean" or 0 to 3, 9 was given'),
        (["predict", "RUN", "SMALL"], "the model takes samples of shape (64,)"),
        (["predict", "RUN", "PICKLE"], "cannot be read"),
        (["predict", "nowhere", "SAMPLES"], "nowhere"),
        (["export", "RUN", "--out", "SAMPLES"], "exists already"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    run: gs.Run, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.save("small.npy", np.zeros((2, 5), np.float32))
    np.save("pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    names = {"RUN": str(run.directory), "SAMPLES": str(samples), "SMALL": "small.npy", "PICKLE": "pickle.npy"}
    monkeypatch.setattr("sys.argv", ["gossamer", *(names.get(word, word) for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())
