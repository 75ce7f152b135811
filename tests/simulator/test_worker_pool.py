"""Worker processes: who runs what, what they keep of it, and what becomes of them."""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess

import numpy as np
import pytest
import torch
from torch import Tensor

import gossamer
from contract import CASES, QUADRATIC, of
from gossamer import Evaluation, ExperimentError
from gossamer.data import Supervised
from gossamer.experiments.experiment import Wire
from gossamer.graphs.faults import Faults
from gossamer.models import GnLeNet
from gossamer.simulator.block_runner import BlockRunners
from gossamer.simulator.evaluation import EvaluationShard
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.shared_state import Memory
from gossamer.simulator.simulation import default_start, default_workers
from gossamer.simulator.worker_pool import BLOCK_BYTES, WorkerError, WorkerPool, WorkPlan, forked, stop
from gossamer.training.block import NodeError
from gossamer.training.privacy import Privacy

PATIENCE = 60.0  # seconds, for what takes a moment if all is well


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


EIGHT = WorkPlan([[range(node, node + 1) for node in nodes] for nodes in (range(4), range(4, 8))])


def run_eight(run: Callable[[Tensor, int], None]) -> list[int]:
    """Of every work item, the process that ran it; `run` is given what is known of that so far."""
    ran_by = Memory().zeros(8, dtype=torch.int64)

    def one(stage: str, round: int, item: int) -> None:
        run(ran_by, item)
        ran_by[item] = os.getpid()

    workers = WorkerPool(EIGHT, forked(one, 2))
    try:
        workers.run("outgoing", 4)
    finally:
        workers.close()
    return ran_by.tolist()


def test_who_has_done_its_own_items_takes_those_of_a_worker_that_is_slow() -> None:
    def slow(ran_by: Tensor, item: int) -> None:
        if item == 0:
            wait_until(lambda: bool(ran_by[1:].all()))

    first, *others = run_eight(slow)
    assert len(set(others)) == 1
    assert first not in others


def test_each_worker_begins_with_its_own_items() -> None:
    def together(ran_by: Tensor, item: int) -> None:
        if item in (0, 1, 2, 3):  # each waits for the same one of the other worker to be over or begun
            wait_until(lambda: bool(ran_by[4 : 4 + item].all()))
        else:
            wait_until(lambda: bool(ran_by[: item - 4].all()))

    ran_by = run_eight(together)
    assert len(set(ran_by[:3])) == len(set(ran_by[4:7])) == 1
    assert ran_by[0] != ran_by[4]


def test_of_several_items_that_fail_the_first_is_told_of() -> None:
    def fail(ran_by: Tensor, item: int) -> None:
        if item == 2:
            ran_by[item] = 1
            raise NodeError("node 2 failed")
        if item == 4:
            raise NodeError("node 4 failed")
        if item == 0:
            time.sleep(0.1)  # the other fails first, most likely; what is told must not depend on it

    with pytest.raises(NodeError, match=r"^node 2 failed$"):
        run_eight(fail)


def test_a_worker_that_dies_is_told_of_with_round_stage_and_what_it_was_at() -> None:
    def die(ran_by: Tensor, item: int) -> None:
        if item == 6:
            os._exit(3)

    with pytest.raises(WorkerError, match=r"^a worker died in round 5, outgoing, at nodes 6 to 6 \(exit code 3\)$"):
        run_eight(die)


def test_workers_end_by_themselves_beside_later_ones() -> None:
    """Which have copies of the pipes of those before them, so that these do not end."""
    before = forked(lambda stage, round, item: None, 2)
    later = forked(lambda stage, round, item: None, 2)
    stop(before)
    stop(later)
    assert [worker.exit_code(0) for worker in (*before, *later)] == [0, 0, 0, 0]


def test_if_a_process_cannot_be_forked_those_before_it_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, start = [], multiprocessing.get_context("fork").Process.start

    def fail_at_the_third(process: BaseProcess) -> None:
        if len(begun) == 2:
            raise BlockingIOError("no more processes")
        start(process)
        begun.append(process)

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "start", fail_at_the_third)
    with pytest.raises(BlockingIOError, match="no more processes"):
        forked(lambda stage, round, item: None, 3)
    assert [process.exitcode for process in begun] == [0, 0]
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_blocks_are_as_many_and_as_large_as_is_good(num_workers: int) -> None:
    for experiment in (QUADRATIC, replace(QUADRATIC, nodes=4096, task=replace(QUADRATIC.task, dimension=2400))):
        task = experiment.task.load()
        plan = WorkPlan.of(PreparedExperiment(experiment, task, experiment.trainer_for(task), [], []), num_workers)
        blocks = [block for own in plan.blocks for block in own]
        assert [node for block in blocks for node in block] == list(range(experiment.nodes))
        assert max(map(len, blocks)) * 4 * sum(task.layer_sizes) <= BLOCK_BYTES
        assert len({len(own) for own in plan.blocks}) == 1
        if experiment is QUADRATIC:  # so little that it is not worth more
            assert len(blocks) == num_workers
        else:
            assert len(plan.blocks[0]) >= 4


@pytest.mark.parametrize("num_shards", [0, 1, 8, 24, 100])
def test_every_shard_of_an_evaluation_is_somebodys_and_work_items_are_few(num_shards: int) -> None:
    shards = [EvaluationShard(0, np.arange(1), 1)] * num_shards
    task = QUADRATIC.task.load()
    plan = WorkPlan.of(PreparedExperiment(QUADRATIC, task, QUADRATIC.trainer_for(task), [], shards), 3)
    items = [item for own in plan.by_worker("evaluate") for item in own]
    assert len(items) == min(num_shards, 24)
    assert sorted(shard for item in items for shard in plan.evaluation_shards(item)) == list(range(num_shards))


def images() -> Supervised:
    data = torch.randn(210, 3, 16, 16, generator=torch.Generator().manual_seed(1)), torch.arange(210) % 10
    return Supervised(lambda: GnLeNet().build((3, 16, 16), 10), data, data)


BAD = Faults(drop=0.3, down=((2, 2, 3), (5, 4, 4)), late=((1, 2),))
WANDERING = {case: of(case) for case in CASES} | {
    "choco that catches up": of("choco", faults=Faults(drop=0.3, down=((2, 2, 3),)), wire=Wire("encode")),
    "jwins with faults": of("jwins", faults=BAD),
    "push-sum with faults": of("sparse-push", faults=BAD),
    "private": of("jwins", privacy=Privacy(clip=1.0, noise=0.5)),
    "fast with faults": of("jwins", faults=BAD, task=images(), fast=True, batch_size=4),
}


TRIED_ALWAYS = (
    "dpsgd",
    "jwins",
    "choco",
    "lace",
    "sparse-push",
    "d2",
    *(name for name in WANDERING if name not in CASES),
)


@pytest.mark.parametrize(
    "name", [name if name in TRIED_ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in WANDERING]
)
def test_blocks_that_go_from_worker_to_worker_give_the_same_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = replace(WANDERING[name], evaluation=Evaluation(every=2))
    whole = gossamer.simulate(experiment, workers=1)
    monkeypatch.setattr("gossamer.simulator.worker_pool.BLOCK_BYTES", 1)  # of one node each
    ran_by = Memory().zeros(3, 100, 8, dtype=torch.int64)
    run, stages = BlockRunners.run, ("outgoing", "incoming", "evaluate")

    def delayed(self: BlockRunners, stage: str, round: int, item: int) -> None:
        """The first item of a worker, in turn of the one and the other, waits until all others are done."""
        here, (mine, other) = ran_by[stages.index(stage), round], self._plan.by_worker(stage)[:: 1 - 2 * (round % 2)]
        if item == mine[0]:
            wait_until(lambda: bool(here[[*mine[1:], *other]].all()))
        run(self, stage, round, item)
        here[item] = os.getpid()

    monkeypatch.setattr(BlockRunners, "run", delayed)
    wandered = gossamer.simulate(experiment, workers=2)
    assert torch.equal(whole.models, wandered.models)
    for a, b in zip(whole.metrics, wandered.metrics, strict=True):
        assert a | {"seconds": 0} == b | {"seconds": 0}
    if experiment.algorithm.pools_data:
        return
    for there in ran_by[:2, : experiment.rounds, :7].reshape(-1, 7).tolist():
        assert sorted(map(there.count, set(there))) == [1, 6]
    assert len(set(ran_by[0, : experiment.rounds, 3].tolist())) == 2  # now by the one, now by the other


def test_there_are_as_many_workers_as_cores_on_systems_that_say_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7}, raising=False)
    assert default_workers() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert default_workers() == 10
    monkeypatch.setattr("gossamer.simulator.spawned_worker.AVAILABLE", False)
    assert default_workers() == 1


@pytest.mark.parametrize(("platform", "start"), [("linux", "fork"), ("darwin", "spawn"), ("win32", "spawn")])
def test_processes_are_copied_on_linux_only(platform: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert default_start() == start


def test_another_way_to_start_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r'^start must be "fork", .* or "spawn", .forkserver. was given$'):
        gossamer.simulate(QUADRATIC, workers=2, start="forkserver")
