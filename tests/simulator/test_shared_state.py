"""What the simulator keeps of every node, where, and how much of it."""

import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import gossamer
from contract import CASES, QUADRATIC, of
from gossamer import Evaluation, Experiment, ExperimentError, Supervised
from gossamer.algorithms import ALGORITHMS, entry
from gossamer.graphs.topologies import DirectedRandom, RandomRegular
from gossamer.simulator.allocator import trim_heap
from gossamer.simulator.simulation import Simulation

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def without_times(run: gossamer.Run) -> list[dict]:
    return [{k: v for k, v in m.items() if k != "seconds"} for m in run.metrics]


@pytest.mark.parametrize("case", ["jwins", "choco", "sparse-push"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_in_files_is_the_run_in_memory(case: str, workers: int, tmp_path: Path) -> None:
    assert case in CASES
    in_memory = gossamer.simulate(of(case), workers=1)
    in_files = gossamer.simulate(of(case), workers=workers, scratch=tmp_path)
    assert torch.equal(in_memory.models, in_files.models)
    assert without_times(in_memory) == without_times(in_files)


def test_a_run_begun_in_memory_is_continued_in_files(tmp_path: Path) -> None:
    def stop(metrics: dict) -> None:
        if metrics["round"] == 3:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        gossamer.simulate(of("jwins"), tmp_path / "run", 1, checkpoint_every=2, on_round=stop)
    resumed = gossamer.resume(tmp_path / "run", of("jwins"), 1, scratch=tmp_path)
    assert torch.equal(resumed.models, gossamer.simulate(of("jwins"), workers=1).models)


@linux
def test_models_and_states_and_messages_are_in_nameless_files(tmp_path: Path) -> None:
    mapped = []

    def look(_: dict) -> None:
        mapped.append([line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line])
        assert not os.listdir(tmp_path)

    gossamer.simulate(of("jwins"), workers=1, on_round=look, scratch=tmp_path)
    assert {len(lines) for lines in mapped} == {5}  # x, coefficients, reference; values and marks


def test_a_directory_that_cannot_hold_the_models_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ExperimentError, match=r"^scratch: .*nowhere cannot hold the models: No such file or directory;"
    ):
        gossamer.simulate(QUADRATIC, scratch=tmp_path / "nowhere")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(ExperimentError, match=r"^scratch: .* cannot hold the models: File too large; name"):
            gossamer.simulate(QUADRATIC, scratch=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not os.listdir(tmp_path)


@pytest.mark.slow
def test_files_are_gone_when_a_run_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal
from contract import QUADRATIC
from gossamer import simulate
simulate(QUADRATIC, workers=1, scratch={str(tmp_path)!r}, on_round=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=120).returncode == -9
    assert not os.listdir(tmp_path)


NODES, SIDE = 64, 500
COPY_BYTES = 4 * NODES * (SIDE * SIDE + SIDE)  # one copy of every node's model
COPIES = {  # beside what its entry says: for what is sent, and for models that are not a part of the state
    "dpsgd": 1,
    "choco": 1,
    "jwins": 1.25,
    "jwins-quantized": 1.25,
    "deep-squeeze": 1.25,
    "gradient-tracking": 2,
    "sgp": 1 + 1,
    "sparse-push": 1.25 + 1,
    "silk": 1 + 1,
}


def memory(line: str) -> int:
    """Bytes of this process now (VmRSS) or at most (VmHWM)."""
    return 1024 * int(Path("/proc/self/status").read_text().split(f"{line}:")[1].split()[0])


def linear(name: str, side: int) -> Experiment:
    """An algorithm on matrices of this side."""
    algorithm = ALGORITHMS[name]()
    data = torch.randn(NODES, side), torch.randn(NODES, side)
    return Experiment(
        nodes=NODES,
        rounds=2,
        local_steps=1,
        batch_size=1,
        task=Supervised(
            lambda: nn.Linear(side, side), data, data, nn.functional.mse_loss, lambda x, y: (x - y).mean(-1)
        ),
        algorithm=algorithm,
        topology=DirectedRandom() if "column_stochastic" in algorithm.requires else RandomRegular(degree=4),
        strategy="rows",
        evaluation=Evaluation(every=1, samples=1, nodes=1),
    )


@linux
@pytest.mark.parametrize(
    "name",
    [name if name in ("dpsgd", "jwins", "silk") else pytest.param(name, marks=pytest.mark.slow) for name in COPIES],
)
def test_a_run_takes_as_many_copies_of_the_models_as_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.simulator.worker_pool.BLOCK_BYTES", 1 << 20)
    gossamer.simulate(linear(name, 20), workers=1)  # loads what is loaded once
    experiment = linear(name, SIDE)
    gc.collect()
    trim_heap()  # what tests before have freed would be used again, and not be seen
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # sets the most to what is now
    with Simulation(experiment, workers=1) as simulation:
        simulation.step()
        simulation.step()
        copies = (memory("VmHWM") - before) / COPY_BYTES
    kept = entry(name).memory
    assert kept is not None
    said = kept + COPIES[name]
    assert said - 0.3 < copies < said + 0.4, f"{copies:.2f} copies, {said} were said"
