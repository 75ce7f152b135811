"""An experiment over several ranks is the experiment on one machine, to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer
from contract import of
from gossamer import Experiment, ExperimentError, Quadratic
from gossamer.cluster.environment import Environment, detect, first_host
from gossamer.cluster.group import LostRankError, RankGroup
from gossamer.cluster.launch import HUNG, launch
from gossamer.cluster.placement import PLACEMENTS
from gossamer.experiments import toml
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import EdgeList, RandomRegular, Redrawn, Ring, SmallWorld
from gossamer.runs import checkpoint
from gossamer.simulator.ranks import Placement
from gossamer.simulator.simulate import StopRequest, resume, simulate
from gossamer.simulator.worker_pool import WorkerError
from gossamer.training.block import NodeError

FAULTS = Faults(drop=0.2, down=((2, 2, 3), (5, 4, 4)), late=((1, 2),))
OF_RANKS = ("seconds", "ranks", "bytes_between_ranks")


def on(number: int, work: Callable[[RankGroup], object], placement: str = "contiguous") -> dict[int, int]:
    """Do this in so many ranks; exit codes other than 0."""

    def become(environment: Environment) -> int:
        with RankGroup(environment, 60, placement) as group:
            work(group)
        return 0

    torch.set_num_threads(1)
    return launch(number, become)


def run_on(number: int, experiment: Experiment, out: Path, **options: object) -> gossamer.Run:
    assert not on(number, lambda group: simulate(experiment, out, ranks=group, workers=1, **options))
    return gossamer.open_run(out, experiment)


def comparable(run: gossamer.Run) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in OF_RANKS} for row in run.metrics]


def assert_same(a: gossamer.Run, b: gossamer.Run) -> None:
    assert comparable(a) == comparable(b)
    assert torch.equal(a.models, b.models)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("case", ["jwins", "silk", "scsp", "choco"])
def test_ranks_give_the_run_of_one_process_under_faults(case: str, number: int, tmp_path: Path) -> None:
    faults = replace(FAULTS, late=()) if case == "scsp" else FAULTS  # which settles, and refuses late messages
    experiment = of(case, faults=faults, rounds=8)
    alone = gossamer.simulate(experiment, tmp_path / "alone", workers=1)
    ranks = run_on(number, experiment, tmp_path / "ranks")
    assert_same(alone, ranks)
    different = {key for key in ranks.result if ranks.result[key] != alone.result.get(key)}
    assert different <= set(OF_RANKS)
    assert 0 < ranks.result["bytes_between_ranks"] < alone.result["bytes_total"]


def test_graphs_that_never_return_and_workers_and_placement_change_nothing(tmp_path: Path) -> None:
    changed = {"topology": Redrawn(RandomRegular(degree=2)), "faults": FAULTS, "rounds": 5}
    for case in ("choco", "jwins"):
        experiment = of(case, **changed)
        alone = gossamer.simulate(experiment, workers=1)
        out = tmp_path / case
        assert not on(2, lambda g, e=experiment, o=out: simulate(e, o, workers=2, ranks=g), "min-cut")
        assert_same(alone, gossamer.open_run(out, experiment))


def test_a_run_goes_on_from_its_last_checkpoint_with_any_number_of_ranks(tmp_path: Path) -> None:
    experiment, out = of("choco", faults=FAULTS, rounds=9), tmp_path / "run"
    alone = gossamer.simulate(experiment, workers=1)

    def stop_after(round: int, group: RankGroup) -> Callable[[dict], None]:
        def on_round(metrics: dict) -> None:
            if metrics["round"] == round and group.rank == 1:  # one is asked to stop, and all do, after the next
                signal.raise_signal(signal.SIGTERM)

        return on_round

    def stop(group: RankGroup) -> None:
        with pytest.raises(StopRequest):
            simulate(experiment, out, 1, ranks=group, on_round=stop_after(3, group))

    assert not on(2, stop)
    manifest = json.loads((out / checkpoint.MANIFEST).read_text())
    assert manifest["saved"]["round"] == 4
    assert [len(shard["nodes"]) for shard in manifest["shards"]] == [4, 3]

    def stop_again(group: RankGroup) -> None:
        with pytest.raises(StopRequest):
            resume(out, experiment, 1, ranks=group, on_round=stop_after(5, group))

    assert not on(3, stop_again)
    assert json.loads((out / checkpoint.MANIFEST).read_text())["saved"]["round"] == 6
    assert len(list(out.glob("checkpoint-*"))) == 3, "files of the checkpoint before were left"
    assert_same(alone, resume(out, experiment, workers=1))
    assert not (out / checkpoint.MANIFEST).exists()
    assert_same(alone, gossamer.open_run(out, experiment))


def test_a_part_of_a_checkpoint_that_is_missing_or_damaged_is_told(tmp_path: Path) -> None:
    tensors = {"x": torch.arange(6.0).view(3, 2), "messages.q.values": torch.arange(12.0).view(6, 2)}
    saved = checkpoint.Saved(round=4, totals={"sent": 1})
    nodes = [np.array([0, 2]), np.array([1])]
    for rank, own in enumerate(nodes):
        rows = {
            "x": tensors["x"][own],
            "messages.q.values": tensors["messages.q.values"].view(2, 3, 2)[:, own].reshape(-1, 2),
        }
        checkpoint.save_shard(tmp_path, saved, rows, rank, 2)
    checkpoint.commit(tmp_path, saved, nodes)
    _, found = checkpoint.load(tmp_path) or pytest.fail("nothing was saved")
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    _, some = checkpoint.load(tmp_path, np.array([1, 2])) or pytest.fail("nothing was saved")
    assert torch.equal(some["messages.q.values"], tensors["messages.q.values"].view(2, 3, 2)[:, 1:].reshape(-1, 2))
    (last,) = tmp_path.glob("*rank-1-of-2*")
    content = last.read_bytes()
    last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ExperimentError, match=r"rank-1-of-2.safetensors is damaged \(its checksum"):
        checkpoint.load(tmp_path)
    last.unlink()
    with pytest.raises(ExperimentError, match=r"checkpoint.json is damaged \(there is no"):
        checkpoint.load(tmp_path)
    manifest = (tmp_path / checkpoint.MANIFEST).read_text()
    for wrong in (manifest.replace('"nodes":[1]', '"nodes":[3]'), manifest[: len(manifest) // 2]):
        (tmp_path / checkpoint.MANIFEST).write_text(wrong)
        with pytest.raises(ExperimentError, match=r"checkpoint.json is damaged"):
            checkpoint.load(tmp_path, np.array([1]))


def fail_in_rank_1(group: RankGroup, error: type[Exception]) -> None:
    with group.together():
        if group.rank == 1:
            raise error(f"in rank 1, {error.__name__}")


def test_what_goes_wrong_in_one_rank_is_raised_in_all(tmp_path: Path) -> None:
    def work(group: RankGroup) -> None:
        group.begin({"experiment": "same"})
        for error in (NodeError, ExperimentError, WorkerError):
            with pytest.raises(error, match=f"in rank 1, {error.__name__}"):
                fail_in_rank_1(group, error)
        assert group.any(group.rank == 2)
        assert not group.any(False)

    assert not on(3, work)


def test_a_callback_that_ends_the_run_or_fails_in_one_rank_does_so_in_all(tmp_path: Path) -> None:
    experiment = of("jwins", rounds=6)

    def ended(group: RankGroup) -> None:
        def ends(run: gossamer.Run) -> bool:
            return group.rank == 1 and len(run.metrics) == 2

        assert len(simulate(experiment, tmp_path / "ended", 1, ranks=group, callbacks=[ends]).metrics) == 2

    def failed(group: RankGroup) -> None:
        def fails(run: gossamer.Run) -> None:
            if group.rank == 1:
                raise KeyError("of one's own")

        with pytest.raises((KeyError, WorkerError), match="of one's own"):
            simulate(experiment, tmp_path / "failed", 1, ranks=group, callbacks=[fails])

    assert not on(2, ended)
    assert not on(2, failed)
    assert gossamer.open_run(tmp_path / "ended", experiment).result["rounds"] == 2
    assert checkpoint.peek(tmp_path / "failed").round == 1


def test_ranks_with_different_experiments_are_refused_everywhere(tmp_path: Path) -> None:
    def work(group: RankGroup) -> None:
        experiment = replace(of("jwins"), seed=group.rank)
        with pytest.raises(ExperimentError, match="rank 1 was given another experiment than rank 0"):
            simulate(experiment, tmp_path / "run", 1, ranks=group)

    assert not on(2, work)
    assert not (tmp_path / "run").exists()


def test_a_rank_that_hangs_or_never_comes_ends_the_others_within_the_timeout_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(environment: Environment) -> int:
        with RankGroup(environment, 2) as group:
            group.begin({"experiment": "same"})
            if environment.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            with pytest.raises(LostRankError, match=r"did not answer rank 0 for 2 s|has lost another rank"):
                group.any(True)
            return 5

    monkeypatch.setattr("gossamer.cluster.launch.GRACE_SECONDS", 0.5)
    started = time.monotonic()
    assert launch(2, work) == {0: 5, 1: HUNG}
    assert time.monotonic() - started < 30
    group = RankGroup(Environment(0, 2, f"file://{tmp_path / 'nobody'}"), 1)
    with pytest.raises(LostRankError, match="rank 0 did not meet the other ranks within 1 s"):
        group.begin({"experiment": "same"})


def test_more_ranks_than_nodes_are_refused() -> None:
    group = RankGroup(Environment(0, 8, ""))
    with pytest.raises(ExperimentError, match="8 ranks were given, and there are 7 nodes; take at most 7 ranks"):
        group.placement(lambda: (np.empty(0), np.empty(0)), 7, 1)
    told = 'trained in chunks of 64, which stay together; take at most 5 ranks, more nodes, or strategy = "rows"'
    with pytest.raises(ExperimentError, match=told):
        group.placement(lambda: (np.empty(0), np.empty(0)), 300, 64)


SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}


def test_the_environments_of_torchrun_and_srun_are_understood() -> None:
    assert detect({}) is None
    assert detect({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is None
    assert detect(TORCHRUN) == Environment(1, 2, "env://", local=2)
    assert detect({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}) == Environment(1, 2, "env://", 1, local=2)
    assert detect(SLURM) == Environment(3, 4, "tcp://gpu07:23456")
    in_the_script = {name: value for name, value in SLURM.items() if "STEP" not in name}
    assert detect(in_the_script) is None
    assert [first_host(hosts) for hosts in ("a,b", "n[3-5]-ib,m", "one")] == ["a", "n3-ib", "one"]
    for wrong in ({"RANK": "5"}, {"RANK": "x"}, {"WORLD_SIZE": "-1"}):
        with pytest.raises(ExperimentError):
            detect({**TORCHRUN, **wrong})
    with pytest.raises(ExperimentError, match="MASTER_ADDR and MASTER_PORT are not"):
        detect({"RANK": "0", "WORLD_SIZE": "2"})


def crossing(nodes: list, senders: np.ndarray, receivers: np.ndarray) -> int:
    """Frames that travel in an exchange: one for each sender and other rank with a receiver of it."""
    rank_of = Placement(nodes).rank_of
    return len({(s, rank_of[r]) for s, r in zip(senders, receivers, strict=True) if rank_of[s] != rank_of[r]})


@pytest.mark.parametrize("number", [2, 4])
def test_min_cut_has_fewer_frames_between_ranks(number: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    cluster = random.permutation(np.arange(96) % 8)  # eight groups, whose members are anywhere in the order
    pairs = [
        (i, j) for i in range(96) for j in range(i) if random.random() < (0.5 if cluster[i] == cluster[j] else 0.01)
    ]
    (tmp_path / "edges").write_text("96\n" + "".join(f"{i} {j}\n" for i, j in pairs))
    for topology, share in ((SmallWorld(), 1.0), (EdgeList(str(tmp_path / "edges")), 0.6)):
        mixing = topology.at(96, 0, 0)
        links = mixing.senders, mixing.receivers
        counts = {}
        for name, place in PLACEMENTS.items():
            nodes = place(lambda found=links: found, 96, 1, number)
            assert sorted(np.concatenate(nodes).tolist()) == list(range(96))
            assert max(map(len, nodes)) <= 1.1 * 96 / number
            counts[name] = crossing(nodes, *links)
        assert counts["min-cut"] <= share * counts["contiguous"], counts


def tiny(directory: Path, rounds: int = 20) -> Experiment:
    experiment = Experiment(name="tiny", nodes=6, rounds=rounds, task=Quadratic(), topology=Ring(), local_steps=2)
    (directory / "tiny.toml").write_text(toml.dumps(experiment))
    return experiment


def torchrun(directory: Path, *arguments: str) -> subprocess.Popen:
    start = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.2"]
    command = [sys.executable, "-m", "torch.distributed.run", *start, "-m", "gossamer", "run", "tiny.toml", *arguments]
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join([str(directory), *sys.path])}
    return subprocess.Popen(command, cwd=directory, env=variables, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_rank_killed_under_torchrun_is_started_again_and_the_models_are_those_of_the_undisturbed_run(
    tmp_path: Path,
) -> None:
    experiment = tiny(tmp_path)
    alone = gossamer.simulate(experiment, workers=1)
    (tmp_path / "sitecustomize.py").write_text(KILLED_IN_ROUND_7)
    process = torchrun(tmp_path, "--out", "run", "--checkpoint-every", "3", "--workers", "1")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    assert (tmp_path / "killed").exists()
    assert_same(alone, gossamer.open_run(tmp_path / "run", experiment))


KILLED_IN_ROUND_7 = """
import os, signal
if os.environ.get("RANK") == "1" and not os.path.exists("killed"):
    from gossamer.simulator.simulation import Simulation
    step = Simulation.step
    def killed(self):
        if self.round == 6:
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self)
    Simulation.step = killed
"""
