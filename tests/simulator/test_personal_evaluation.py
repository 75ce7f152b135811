"""Nodes tested on the distribution of their own data, against per-sample scores put together by hand."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer as gs
from gossamer.core import Task
from gossamer.simulator.evaluation import chosen_nodes, chosen_test_samples, worst_decile

PERSONAL = gs.Evaluation(samples="all", nodes="all", personal=True)
SHARDS = gs.Experiment(rounds=6, partition=gs.LabelShards(2), algorithm=gs.Jwins(), evaluation=PERSONAL)
CLIENTS = replace(
    SHARDS,
    nodes=5,
    topology=gs.Ring(),
    task=gs.Synthetic(num_clients=20),
    partition=gs.ByClient(),
    algorithm=gs.Dpsgd(),
)
ADDED = {"accuracy_worst_decile", "accuracy_personal_mean"}  # to the result


def right(task: gs.Supervised, model: Tensor) -> np.ndarray:
    """1 for every test sample that a model is right about, else 0."""
    inputs, targets = task.test
    return (task.module_with(model, task.buffers)(inputs).argmax(1) == targets).double().numpy()


def test_labels_count_as_much_as_they_do_among_the_nodes_own_samples() -> None:
    run = gs.simulate(SHARDS, workers=2)
    task = SHARDS.task.load()
    labels, tested = task.train[1].numpy(), task.test[1].numpy()
    expected = []
    for held, model in zip(SHARDS.shards(task), run.models, strict=True):
        shares = {label: count / len(held) for label, count in Counter(labels[held].tolist()).items()}
        scores = right(task, model)
        expected.append(sum(share * scores[tested == label].mean() for label, share in shares.items()))
    assert run.result["accuracy_personal_mean"] == pytest.approx(np.mean(expected), abs=1e-9)
    assert list(run.metrics[-1]["accuracy_personal_by_node"].values()) == pytest.approx(expected, abs=1e-9)
    assert run.result["accuracy_personal_mean"] > run.result["accuracy_mean"] + 0.05  # what skew does early on


def test_where_clients_are_whole_the_test_samples_of_a_nodes_own_clients_count() -> None:
    run = gs.simulate(CLIENTS, workers=1)
    task = CLIENTS.task.load()
    expected = []
    for held, model in zip(CLIENTS.shards(task), run.models, strict=True):
        own = {*task.clients[held].tolist()}
        here = [client in own for client in task.test_clients.tolist()]
        assert 0 < sum(here) < len(here)
        expected.append(right(task, model)[here].mean())
    assert run.result["accuracy_personal_mean"] == pytest.approx(np.mean(expected), abs=1e-9)


def without(run: gs.Run) -> list[dict[str, Any]]:
    left_out = ADDED | {"seconds", "accuracy_personal_by_node"}
    return [{key: value for key, value in metrics.items() if key not in left_out} for metrics in run.metrics]


@pytest.mark.parametrize("experiment", [SHARDS, CLIENTS], ids=["labels", "clients"])
def test_nothing_else_changes_whatever_the_number_of_workers(experiment: gs.Experiment) -> None:
    plain = gs.simulate(replace(experiment, evaluation=replace(PERSONAL, personal=False)), workers=1)
    one, three = (gs.simulate(experiment, workers=workers) for workers in (1, 3))
    assert not ADDED & plain.result.keys()
    assert one.result.keys() >= ADDED
    assert without(plain) == without(one)
    assert torch.equal(plain.models, one.models)
    assert [m | {"seconds": 0} for m in one.metrics] == [m | {"seconds": 0} for m in three.metrics]


def test_the_worst_decile_is_of_at_least_one_node_and_knows_what_is_worse() -> None:
    scores = [0.9, 0.1, 0.5, 0.3, *[0.8] * 16]
    assert worst_decile(scores, higher_is_better=True) == pytest.approx(0.2)
    assert worst_decile(scores[:3], higher_is_better=True) == 0.1
    assert worst_decile(scores[:3], higher_is_better=False) == 0.9
    run = gs.simulate(SHARDS, workers=1)
    task = SHARDS.task.load()
    by_node = sorted(right(task, model).mean() for model in run.models)
    assert run.result["accuracy_worst_decile"] == pytest.approx(np.mean(by_node[:2]), abs=1e-9)
    distances = gs.simulate(replace(SHARDS, task=gs.Quadratic(), algorithm=gs.Dpsgd()), workers=1).result
    assert distances["distance_min"] < distances["distance_worst_decile"] <= distances["distance_max"]


def test_only_the_nodes_and_samples_that_were_asked_for_are_tested() -> None:
    few = replace(SHARDS, evaluation=gs.Evaluation(samples=100, nodes=3, personal=True))
    run, task = gs.simulate(few, workers=1), few.task.load()
    samples = chosen_test_samples(few, task)
    labels, tested = task.train[1].numpy(), task.test[1].numpy()[samples]
    expected = []
    for node in chosen_nodes(few):
        counts = Counter(labels[few.shards(task)[node]].tolist())
        scores = right(task, run.models[node])[samples]
        known = {label: count for label, count in counts.items() if (tested == label).any()}
        own = sum(count * scores[tested == label].mean() for label, count in known.items())
        expected.append(own / sum(known.values()))
    assert run.result["accuracy_personal_mean"] == pytest.approx(np.mean(expected), abs=1e-9)
    assert (run.result["tested_nodes"], run.result["tested_samples"]) == (3, 100)


def test_what_cannot_be_tested_is_refused_before_the_first_round() -> None:
    x = torch.randn(100, 2)
    regression = gs.Supervised(
        nn.Linear(2, 2),
        (x, x),
        (x, x),
        loss=nn.functional.mse_loss,
        score=lambda a, b: (a - b).abs().mean(1),
        metric="error",
    )
    with pytest.raises(gs.ExperimentError, match=r"evaluation\.personal: true was given, and this task has no labels"):
        gs.simulate(replace(SHARDS, task=regression, partition=gs.Iid(), algorithm=gs.Dpsgd()))
    ones = x, (x[:, 0] > 0).long()
    other = gs.Supervised(nn.Linear(2, 3), ones, (x, torch.full((100,), 2)))
    with pytest.raises(gs.ExperimentError, match="no test sample is of a label or client of node 0"):
        gs.simulate(replace(SHARDS, task=other, partition=gs.Iid(), algorithm=gs.Dpsgd()))
    with pytest.raises(ValueError, match="nodes = 0 leaves no node to test on its own"):
        gs.Evaluation(nodes=0, personal=True)
    with pytest.raises(ValueError, match="test_clients has 3 entries and test 100 samples"):
        gs.Supervised(nn.Linear(2, 2), ones, ones, test_clients=np.arange(3)).load()


def test_a_task_without_a_word_on_it_has_no_labels_in_the_test_and_a_metric_that_should_rise() -> None:
    assert (Task().test_labels, Task().test_clients, Task().higher_is_better) == (None, None, True)


def test_a_validation_split_keeps_labels_and_clients_of_what_is_held_out() -> None:
    task = gs.Synthetic(num_clients=20).load()
    split = task.with_validation_split(0.25)
    assert len(split.test_labels) == len(split.test_clients) == split.num_test_samples
    assert {*split.test_clients.tolist()} <= {*task.clients.tolist()}
    both = sorted([*split.clients.tolist(), *split.test_clients.tolist()])
    assert both == sorted(task.clients.tolist())
