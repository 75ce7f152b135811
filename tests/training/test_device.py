"""Another device than the CPU: one process, local steps there, messages here.

No GPU is needed. "cpu:0" is the CPU under another name, so that all goes the way that it does with a GPU and the models
must be the same to the last bit. On "meta", torch's device without memory, operations refuse tensors of two devices as
a GPU does; there, what is fetched from it is 1.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer as gs
from gossamer.training.trainer import trainer_for

POINTS = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(64) % 3


def task(*layers: nn.Module) -> gs.Supervised:
    net = nn.Sequential(nn.Linear(6, 5), *layers, nn.Linear(5, 3))
    return gs.Supervised(net, (POINTS, CLASSES), (POINTS[:9], CLASSES[:9]))


SMALL = gs.Experiment(nodes=4, rounds=3, batch_size=8, task=task(nn.Tanh()), topology=gs.Ring())
EXPERIMENTS = {
    "rows": replace(SMALL, strategy="rows"),
    "batched": replace(SMALL, strategy="batched", algorithm=gs.Jwins()),
    "vmap": replace(SMALL, strategy="vmap", optimizer=gs.SGD(0.1, 0.9)),
    "adam": replace(SMALL, optimizer=gs.Adam(clip=1.0, accumulate=2, schedule=gs.Plateau(patience=0))),
    "running statistics": replace(SMALL, task=task(nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.2))),
    "quasi-global momentum": replace(SMALL, optimizer=gs.SGD(0.1, 0.9, quasi_global=True)),
    "push-sum": replace(SMALL, topology=gs.DirectedRing(), algorithm=gs.Sgp()),
    "losses of models": replace(SMALL, algorithm=gs.SkewScout(every=1)),
    "cross-gradients": replace(SMALL, strategy="batched", local_steps=1, algorithm=gs.Cga()),
    "privacy": replace(SMALL, privacy=gs.Privacy(1.0, 0.1)),
    "faults": replace(SMALL, faults=gs.Faults(down=((1, 1, 2),)), optimizer=gs.Adam()),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_way_of_a_device_gives_the_same_models(name: str) -> None:
    expected = gs.simulate(EXPERIMENTS[name], workers=1)
    found = gs.simulate(replace(EXPERIMENTS[name], device="cpu:0"))
    assert found.models_sha256 == expected.models_sha256
    assert found.result["strategy"] == expected.result["strategy"]
    assert found.result["test_loss"] == expected.result["test_loss"]


@pytest.fixture
def ones_from_meta(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What is fetched from the device without memory is 1; the shapes of all of it."""
    real_to, real_item, fetched = Tensor.to, Tensor.item, []

    def to(self: Tensor, *arguments: Any, **more: Any) -> Tensor:
        if self.is_meta and [*map(str, arguments)] == ["cpu"]:
            fetched.append(tuple(self.shape))
            return torch.ones(self.shape, dtype=self.dtype)
        return real_to(self, *arguments, **more)

    monkeypatch.setattr(Tensor, "to", to)
    monkeypatch.setattr(Tensor, "cpu", lambda self: to(self, "cpu"))
    monkeypatch.setattr(Tensor, "item", lambda self: 0 if self.is_meta else real_item(self))
    return fetched


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_operation_is_given_tensors_of_two_devices(name: str, ones_from_meta: list[tuple[int, ...]]) -> None:
    run = gs.simulate(replace(EXPERIMENTS[name], device="meta"))
    assert run.result["rounds"] == 3
    width = sum(EXPERIMENTS[name].task.layer_sizes)
    assert (4, width) in ones_from_meta  # models came back


def test_a_device_has_one_process() -> None:
    with pytest.raises(gs.ExperimentError, match="workers: 2 was given, and one process computes on cpu:0; leave it"):
        gs.simulate(replace(SMALL, device="cpu:0"), workers=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cuda:0"}, r"device: 'cuda:0' was given, which torch cannot use here \(.*\); take \"cpu\""),
        ({"device": "gpu"}, r"device: 'gpu' was given, which torch cannot use here"),
        ({"device": "cpu:0", "fast": True}, "device: 'cpu:0' was given, and fast layers are for the CPU; set fast"),
        (
            {
                "device": "cpu:0",
                "task": gs.Supervised(gs.to_int8(nn.Linear(6, 3)), (POINTS, CLASSES), (POINTS, CLASSES)),
            },
            "device: 'cpu:0' was given, and layers of eight bits are computed on the CPU",
        ),
        ({"device": "cpu:0", "task": gs.Quadratic()}, "device: cpu:0 was given, and task .* has no choice of it"),
    ],
)
def test_what_a_device_cannot_do_is_refused_before_the_first_round(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(gs.ExperimentError, match=words):
        gs.simulate(replace(SMALL, **changes))


def test_double_precision_is_refused_where_there_is_none() -> None:
    experiment = replace(EXPERIMENTS["push-sum"], device="mps")
    with pytest.raises(gs.ExperimentError, match=r"device: sgp keeps u in double precision, which mps does not have"):
        experiment.prepared(task().load())


def test_matrix_factorization_is_batched_on_the_cpu_alone() -> None:
    pairs, stars = torch.zeros(8, 2, dtype=torch.int64), torch.ones(8)
    model = gs.MatrixFactorization().build((4, 4), 1)
    rated = gs.Supervised(model, (pairs, stars), (pairs, stars), nn.functional.mse_loss, lambda o, y: (o - y).abs())
    assert trainer_for(rated.load(), "auto", 4).name == "batched"
    with pytest.raises(ValueError, match="kernel for the CPU"):
        trainer_for(rated.on("meta"), "batched", 4)
    assert np.isfinite(rated.evaluate(rated.initial_model(0), np.arange(8))[0])
