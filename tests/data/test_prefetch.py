"""Datasets whose samples are fetched in a background thread give the runs that they give without it."""

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import gossamer as gs
from gossamer.data import prefetch

POINTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(60) % 3
AHEAD = 4 * (3 * 3 * 2 - 1) * 8  # in each of four rounds all but the first of 18 minibatches, of eight samples


class Samples(Dataset):
    """Counts what each thread fetched."""

    def __init__(self, random_at: Any = lambda i: 0.0) -> None:
        self.random_at, self.threads = random_at, Counter[str]()

    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.threads[threading.current_thread().name.split("_")[0]] += 1
        return POINTS[i] + self.random_at(i), int(CLASSES[i])


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3))


def experiment(data: Any, **more: Any) -> gs.Experiment:
    task = gs.Supervised(make, data, (POINTS[:10], CLASSES[:10]), **more)
    how = {"topology": gs.Ring(), "local_steps": 3, "batch_size": 8, "strategy": "rows"}
    return gs.Experiment(task=task, nodes=3, rounds=4, optimizer=gs.Adam(0.01, accumulate=2), **how)


def models(of: gs.Experiment, monkeypatch: pytest.MonkeyPatch, slow: bool, workers: int = 1) -> str:
    monkeypatch.setattr(prefetch, "SLOW_SECONDS", -1.0 if slow else 1e9)
    return gs.simulate(of, workers=workers).models_sha256


@pytest.mark.parametrize("workers", [1, 2])
def test_models_are_those_of_samples_that_are_at_hand(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Samples()
    assert models(experiment(data), monkeypatch, True, workers) == models(
        experiment((POINTS, CLASSES)), monkeypatch, False
    )
    assert workers > 1 or data.threads["prefetch"] == AHEAD
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_augmentation_is_drawn_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(inputs: Tensor) -> Tensor:
        return inputs + 0.1 * torch.randn_like(inputs)

    data = Samples()
    ahead, in_place = (models(experiment(data, augment=noisy), monkeypatch, slow) for slow in (True, False))
    assert ahead == in_place
    assert data.threads["prefetch"] == AHEAD


@pytest.mark.parametrize(
    "draw",
    [lambda i: torch.rand(()), lambda i: np.random.rand(), lambda i: random.random()],
    ids=["torch", "numpy", "python"],
)
@pytest.mark.parametrize("one_in", [1, 7])
def test_samples_that_are_random_even_now_and_then_are_drawn_as_ever(
    draw: Any, one_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, in_place = (
        models(experiment(Samples(lambda i: draw(i) if i % one_in == 0 else 0.0)), monkeypatch, slow)
        for slow in (True, False)
    )
    assert ahead == in_place


class Broken(Samples):
    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        if i == 41:
            raise OSError("sample 41 cannot be read")
        return super().__getitem__(i)


def test_a_sample_that_cannot_be_read_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = []
    for slow in (True, False):
        shards = [np.arange(node, 60, 3) for node in range(3)]  # given, so that no labels are looked for
        broken = experiment(Broken(), given_shards=shards)
        with pytest.raises(Exception, match="sample 41 cannot be read") as caught:
            models(broken, monkeypatch, slow)
        notes.append((type(caught.value), str(caught.value), getattr(caught.value, "__notes__", None)))
    assert notes[0] == notes[1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_other_minibatches_in_between_do_not_disturb_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "SLOW_SECONDS", -1.0)
    fetched: list[int] = []

    class Numbers(Samples):
        def __getitem__(self, i: int) -> Any:
            fetched.append(i)
            return i

    reader, expected = prefetch.Prefetcher(Numbers(), list), [[i, i + 1] for i in range(6)]
    with reader.reading_ahead(iter(np.array(expected))):
        found = [reader.get(np.array([90, 91]))]
        for i in range(6):
            found.append(reader.get(np.array([i, i + 1])))
            if i % 2:
                found.append(reader.get(np.array([92, i])))
    assert [one for one in found if one[0] < 90] == expected
    assert len(fetched) == 2 * len(found) == 20


def test_slow_samples_are_fetched_while_the_model_computes() -> None:
    computing = threading.Event()
    while_computing: list[bool] = []

    class Slow(Samples):
        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            time.sleep(0.001)
            while_computing.append(computing.is_set())
            return super().__getitem__(i)

    class Thinks(nn.Module):
        """A model that takes longer than its samples, whatever else the machine does."""

        def __init__(self) -> None:
            super().__init__()
            self.net = make()

        def forward(self, inputs: Tensor) -> Tensor:
            computing.set()
            time.sleep(0.015)
            computing.clear()
            return self.net(inputs)

    given = [np.arange(20)] * 3  # so that no labels are looked for
    slow = experiment(Slow(), given_shards=given)
    gs.simulate(replace(slow, rounds=2, task=replace(slow.task, model=Thinks)), workers=1)
    assert sum(while_computing) > 20  # of 272 that could be; without the thread none is
