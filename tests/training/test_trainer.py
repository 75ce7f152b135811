"""Gradients of many small models at once are those of one after the other, and the same in any number of processes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer import Experiment
from gossamer.algorithms import Choco, Dpsgd, Jwins, LocalOnly, RandomSampling
from gossamer.core import Algorithm, Round
from gossamer.data import Digits, Supervised
from gossamer.experiments.experiment import ExperimentError
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import RandomRegular
from gossamer.models import MatrixFactorization
from gossamer.simulator.worker_pool import split
from gossamer.training.optimizer import Optimizer
from gossamer.training.trainer import BatchedTrainer, Trainer, chunk_for, trainer_for

NO_BUFFERS = torch.empty(40, 0)


def task_of(model: nn.Module, inputs: tuple[int, ...] = (6,), **changes: object) -> Supervised:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, *inputs, generator=generator)
    y = torch.arange(200) % 3
    return Supervised(**({"model": model, "train": (x, y), "test": (x[:20], y[:20])} | changes))


def ratings(num: int = 300, users: int = 9, items: int = 14, biases: bool = True) -> Supervised:
    generator = torch.Generator().manual_seed(1)
    pairs = torch.stack([torch.randint(n, (num,), generator=generator) for n in (users, items)], -1)
    given = 1 + 4 * torch.rand(num, generator=generator)

    def score(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).abs()

    data = {"train": (pairs, given), "test": (pairs[:20], given[:20]), "score": score, "metric": "error"}
    torch.manual_seed(3)
    return Supervised(MatrixFactorization(4, biases).build((users, items), 1), loss=nn.functional.mse_loss, **data)


def smoothed(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, target, label_smoothing=0.1)


torch.manual_seed(0)
CHAIN = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3))
NORMED = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3))
TASKS = {
    "a chain": (task_of(CHAIN), "batched"),
    "a chain of images": (task_of(CHAIN, (2, 3)), "batched"),
    "a chain with another loss": (
        task_of(CHAIN, loss=smoothed),
        "batched",
    ),
    "sigmoids": (task_of(nn.Sequential(nn.Linear(6, 4), nn.Sigmoid(), nn.Linear(4, 3))), "batched"),
    "logistic regression": (task_of(nn.Linear(6, 3)), "batched"),
    "a normed net": (task_of(NORMED), "vmap"),
    "matrix factorization": (ratings(), "batched"),
    "matrix factorization without biases": (ratings(biases=False), "batched"),
}


@pytest.mark.parametrize("name", TASKS)
def test_gradients_of_many_rows_at_once_are_those_of_one_after_the_other(name: str) -> None:
    task, expected = TASKS[name]
    quick = trainer_for(task, "auto", nodes=70)
    assert (quick.name, quick.chunk) == (expected, 18)
    rows = task.initial_model(0) + 0.1 * torch.randn(40, sum(task.layer_sizes), generator=torch.Generator())
    batches = np.arange(40)[:, None] + np.arange(8)
    slow, fast = (t.gradient(rows, batches, [0] * 40, NO_BUFFERS) for t in (Trainer(task), quick))
    for one, other in zip(slow, fast, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name, (_, strategy) in TASKS.items() if strategy == "batched"])
def test_a_step_in_place_goes_down_the_gradients_of_rows(name: str) -> None:
    task = TASKS[name][0]
    rows = task.initial_model(0) + 0.1 * torch.randn(40, sum(task.layer_sizes), generator=torch.Generator())
    batches = np.arange(40)[:, None] + np.arange(8)
    losses, gradient = task.gradient(rows, batches, [0] * 40)
    expected = rows - 0.3 * gradient
    batched = trainer_for(task, "batched", nodes=70)
    torch.testing.assert_close(batched.sgd_step_(rows, batches, [0] * 40, NO_BUFFERS, 0.3), losses)
    torch.testing.assert_close(rows, expected, rtol=1e-5, atol=1e-6)


def test_what_one_model_takes_many_together_take_too() -> None:
    data = torch.randn(80, 6), torch.randn(80)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs.view(-1), targets.view(-1))  # outputs must lie in one piece

    def score(outputs: Tensor, targets: Tensor) -> Tensor:
        return -((outputs[:, 0] - targets) ** 2)

    dense = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    bytes_as_classes = data[0], torch.arange(80, dtype=torch.uint8) % 4
    for task in (
        Supervised(dense, data, data, loss=loss, score=score),
        Supervised(nn.Sequential(nn.Linear(6, 4)), bytes_as_classes, bytes_as_classes),
    ):
        slow, quick = Trainer(task.load()), trainer_for(task.load(), "auto", nodes=8)
        assert isinstance(quick, BatchedTrainer)
        rows, batches = task.initial_model(0).repeat(8, 1), np.arange(64).reshape(8, 8)
        for one, other in zip(*(t.gradient(rows, batches, [0] * 8, NO_BUFFERS) for t in (slow, quick)), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_targets_that_cross_entropy_leaves_out_are_taken_by_rows() -> None:
    data = torch.randn(80, 6), torch.where(torch.arange(80) % 5 == 0, -100, torch.arange(80) % 4)
    task = Supervised(nn.Sequential(nn.Linear(6, 4)), data, data).load()
    assert trainer_for(task, "auto", nodes=8).name == "rows"
    with pytest.raises(ValueError, match="'batched' needs data that are two tensors, with targets from 0 on"):
        trainer_for(task, "batched", nodes=8)


@pytest.mark.parametrize("algorithm", [Dpsgd(), Jwins(), Choco(), RandomSampling(), LocalOnly()], ids=repr)
@pytest.mark.parametrize("faults", [Faults(), Faults(down=((1, 2, 3),))], ids=["", "a node down"])
def test_steps_in_place_are_those_of_rows_within_rounding(algorithm: Algorithm, faults: Faults) -> None:
    topology = RandomRegular(degree=2)
    experiment = Experiment(nodes=8, rounds=4, task=ratings(), algorithm=algorithm, topology=topology, faults=faults)
    fast, slow = (gossamer.simulate(replace(experiment, strategy=strategy), workers=1) for strategy in ("auto", "rows"))
    assert (fast.result["strategy"], slow.result["strategy"]) == ("batched", "rows")
    torch.testing.assert_close(fast.models, slow.models, rtol=1e-4, atol=1e-5)


@dataclass(frozen=True)
class Halved(Dpsgd):
    """Takes steps half as long."""

    def local_step(self, state: Any, gradient: torch.Tensor, round: Round) -> Any:
        return super().local_step(state, gradient / 2, round)


def test_a_subclass_with_steps_of_its_own_takes_them() -> None:
    experiment = Experiment(nodes=4, rounds=2, task=ratings(), topology=RandomRegular(degree=2))
    runs = [
        gossamer.simulate(replace(experiment, algorithm=algorithm, optimizer=Optimizer(rate)), workers=1)
        for algorithm, rate in ((Halved(), 0.2), (Dpsgd(), 0.1))
    ]
    torch.testing.assert_close(runs[0].models, runs[1].models, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["a chain", "a normed net", "matrix factorization"])
def test_any_number_of_workers_gives_the_same_run_with_every_strategy(name: str) -> None:
    task, strategy = TASKS[name]
    experiment = Experiment(nodes=40, rounds=2, task=task, algorithm=Jwins())
    one, three = (gossamer.simulate(experiment, workers=workers) for workers in (1, 3))
    assert one.result["strategy"] == strategy
    assert torch.equal(one.models, three.models)


def test_a_round_agrees_with_that_of_rows_to_five_digits() -> None:
    experiment = Experiment(nodes=20, rounds=1, task=Digits())
    models = [gossamer.simulate(replace(experiment, strategy=s), workers=1).models for s in ("rows", "batched", "vmap")]
    for other in models[1:]:
        assert (other - models[0]).abs().max() < 1e-5


@pytest.mark.parametrize("chunk", [1, 3, 16])
@pytest.mark.parametrize("workers", [1, 2, 5, 40])
def test_nodes_are_split_evenly_into_whole_chunks(chunk: int, workers: int) -> None:
    parts = split(range(40), workers, chunk)
    assert [node for part in parts for node in part] == list(range(40))
    assert all(part.start % chunk == 0 for part in parts)
    assert len(parts) == min(workers, -(-40 // chunk))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.1), nn.Linear(5, 3)), "chain"),
        (nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), "no buffers"),
    ],
)
def test_what_a_strategy_cannot_do_is_left_to_rows_and_refused_if_asked_for(model: nn.Module, why: str) -> None:
    assert trainer_for(task_of(model), "auto", nodes=16).name == "rows"
    experiment = Experiment(nodes=4, rounds=1, task=task_of(model), topology=RandomRegular(degree=2))
    with pytest.raises(ExperimentError, match=why):
        gossamer.simulate(replace(experiment, strategy="batched"))
    with pytest.raises(ExperimentError, match="no dropout" if "chain" in why else "no buffers"):
        gossamer.simulate(replace(experiment, strategy="vmap"))


def test_layers_that_take_sequences_are_not_batched() -> None:
    x = torch.randn(20, 5, 6)
    data, loss = (x, x[..., :3]), nn.functional.mse_loss
    task = Supervised(nn.Linear(6, 3), data, data, loss=loss, score=lambda a, b: (a - b).square().mean((1, 2)))
    assert trainer_for(task, "auto", nodes=4).name == "vmap"
    with pytest.raises(ValueError, match="inputs must be vectors"):
        trainer_for(task, "batched", nodes=4)


def test_augmented_data_are_left_to_rows() -> None:
    task = task_of(CHAIN, augment=lambda x: x + torch.rand(()))
    assert trainer_for(task, "auto", nodes=16).name == "rows"
    with pytest.raises(ValueError, match="not augmented"):
        trainer_for(task, "batched", nodes=16)


def test_chunks_depend_on_the_number_of_nodes_alone() -> None:
    assert [chunk_for(n) for n in (1, 16, 96, 256, 4096)] == [16, 16, 24, 64, 64]
