"""The simulator: what it counts, what it measures, and what it says when something breaks."""

import json
import platform
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import gossamer
from contract import CASES, QUADRATIC, of
from gossamer import Dpsgd, Experiment, Jwins, Optimizer, Quadratic, RandomSampling, Steps, Supervised
from gossamer.algorithms import LocalOnly
from gossamer.core import Message, Part, Round
from gossamer.core.state import write_back
from gossamer.data.partition import LabelShards
from gossamer.experiments import toml
from gossamer.experiments.experiment import Evaluation, Wire
from gossamer.graphs.topologies import ErdosRenyi, Redrawn, Ring, Star, Torus
from gossamer.runs import naming
from gossamer.runs.run import labels, title_of
from gossamer.simulator.evaluation import chosen_nodes, chosen_test_samples, evaluation_shards
from gossamer.simulator.simulation import Simulation
from gossamer.simulator.worker_pool import WorkerError
from gossamer.training.block import NodeError


def without_times(metrics: list[dict]) -> list[dict]:
    return [{k: v for k, v in m.items() if k != "seconds"} for m in metrics]


def assert_same_run(a: gossamer.Run, b: gossamer.Run) -> None:
    assert torch.equal(a.models, b.models)
    assert without_times(a.metrics) == without_times(b.metrics)


@pytest.mark.parametrize("case", CASES)
def test_a_run_through_real_bytes_is_the_run_that_counts_them(case: str) -> None:
    counted = gossamer.simulate(of(case), workers=1)
    assert_same_run(counted, gossamer.simulate(of(case, wire=Wire("encode")), workers=1))


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_any_size_give_the_same_run(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gossamer.simulate(of(case), workers=1)
    monkeypatch.setattr("gossamer.simulator.worker_pool.BLOCK_BYTES", 1)  # of one node each
    single = gossamer.simulate(of(case), workers=1)
    assert torch.equal(whole.models, single.models)
    assert without_times(whole.metrics) == without_times(single.metrics)


def test_a_state_is_written_back_whole_though_its_tensors_change_places() -> None:
    rows = Pair(torch.zeros(2, 3), torch.ones(2, 3))
    a, b = rows
    assert write_back(Pair(b, a), rows) is rows
    assert a.tolist() == [[1.0] * 3] * 2
    assert b.tolist() == [[0.0] * 3] * 2
    write_back(Pair(a, a[:1].expand(2, 3)), rows)
    assert torch.equal(a, b)


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


def test_full_sharing_is_what_shares_are_measured_by() -> None:
    run = gossamer.simulate(replace(QUADRATIC, algorithm=Dpsgd()))
    assert run.result["bytes_share_of_full"] == 1
    per_message = 4 * 53 + 1 + 36  # raw values, their tag, the frame: too few to be worth coding
    assert run.result["bytes_total"] <= 6 * 7 * 4 * per_message
    assert run.result["bytes_metadata"] == 6 * 7 * 4 * 37
    sampled = gossamer.simulate(replace(QUADRATIC, algorithm=RandomSampling(budget=0.3)))
    assert sum(m["bytes_indices"] for m in sampled.metrics) == 0
    assert 0.7 * 16 * 4 < sampled.result["bytes_values"] / (6 * 7 * 4) <= 16 * 4  # 16 of 53 values, coded or raw


def test_the_ledger_has_every_link_and_adds_up(tmp_path: Path) -> None:
    experiment = replace(QUADRATIC, algorithm=Jwins(), topology=Star(), wire=Wire(ledger=True))
    run = gossamer.simulate(experiment, out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert len(lines) == 6 * 12
    assert {(line["sender"], line["receiver"]) for line in lines} == {
        *((0, i) for i in range(1, 7)),
        *((i, 0) for i in range(1, 7)),
    }
    for kind in ("header", "indices", "values"):
        for metrics in run.metrics:
            here = [line[kind] for line in lines if line["round"] == metrics["round"]]
            assert sum(here) == metrics[f"bytes_{kind}"]


@pytest.mark.parametrize(
    ("nodes", "batch_size", "every", "mean_model", "num_samples", "tested"),
    [
        (96, 8, 10, True, 10_000, (5, 1152)),  # GN-LeNet on CIFAR-10
        (16, 16, 10, True, 360, (5, 360)),  # digits
        (1024, 16, 50, False, 360, (1024, 360)),
        (16, 8, 1, True, 10_000, (4, 100)),  # the least that is tested
        (2, 8, 1, True, 50, (2, 50)),
    ],
)
def test_by_default_tests_take_a_tenth_of_the_work_unless_that_tells_too_little(
    nodes: int, batch_size: int, every: int, mean_model: bool, num_samples: int, tested: tuple[int, int]
) -> None:
    trained = nodes * 3 * batch_size
    found = Evaluation(every, mean_model=mean_model).resolved(nodes, 10**6, trained, num_samples)
    assert (found.nodes, found.samples) == tested
    least = tested[0] <= 4 and tested[1] <= 100
    passes = (tested[0] + mean_model) * tested[1]
    assert least or passes <= 0.1 * 3 * trained * every
    given = Evaluation(every, samples=7, nodes=2).resolved(nodes, 10**6, trained, num_samples)
    assert (given.nodes, given.samples) == (2, 7)


def test_a_run_that_ends_before_the_first_test_is_due_has_the_budget_of_its_rounds() -> None:
    short, long = (Evaluation(every=100).resolved(96, rounds, 96 * 24, 10_000) for rounds in (10, 100))
    assert short == replace(Evaluation(every=10).resolved(96, 100, 96 * 24, 10_000), every=100)
    assert long.nodes * long.samples > 9 * short.nodes * short.samples


def test_tests_are_shared_out_and_any_number_of_workers_finds_the_same() -> None:
    x = torch.randn(1300, 6, generator=torch.Generator().manual_seed(1))
    data = x, (x.sum(-1) > 0).long()
    torch.manual_seed(1)  # of whatever ran before, nodes and mean model may happen to be equally good
    task = Supervised(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), data, data)
    evaluation = Evaluation(every=1, samples=1200, nodes=3)
    experiment = Experiment(task=task, nodes=5, rounds=2, topology=Ring(), evaluation=evaluation)
    shards = evaluation_shards(experiment, task, experiment.shards(task))
    assert [len(shard.samples) for shard in shards] == [500, 500, 200] * 4
    assert [shard.row for shard in shards[-3:]] == [5, 5, 5]  # the mean model
    one, four = (gossamer.simulate(experiment, workers=workers) for workers in (1, 4))
    for a, b in zip(one.metrics, four.metrics, strict=True):
        assert a | {"seconds": 0} == b | {"seconds": 0}
    samples = chosen_test_samples(experiment, task)
    with Simulation(experiment, workers=1) as simulation:
        metrics, models, buffers = simulation.step(), simulation.models(), simulation.save()["buffers"]
        whole = task.evaluate(models.mean(0), samples, buffers.mean(0))  # not in shards
        assert metrics["accuracy_of_mean_model"] == pytest.approx(whole[1], abs=1e-9)
        tested = [task.evaluate(model, samples, own) for model, own in zip(models, buffers, strict=True)]
        three = [tested[shard.row] for shard in shards[:-3:3]]
        assert metrics["accuracy_mean"] == pytest.approx(sum(accuracy for _, accuracy in three) / 3, abs=1e-9)
        assert metrics["test_loss"] == pytest.approx(sum(loss for loss, _ in three) / 3, rel=1e-5)
    assert one.result["accuracy_of_mean_model"] != one.result["accuracy_mean"]
    assert len(samples) == one.result["tested_samples"] == 1200 < one.result["test_samples"] == 1300


def test_the_papers_encodings_are_counted_on_request() -> None:
    pytest.importorskip("fpzip", reason="an optional extra")
    experiment = replace(QUADRATIC, algorithm=Jwins(), wire=Wire(compare=("elias-fpzip", "six-bytes")))
    result = gossamer.simulate(experiment).result
    assert result["bytes_six-bytes"] % 6 == 0
    assert 0.5 < result["bytes_elias-fpzip"] / result["bytes_total"] < 2


def test_comparing_with_a_package_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.experiments.requirements.find_spec", lambda name: None)
    with pytest.raises(gossamer.ExperimentError, match=r"install gossamer\[reference\]"):
        gossamer.simulate(replace(QUADRATIC, wire=Wire(compare=("elias-fpzip",))))


def test_the_way_to_the_bytes_may_be_named_in_a_word() -> None:
    assert toml.read(tomllib.loads('wire = "encode"')).wire == Wire("encode")
    assert toml.read(tomllib.loads('[wire]\ncompare = ["six-bytes"]')).wire == Wire(compare=("six-bytes",))


@pytest.mark.parametrize(
    ("evaluation", "num_nodes", "num_samples"),
    [
        (Evaluation(samples="all", nodes="all"), 7, 210),
        (Evaluation(nodes=3, samples=50), 3, 50),
        (Evaluation(samples="all", nodes=0), 1, 210),
        (Evaluation(), 4, 100),
    ],
)
def test_what_is_evaluated_is_what_was_asked_for(evaluation: Evaluation, num_nodes: int, num_samples: int) -> None:
    experiment = replace(QUADRATIC, algorithm=Dpsgd(), evaluation=evaluation, rounds=2)
    with Simulation(experiment, workers=1) as simulation:
        simulation.step()
        metrics = simulation.step()
        models = simulation.models().clone()
        samples, nodes = (
            chosen_test_samples(simulation.experiment, simulation.task),
            chosen_nodes(simulation.experiment),
        )
    task = experiment.task.load()
    assert len(samples) == num_samples == len(set(samples.tolist()))
    chosen = models[nodes] if nodes else models.mean(0)[None]
    assert len(chosen) == num_nodes
    assert (metrics["tested_nodes"], metrics["tested_samples"]) == (len(nodes), num_samples)
    scores = [task.evaluate(model, samples) for model in chosen]
    assert metrics["distance_mean"] == pytest.approx(np.mean([score for _, score in scores]))
    assert metrics["distance_max"] == max(score for _, score in scores)
    assert metrics["test_loss"] == pytest.approx(np.mean([loss for loss, _ in scores]))
    assert metrics["distance_of_mean_model"] == task.evaluate(models.mean(0), samples)[1]
    mean = models.mean(0)
    assert metrics["divergence"] == pytest.approx(np.mean([(x - mean).norm().item() for x in models]))


def test_evaluation_comes_every_so_many_rounds_and_at_the_end() -> None:
    run = gossamer.simulate(replace(QUADRATIC, rounds=7, evaluation=Evaluation(every=3)))
    assert [m["round"] for m in run.metrics if "test_loss" in m] == [3, 6, 7]
    assert [m["round"] for m in run.metrics] == list(range(1, 8))


def test_the_training_loss_is_the_mean_over_nodes_and_steps() -> None:
    experiment = replace(QUADRATIC, batch_size=30, local_steps=1, rounds=1)
    task = QUADRATIC.task.load()
    zero = torch.zeros(1, 53)
    expected = [task.gradient(zero, [shard], [0])[0].item() for shard in experiment.shards(task)]
    assert gossamer.simulate(experiment).metrics[0]["train_loss"] == pytest.approx(np.mean(expected))


class Broken(nn.Linear):
    """Takes two samples, with which it is tried, and no more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 2:
            raise RuntimeError("it is broken")
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_users_model_is_told_with_round_and_nodes(workers: int) -> None:
    data = torch.randn(8, 3), torch.arange(8) % 2
    experiment = Experiment(nodes=4, topology=Ring(), task=Supervised(lambda: Broken(3, 2), data, data))
    with pytest.raises((RuntimeError, WorkerError), match="it is broken") as raised:
        gossamer.simulate(experiment, workers=workers)
    told = str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
    assert f"in round 1, local step 1, of nodes 0 to {4 // workers - 1}" in told


@dataclass(frozen=True)
class Watched(Quadratic):
    """Tells what it is asked."""

    asked: list = field(default_factory=list)

    def gradient(
        self, models: torch.Tensor, samples: list, seeds: list, buffers: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.asked.append((models.clone(), [tuple(s) for s in samples], list(seeds)))
        return super().gradient(models, samples, seeds, buffers)


def test_every_local_step_has_its_own_minibatch_seed_and_learning_rate() -> None:
    task = Watched(dimension=53, num_samples=210)
    optimizer = Optimizer(0.2, schedule=Steps(at=(1,), by=0.5))
    gossamer.simulate(replace(QUADRATIC, algorithm=LocalOnly(), task=task, optimizer=optimizer, rounds=2), workers=1)
    assert len(task.asked) == 4  # two rounds of two steps
    for node in range(7):
        assert len({samples[node] for _, samples, _ in task.asked}) == 4
        assert len({seeds[node] for _, _, seeds in task.asked}) == 4
    assert len(set(task.asked[0][2])) == 7
    for (x, samples, seeds), (after, *_), rate in zip(task.asked, task.asked[1:], (0.2, 0.2, 0.1), strict=False):
        _, gradient = QUADRATIC.task.gradient(x, [np.array(s) for s in samples], seeds)
        torch.testing.assert_close(after, x - rate * gradient)


def test_a_number_that_is_not_finite_stops_the_run_with_its_round() -> None:
    experiment = replace(QUADRATIC, optimizer=Optimizer(1e25), rounds=50, evaluation=Evaluation(every=1))
    with pytest.raises(NodeError, match=r"became (inf|nan) in round \d+; a smaller optimizer.learning_rate would help"):
        gossamer.simulate(experiment, workers=1)


def test_a_graph_that_cannot_be_drawn_in_a_later_round_stops_the_run_with_its_round() -> None:
    experiment = replace(QUADRATIC, nodes=12, rounds=500, topology=Redrawn(ErdosRenyi(probability=0.13)))
    with pytest.raises(NodeError, match=r"in round \d+, .*probability"):
        gossamer.simulate(experiment, workers=1)


@dataclass(frozen=True)
class Sloppy(Jwins):
    """Marks what is sent, and leaves the rest of the values in."""

    def send(self, state: Any, round: Round) -> tuple[Message, Any]:
        message, state = super().send(state, round)
        return {"coefficients": Part(state.coefficients, message["coefficients"].sent)}, state


def test_nothing_is_received_that_was_not_marked_as_sent() -> None:
    tidy = gossamer.simulate(replace(QUADRATIC, algorithm=Jwins()))
    assert torch.equal(gossamer.simulate(replace(QUADRATIC, algorithm=Sloppy())).models, tidy.models)


@pytest.mark.parametrize("budget", [0.1, 0.2, 0.37])
@pytest.mark.parametrize("randomize", [True, False])
def test_a_budget_is_respected_in_expectation(budget: float, randomize: bool) -> None:
    algorithm = Jwins(budget=budget, randomize=randomize)
    base = Experiment(algorithm=algorithm, partition=LabelShards(), rounds=40, evaluation=Evaluation(every=40))
    shares = [gossamer.simulate(replace(base, seed=seed)).result["bytes_share_of_full"] for seed in range(3)]
    spread = 0.0 if not randomize else (budget / 2 * (1 - budget / 2)) ** 0.5 / (3 * 40 * 16) ** 0.5
    assert np.mean(shares) <= 1.01 * budget + 2 * spread
    assert np.mean(shares) >= 0.93 * budget - 2 * spread


def test_more_wavelet_levels_than_the_model_can_have_are_refused() -> None:
    with pytest.raises(gossamer.ExperimentError, match="levels must be at most 5 for 53 parameters, 6 was given"):
        gossamer.simulate(replace(QUADRATIC, algorithm=Jwins(levels=6)))


def test_torch_is_left_as_it_was() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    gossamer.simulate(replace(QUADRATIC, rounds=1), workers=1)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def run_of(**changes: object) -> gossamer.Run:
    return gossamer.Run(replace(Experiment(name="mine", algorithm=Jwins()), **changes))


def test_runs_are_told_apart_by_what_differs() -> None:
    seeds = [run_of(seed=0), run_of(seed=1)]
    assert labels(seeds) == ["jwins", "jwins"]
    assert labels([*seeds, run_of(algorithm=Dpsgd())]) == ["jwins", "jwins", "dpsgd"]
    assert labels([run_of(algorithm=Jwins(budget=0.1)), run_of(algorithm=Jwins(budget=0.2))]) == [
        "jwins, budget 0.1",
        "jwins, budget 0.2",
    ]
    assert labels([*seeds, run_of(name="theirs", nodes=8)]) == ["jwins, nodes 16", "jwins, nodes 16", "jwins, nodes 8"]
    assert labels([run_of(), run_of(name="theirs")]) == ["mine", "theirs"]
    noted = [run_of(note="first"), run_of(note="second", algorithm=Dpsgd()), run_of(note="third", nodes=8)]
    assert labels(noted) == ["jwins, nodes 16", "dpsgd, nodes 16", "jwins, nodes 8"]
    rooted = [toml.write(Experiment()) | {"task": {"name": "cifar10", "root": root}} for root in ("", "data")]
    assert naming.labels(rooted) == ["dpsgd", "dpsgd, root data"]
    both = [run_of(algorithm=Dpsgd()), run_of(topology=Ring()), run_of(topology=Torus())]
    assert labels(both) == ["dpsgd, topology random-regular", "jwins, topology ring", "jwins, topology torus"]
    other = replace(Experiment().optimizer, learning_rate=0.2)
    many = [run_of(nodes=8 + i, rounds=30 + i, batch_size=8 + i, local_steps=1 + i, optimizer=other) for i in (0, 1)]
    many.append(run_of(name="theirs"))
    assert len(set(labels(many))) == 3
    assert title_of(seeds) == "mine"
    assert title_of([*seeds, run_of(algorithm=Dpsgd())]) == "jwins and dpsgd on digits"
    assert title_of(both) == "dpsgd and jwins on digits by topology"


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's")
def test_freed_memory_is_kept() -> None:
    script = '''
import torch
from gossamer.simulator.allocator import tune_malloc
def faults():
    return int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[7])
def pages():
    """That five tensors of 64 MB take anew, one after the other; at least, for now and then freed memory is in
    pieces by a small object amid it."""
    least = 1 << 62
    for _ in range(8):
        before = faults()
        for _ in range(5):
            torch.ones(1 << 24).sum()
        least = min(least, faults() - before)
    return least
torch.set_num_threads(1)
given_back = pages()
assert tune_malloc()
kept = pages()
assert kept < given_back / 10, (kept, given_back)
'''
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
