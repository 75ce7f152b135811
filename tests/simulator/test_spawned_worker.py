"""Workers that are fresh interpreters: told the experiment as TOML, with the shared memory in a file."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import gossamer
from contract import QUADRATIC, of
from gossamer import Dpsgd, Evaluation, Experiment, Supervised
from gossamer.data import Table
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import Ring
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.shared_state import Memory
from gossamer.simulator.simulation import Simulation
from gossamer.simulator.spawned_worker import spawned, text_of
from gossamer.simulator.worker_pool import WorkerError, WorkPlan
from gossamer.training.block import NodeError
from gossamer.training.optimizer import Optimizer

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_told_to_a_new_process(name: str) -> None:
    assert text_of(RECIPES[name]())


@pytest.mark.slow
def test_a_run_continued_in_fresh_interpreters_is_the_run_in_one_process(tmp_path: Path) -> None:
    faults = Faults(drop=0.3, down=((2, 2, 3),), late=((1, 2),))
    experiment = of("choco", faults=faults, evaluation=Evaluation(every=2))

    def stop(metrics: dict) -> None:
        if metrics["round"] == 3:
            raise RuntimeError("enough")

    def look(_: dict) -> None:
        assert os.listdir(tmp_path) == ["run"]  # the shared memory is in a file without a name

    with pytest.raises(RuntimeError, match="enough"):
        gossamer.simulate(experiment, tmp_path / "run", 2, 2, stop)
    continued = gossamer.resume(tmp_path / "run", None, 2, 2, look, scratch=tmp_path, start="spawn")
    whole = gossamer.simulate(experiment, workers=1)
    assert torch.equal(whole.models, continued.models)
    for a, b in zip(whole.metrics, continued.metrics, strict=True):
        assert a | {"seconds": 0} == b | {"seconds": 0}


@linux
@pytest.mark.slow
def test_errors_and_deaths_come_through_from_fresh_interpreters() -> None:
    experiment = replace(QUADRATIC, optimizer=Optimizer(1e25), rounds=50)
    with Simulation(experiment, workers=1) as simulation, pytest.raises(NodeError) as raised:
        take_all_rounds(simulation)
    expected = str(raised.value)
    assert expected.startswith("the training loss of node 0 became")
    before = children_of(os.getpid())
    with Simulation(experiment, workers=2, start="spawn") as simulation:
        with pytest.raises(NodeError, match=f"^{re.escape(expected)}$"):
            take_all_rounds(simulation)
        first, _ = (child for child in children_of(os.getpid()) if child not in before)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(
            WorkerError, match=r"^a worker died in round 1, outgoing, at nodes 0 to 3 \(exit code -9\)$"
        ):
            simulation.step()
    assert children_of(os.getpid()) == before


def take_all_rounds(simulation: Simulation) -> None:
    while simulation.round < simulation.experiment.rounds:
        simulation.step()


PROGRAM = """
import signal
from contract import QUADRATIC
from gossamer.simulator.simulation import Simulation
signal.signal(signal.SIGINT, lambda *_: None)
with Simulation(QUADRATIC, workers=2, start="spawn") as simulation:
    while True:
        simulation.step()
        print(simulation.round, flush=True)
        simulation.round = 0  # for ever
"""


@pytest.mark.slow
@linux
def test_a_program_without_a_main_guard_has_workers_that_outlive_ctrl_c_and_not_the_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    directory = tmp_path / "temporary"
    directory.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(directory)}
    command = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        children = children_of(process.pid)
        assert len(children) == 2
        os.killpg(process.pid, signal.SIGINT)
        for _ in range(200):  # more than were on their way
            assert process.stdout.readline() == b"1\n"
        assert children_of(process.pid) == children
        assert not os.listdir(directory)
        process.kill()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert not os.listdir(directory)


def table(directory: Path, first: float) -> Experiment:
    rows = "\n".join(f"{first if i == 0 else i},{i % 2}" for i in range(40))
    (directory / "mine.csv").write_text(f"x,y\n{rows}\n")
    return Experiment(nodes=4, task=Table("mine.csv", "y"), topology=Ring(), algorithm=Dpsgd())


def test_workers_that_find_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    experiment = table(tmp_path, 0.0)
    prepared = PreparedExperiment.of(experiment)
    assert PreparedExperiment.of(experiment).fingerprint() == prepared.fingerprint()
    table(tmp_path, 0.5)
    assert PreparedExperiment.of(experiment).fingerprint() != prepared.fingerprint()
    memory = Memory.in_a_file(tmp_path)
    memory.zeros(1 << 20)
    with pytest.raises(WorkerError, match="found other data than this process"):
        spawned(text_of(experiment), prepared, WorkPlan.of(prepared, 1), memory)
    memory.close()


def test_what_cannot_be_told_to_a_new_process_is_run_in_this_one(caplog: pytest.LogCaptureFixture) -> None:
    data = torch.randn(80, 3), torch.arange(80) % 2
    experiment = Experiment(nodes=40, rounds=2, topology=Ring(), task=Supervised(nn.Linear(3, 2), data, data))
    with caplog.at_level(logging.WARNING):
        run = gossamer.simulate(experiment, workers=2, start="spawn")
    said = "one worker runs all nodes: what is your own, given from Python, cannot be told to a new process"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert torch.equal(run.models, gossamer.simulate(experiment, workers=2).models)


class Mine(Dpsgd):
    """Is called as one of the table's is, and is another."""


Mine.__qualname__ = "dpsgd"


def test_a_class_of_the_users_own_is_not_taken_for_another() -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        text_of(replace(QUADRATIC, algorithm=Mine()))
