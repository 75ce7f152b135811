"""Data as PyTorch users have them: arrays, tables, dictionaries, datasets, one per node; models that give a loss."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import gossamer as gs
from contract import simulated
from gossamer.data.metrics import correct
from gossamer.training.block import NodeError

POINTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(60) % 3


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def task(train: Any = (POINTS, CLASSES), model: Any = make, **more: Any) -> gs.Supervised:
    return gs.Supervised(model, train, (POINTS[:10], CLASSES[:10]), **more)


def experiment(task: gs.Supervised, **more: Any) -> gs.Experiment:
    return gs.Experiment(**{"nodes": 3, "rounds": 3, "task": task, "topology": gs.Ring(), "strategy": "rows"} | more)


EXPECTED = simulated(experiment(task()))


def test_arrays_and_tables_are_the_tensors_that_they_hold() -> None:
    columns = [f"x{i}" for i in range(6)]
    inputs, targets = pd.DataFrame(POINTS.numpy(), columns=columns), pd.Series(CLASSES.numpy())
    for train in (
        (POINTS.numpy(), CLASSES.numpy()),
        (POINTS.numpy().astype(np.float64), CLASSES.numpy().astype(np.uint16)),
        (inputs, targets),
        inputs.assign(labels=targets),
    ):
        assert torch.equal(simulated(experiment(task(train))), EXPECTED)
    named = task(inputs.assign(kind=targets), target="kind").load()
    assert torch.equal(named.train[1], CLASSES)


class Dicts(Dataset):
    """Samples as Hugging Face's data sets have them."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": POINTS[i], "label": int(CLASSES[i]), "text": f"number {i}"}


def collated(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    points, labels = [one["x"] for one in samples], [one["label"] for one in samples]
    return {"x": torch.stack(points), "labels": torch.tensor(labels)}


class Named(nn.Module):
    """Takes its inputs by name."""

    def __init__(self, gives: str = "outputs") -> None:
        super().__init__()
        self.net, self.gives = make(), gives

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        outputs = self.net(x)
        if self.gives == "outputs":
            return outputs
        loss = nn.functional.cross_entropy(outputs, labels)
        return {"loss": loss, "logits": outputs} if self.gives == "dictionary" else (loss, outputs)


class TakesTheBatch(Named):
    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = self.net(batch["x"])
        return nn.functional.cross_entropy(outputs, batch["labels"]), outputs


class TakesBoth(Named):
    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.net(inputs)
        return nn.functional.cross_entropy(outputs, targets), outputs


@pytest.mark.parametrize("model", [Named, lambda: Named("dictionary"), lambda: Named("pair"), TakesTheBatch])
@pytest.mark.parametrize(
    "train", [{"x": POINTS, "labels": CLASSES, "unused": CLASSES}, Dicts()], ids=["columns", "dataset"]
)
def test_dictionaries_and_models_with_a_loss_of_their_own_give_the_same_models(model: Any, train: Any) -> None:
    of_dicts = gs.Supervised(model, train, {"x": POINTS[:10], "labels": CLASSES[:10]}, collate_fn=collated)
    run = gs.simulate(experiment(of_dicts), workers=1)
    assert torch.equal(run.models, EXPECTED)
    assert run.result["accuracy_mean"] == gs.simulate(experiment(task()), workers=1).result["accuracy_mean"]
    assert of_dicts.load().labels.tolist() == CLASSES.tolist()


def test_a_forward_that_needs_two_arguments_is_given_inputs_and_targets() -> None:
    assert torch.equal(simulated(experiment(task(model=TakesBoth))), EXPECTED)


PARTS = [(POINTS[:30], CLASSES[:30]), (POINTS[30:35], CLASSES[30:35]), (POINTS[35:], CLASSES[35:])]


def test_data_of_each_node_are_a_list_or_a_function_of_the_node() -> None:
    listed = experiment(task(PARTS))
    assert [len(shard) for shard in listed.shards(listed.load_task())] == [30, 5, 25]
    function = experiment(task(lambda node: PARTS[node]))
    assert torch.equal(simulated(listed), simulated(function))
    assert not torch.equal(simulated(listed), EXPECTED)
    assert torch.equal(simulated(listed), simulated(listed, workers=2))
    columns = [{"x": x, "labels": y} for x, y in PARTS]
    of_columns = gs.Supervised(Named, columns, {"x": POINTS[:10], "labels": CLASSES[:10]})
    assert torch.equal(simulated(experiment(of_columns)), simulated(listed))
    pooled = replace(listed, algorithm=gs.Centralized())
    assert simulated(pooled).shape[0] == 1


def test_augmentation_of_dictionaries_is_drawn_from_the_nodes_own_stream() -> None:
    def shaken(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return batch | {"x": batch["x"] + torch.randn(batch["x"].shape)}

    columns = {"x": POINTS, "labels": CLASSES}
    augmented = experiment(gs.Supervised(Named, columns, columns, augment=shaken))
    assert torch.equal(simulated(augmented), simulated(augmented, workers=2))
    assert not torch.equal(simulated(augmented), EXPECTED)


def f1(outputs: Tensor, targets: Tensor) -> float:
    """Macro-averaged."""
    found, scores = outputs.argmax(-1), []
    for kind in targets.unique():
        right = ((found == kind) & (targets == kind)).sum()
        scores.append(2 * right / ((found == kind).sum() + (targets == kind).sum()))
    return float(torch.stack(scores).mean())


def test_metrics_are_of_all_outputs_together_per_node_and_of_the_mean_model() -> None:
    many = POINTS.repeat(20, 1), CLASSES.repeat(20)  # more than an evaluation takes at a time
    measured = gs.Supervised(make, (POINTS, CLASSES), many, metrics={"f1": f1, "largest": lambda o, y: o.max()})
    chosen = experiment(measured, evaluation=gs.Evaluation(every=2, samples="all", nodes="all"))
    run = gs.simulate(chosen, workers=2)
    assert torch.equal(run.models, EXPECTED)
    loaded = measured.load()
    with torch.no_grad():
        outputs = [loaded.module_with(model, loaded.buffers)(many[0]) for model in [*run.models, run.models.mean(0)]]
    of_nodes = [f1(one, many[1]) for one in outputs[:3]]
    last = run.metrics[-1]
    assert list(last["f1_by_node"].values()) == pytest.approx(of_nodes)
    assert (last["f1_min"], last["f1_max"]) == pytest.approx((min(of_nodes), max(of_nodes)))
    assert run.result["f1_mean"] == pytest.approx(sum(of_nodes) / 3)
    assert run.result["f1_of_mean_model"] == pytest.approx(f1(outputs[3], many[1]))
    assert run.result["largest_max"] == pytest.approx(max(one.max().item() for one in outputs[:3]))
    assert run.result["metric"] == "accuracy"
    assert [("f1_mean" in row) for row in run.metrics] == [False, True, True]


def test_without_a_score_the_first_metric_is_the_runs() -> None:
    run = gs.simulate(experiment(task(score=None, metrics={"f1": f1, "hits": lambda o, y: correct(o, y).mean()})))
    assert run.result["metric"] == "f1"
    plain = gs.simulate(experiment(task())).result
    assert run.result["hits_mean"] == pytest.approx(plain["accuracy_mean"])
    assert run.result["test_loss"] == pytest.approx(plain["test_loss"])


def correlation(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of nodes whose first weight has grown; of others it is no number."""
    return outputs[:, 0].mean() * (1.0 if outputs[0, 0] > outputs[1, 0] else float("nan"))


def test_a_metric_that_is_no_number_is_left_out_of_means_and_loses_no_run(tmp_path: Path) -> None:
    measured = task(metrics={"correlation": correlation, "unknown": lambda outputs, targets: float("nan")})
    chosen = experiment(measured, nodes=8, evaluation=gs.Evaluation(every=1))
    run = gs.simulate(chosen, tmp_path / "run", workers=1)
    assert gs.open_run(tmp_path / "run", chosen).metrics == run.metrics
    last = run.metrics[-1]
    found = [value for value in last["correlation_by_node"].values() if value is not None]
    assert 0 < len(found) < 8
    assert last["correlation_mean"] == pytest.approx(sum(found) / len(found))
    assert last["correlation_min"] == min(found)
    assert [last[f"unknown_{of}"] for of in ("mean", "min", "max", "of_mean_model")] == [None] * 4
    with pytest.raises(NodeError, match="a run's metric must be a number: give a score, and unknown as another"):
        gs.simulate(experiment(task(score=None, metrics={"unknown": lambda o, y: float("nan")})), workers=1)


def test_a_metric_of_all_samples_together_has_no_personal_form() -> None:
    chosen = experiment(task(score=None, metrics={"f1": f1}), evaluation=gs.Evaluation(personal=True))
    with pytest.raises(gs.ExperimentError, match=r"evaluation\.personal: true was given, and f1 is of all samples"):
        gs.simulate(chosen, workers=1)


def test_outputs_of_several_shapes_are_told_to_who_has_metrics() -> None:
    texts = [torch.ones(2 + i // 200, dtype=torch.int64) for i in range(600)]  # longer and longer, batch by batch
    padded = lambda batch: (nn.utils.rnn.pad_sequence(batch, True), nn.utils.rnn.pad_sequence(batch, True))  # noqa: E731
    tagging = gs.Supervised(
        model=lambda: nn.Embedding(3, 3),
        train=Texts(texts), test=Texts(texts), collate_fn=padded, score=None,
        loss=lambda outputs, targets: nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten()),
        metrics={"hits": lambda outputs, targets: correct(outputs, targets).mean()},
    )  # fmt: skip
    with pytest.raises(NodeError, match=r"samples of shape \(3,.*\) and \(4,.*\) came; have collate_fn pad all"):
        gs.simulate(experiment(tagging, rounds=1, evaluation=gs.Evaluation(samples="all")), workers=1)


class Texts(Dataset):
    def __init__(self, texts: list[Tensor]):
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, i: int) -> Tensor:
        return self.texts[i]


@pytest.mark.parametrize(
    "samples",
    [
        [(POINTS[i], CLASSES[i]) for i in range(60)],
        [(POINTS[i], int(CLASSES[i])) for i in range(60)],
        [{"x": POINTS[i], "labels": CLASSES[i]} for i in range(60)],
    ],
)
def test_a_list_of_samples_is_not_taken_for_the_data_of_as_many_nodes(samples: list[Any]) -> None:
    with pytest.raises(ValueError, match="train is a list of samples, and a list is one dataset per node; write"):
        task(samples).load()


def test_a_users_own_generators_are_left_as_they_were() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), np.random.rand(), torch.rand(1).item()

    def seed() -> None:
        random.seed(5), np.random.seed(5), torch.manual_seed(5)

    seed()
    expected = drawn()
    seed()
    gs.simulate(experiment(task(Dicts(), Named, collate_fn=collated), rounds=1), workers=1)
    assert drawn() == expected
