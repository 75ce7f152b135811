"""The systemd unit and the image start a peer: as a user without a home, from a package that cannot be written."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foreign_user import USER, ForeignUser
from gossamer.cli.main import cli
from gossamer.data.toy import Quadratic
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.topologies import Ring
from gossamer.peers.identity import group, keys
from gossamer.peers.identity.group import Group, Member
from gossamer.peers.local.local_group import free_ports

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT, DOCKERFILE = (DEPLOY / "gossamer-peer@.service").read_text(), (DEPLOY / "Dockerfile").read_text()
NAMES = ("alice", "bob")


@pytest.fixture
def configured(foreign_user: ForeignUser) -> ForeignUser:
    """With what stands in /etc/gossamer."""
    directory = foreign_user.root / "etc"
    directory.mkdir()
    experiment = Experiment(name="small", nodes=2, rounds=4, task=Quadratic(), topology=Ring())
    (directory / "experiment.toml").write_text(toml.dumps(experiment))
    members = {
        name: Member(name, node, "127.0.0.1", port)
        for node, (name, port) in enumerate(zip(NAMES, free_ports(2), strict=True))
    }
    (directory / "peers.toml").write_text(group.dumps(Group("deployed", members)))
    keys.make(directory / "keys", list(NAMES))
    for path in (directory, *directory.rglob("*")):
        os.chown(path, USER, USER)
        path.chmod(0o755 if path.is_dir() else 0o600)
    return foreign_user


def environment(text: str) -> dict[str, str]:
    """What the unit or the image sets."""
    return dict(pair.split("=", 1) for pair in re.findall(r"^(?:Environment=|ENV )(\S+=\S+)$", text, re.MULTILINE))


def run_both(user: ForeignUser, commands: list[list[str]], known: dict[str, str]) -> list[list[dict[str, object]]]:
    """The logs of two peers that train together, and end."""
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda command: user.run(*command, **known), commands))
    assert [run.returncode for run in runs] == [0, 0], [run.stderr[-2000:] for run in runs]
    assert [json.loads(run.stdout)["rounds"] for run in runs] == [4, 4]
    return [[json.loads(line) for line in run.stderr.splitlines()] for run in runs]


def compiling(log: list[dict[str, object]]) -> list[object]:
    return [row["text"] for row in log if row["event"] == "kernels"]


@pytest.mark.slow
def test_two_instances_of_the_unit_train_together(configured: ForeignUser) -> None:
    state, cache = configured.directory("state"), configured.directory("cache")

    def here(text: str, name: str = "") -> str:
        for there, path in (("%S", state), ("%C", cache), ("/etc/gossamer", configured.root / "etc"), ("%i", name)):
            text = text.replace(there, str(path))
        return text

    known = {key: here(value) for key, value in environment(UNIT).items()}
    (line,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)", UNIT, re.MULTILINE)
    line = line.replace("\\\n", " ").replace("${GOSSAMER_METRICS}", known["GOSSAMER_METRICS"])
    program, *words = shlex.split(line)
    assert program == "/opt/gossamer/bin/gossamer"
    commands = [[sys.executable, "-m", "gossamer", *(here(word, name) for word in words)] for name in NAMES]
    logs = run_both(configured, commands, known)
    assert compiling(logs[0])[0] == "compiling kernels, once; this takes about a minute"
    events = [row["event"] for row in logs[0]]
    assert events.index("kernels") < events.index("begins")  # and so before anybody waits
    assert len({row["address"] for log in logs for row in log if row["event"] == "metrics"}) == 2
    model = state / "gossamer" / "alice" / "model.safetensors"
    assert model.stat().st_mode & 0o077 == 0
    again = run_both(configured, commands, known)  # Restart=: from its checkpoint and the cache
    assert compiling(again[0]) == []


@pytest.mark.slow
def test_the_image_has_its_kernels_and_its_entry_point_is_a_peer(configured: ForeignUser) -> None:
    known = {
        key: str(configured.directory("cache")) if value == "/var/cache/gossamer" else value
        for key, value in environment(DOCKERFILE).items()
    }
    (steps,) = re.findall(r"^USER 10001\nRUN (gossamer .*)$", DOCKERFILE, re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program = {"gossamer": [sys.executable, "-m", "gossamer"]}
    made = configured.run(*program[shlex.split(steps)[0]], *shlex.split(steps)[1:], **known)
    assert made.returncode == 0, made.stderr
    (comment,) = re.findall(r"^#       (peer .*\\\n#.*)$", DOCKERFILE, re.MULTILINE)
    words = shlex.split(comment.replace("\\\n#", " "))
    words = words[: words.index("--bind")]  # both are on this machine
    commands = []
    for name in NAMES:
        there = {
            "/etc/gossamer": str(configured.root / "etc"),
            "/state": str(configured.directory(name)),
            "alice": name,
        }
        own = [re.sub("|".join(there), lambda found: there[found[0]], word) for word in words]  # noqa: B023
        commands.append([*program[json.loads(entry)[0]], *own])
    assert [compiling(log) for log in run_both(configured, commands, known)] == [[], []]


def test_the_unit_is_valid_and_its_exposure_is_under_3(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "gossamer-peer@alice.service"
    unit.write_text(UNIT.replace("/opt/gossamer/bin/gossamer", "/bin/true"))
    for words in (["verify"], ["security", "--offline=true", "--threshold=30"]):
        done = subprocess.run(["systemd-analyze", *words, str(unit)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout[-300:] + done.stderr


def gossamer_lines(text: str) -> list[list[str]]:
    """The commands of a script, without what the shell fills in."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    lines = re.findall(r"^(?!#).*?(?:python -m gossamer|exec gossamer) (.*)$", joined, re.MULTILINE)
    return [[re.sub(r"\$\w+", "1", word) for word in shlex.split(line)] for line in lines]


@pytest.mark.parametrize("name", ["slurm/run.sbatch", "slurm/sweep.sbatch", "kubernetes/indexed-job.yaml"])
def test_the_scripts_for_clusters_give_options_that_the_program_takes(name: str) -> None:
    text = (DEPLOY / name).read_text()
    found = gossamer_lines(text)
    assert found
    for command, *rest in found:
        cli.commands[command].make_context(command, rest)
    if name.startswith("slurm"):
        subprocess.run(["bash", "-n", DEPLOY / name], check=True)


def test_the_train_job_starts_ranks_with_a_directory_of_their_own() -> None:
    text = (DEPLOY / "kubernetes" / "train-job.yaml").read_text()
    (words,) = re.findall(r"args: \[(.*)\]", text)
    minus_m, module, command, *rest = [word.strip(' "') for word in words.split(",")]
    assert (minus_m, module) == ("-m", "gossamer")
    assert cli.commands[command].make_context(command, rest).params["out"] == Path("/shared/runs/big")
