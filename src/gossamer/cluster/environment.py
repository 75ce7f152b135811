"""Which rank this process is, as torchrun or Slurm's srun say it in the environment."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.experiments.experiment import ExperimentError


@dataclass(frozen=True)
class Environment:
    """A rank's place, and where ranks meet."""

    rank: int
    number: int  # of ranks
    method: str  # where they meet, as torch.distributed names it
    attempt: int = 0  # how often the ranks were started before, and one failed
    loopback: bool = False  # are all ranks on this machine, and only to be reached from it?
    local: int = 1  # ranks on this machine, among which its cores are divided

    @property
    def where(self) -> str:
        """For people."""
        return self.method.removeprefix("tcp://").removeprefix("file://")

    def set_interface(self) -> None:
        """Let gloo listen where it should; by default it does at the address of the machine's name."""
        if self.loopback:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")


def detect(variables: Mapping[str, str] = os.environ) -> Environment | None:
    """This process's place among the ranks that torchrun or srun started; None if it is not one of several."""
    local = 1
    if "WORLD_SIZE" in variables and "RANK" in variables:
        number = _number(variables, "WORLD_SIZE")
        local = _number(variables, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in variables else 1
        attempt = "TORCHELASTIC_RESTART_COUNT"
        if "MASTER_ADDR" not in variables or "MASTER_PORT" not in variables:
            raise ExperimentError(
                "RANK and WORLD_SIZE are set, MASTER_ADDR and MASTER_PORT are not; start with torchrun, or set all"
            )
        rank, method = _number(variables, "RANK"), "env://"
    elif "SLURM_STEP_NUM_TASKS" in variables and "SLURM_PROCID" in variables:  # in a step of srun, not in the script
        number, rank = _number(variables, "SLURM_STEP_NUM_TASKS"), _number(variables, "SLURM_PROCID")
        attempt = "SLURM_RESTART_COUNT"
        host = variables.get("MASTER_ADDR") or first_host(variables.get("SLURM_STEP_NODELIST", ""))
        port = variables.get("MASTER_PORT") or 20_000 + _number(variables, "SLURM_JOB_ID") % 10_000
        method = f"tcp://{host}:{port}"
    else:
        return None
    if not 0 <= rank < number:
        raise ExperimentError(f"rank {rank} of {number} was given; ranks are 0 to {number - 1}")
    restarts = _number(variables, attempt) if attempt in variables else 0
    return Environment(rank, number, method, restarts, local=max(1, local)) if number > 1 else None


def first_host(hosts: str) -> str:
    """The first of Slurm's list of hosts, such as node[03-05,9],other."""
    found = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\])?([^,\[]*)", hosts)
    if found is None:
        raise ExperimentError(f"SLURM_STEP_NODELIST is {hosts!r}, which names no host; set MASTER_ADDR")
    return "".join(part or "" for part in found.groups())


def _number(variables: Mapping[str, str], name: str) -> int:
    given = variables.get(name, "")
    if not given.isdecimal():
        raise ExperimentError(f"{name} must be a whole number, {given!r} is set")
    return int(given)
