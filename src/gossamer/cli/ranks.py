"""Where a command's work is done: in this process, in one of the ranks that torchrun or srun started, or in ranks that
are started here."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.options import Mistake, say

if TYPE_CHECKING:
    from gossamer.cluster.environment import Environment
    from gossamer.core import Task
    from gossamer.experiments.experiment import Experiment
    from gossamer.simulator.ranks import Ranks


@dataclass(frozen=True)
class RankOptions:
    """How many ranks, and how they work together."""

    ranks: int  # to be started here; 1: none
    placement: str
    timeout: float
    environment: "Environment | None"  # if this process was started as a rank

    @classmethod
    def of(
        cls, ranks: int | None, placement: str, timeout: float, scratch: Path | None, needs_out: bool = False
    ) -> "RankOptions":
        from gossamer.cluster.environment import detect

        environment = detect()
        if environment is not None and ranks is not None:
            raise Mistake(
                f"--ranks {ranks} was given to one of {environment.number} ranks that are started already; leave it out"
            )
        if environment is not None and needs_out:
            raise Mistake(
                "give ranks a directory that all of them see, and find again after a restart: --out DIRECTORY"
            )
        if scratch is not None and (environment is not None or (ranks or 1) > 1):
            raise Mistake("--scratch is for one process; take more ranks, and each has less to keep in memory")
        return cls(ranks or 1, placement, timeout, environment)

    @property
    def is_first(self) -> bool:
        return self.environment is None or self.environment.rank == 0

    @property
    def restarted(self) -> bool:
        """Have the ranks been started again, after one failed?"""
        return self.environment is not None and self.environment.attempt > 0


@dataclass(frozen=True)
class Start:
    """What work begins with."""

    ranks: "Ranks | None" = None
    task: "Task | None" = None  # if it is loaded
    local: int = 1  # ranks on this machine

    @property
    def is_first(self) -> bool:
        return self.ranks is None or self.ranks.rank == 0

    def workers(self, given: int | None) -> int | None:
        """Of this process: its share of the cores, if none are given."""
        from gossamer.simulator import simulation

        return given if given is not None or self.local == 1 else max(1, simulation.default_workers() // self.local)


def in_ranks(
    options: RankOptions, experiment: "Experiment | None", work: Callable[[Start], None], directory: Path
) -> None:
    """Do the work here, as one of the ranks that were started, or in ranks of our own."""
    from gossamer.cluster.group import RankGroup

    if options.environment is not None:
        with RankGroup(options.environment, options.timeout, options.placement) as group:
            work(Start(group, local=options.environment.local))
    elif options.ranks == 1:
        work(Start())
    else:
        _start_ranks(options, experiment, work, directory)


def _start_ranks(
    options: RankOptions, experiment: "Experiment | None", work: Callable[[Start], None], directory: Path
) -> None:
    import torch

    from gossamer.cli.main import explain
    from gossamer.cluster.environment import Environment
    from gossamer.cluster.group import RankGroup
    from gossamer.cluster.launch import HUNG, launch
    from gossamer.experiments.experiment import ExperimentError
    from gossamer.simulator.ranks import ELSEWHERE

    if experiment is not None and options.ranks > experiment.nodes:
        raise ExperimentError(
            f"{options.ranks} ranks were given, and there are {experiment.nodes} nodes; "
            f"take at most {experiment.nodes} ranks"
        )
    torch.set_num_threads(1)  # copies of a process with threads do not work
    task = None if experiment is None else experiment.load_task()  # once for all ranks, which are copies

    def become(environment: Environment) -> int:
        group = RankGroup(environment, options.timeout, options.placement)
        try:
            with group:
                work(Start(group, task, local=options.ranks))
            return 0
        except KeyboardInterrupt:
            return 130
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 1
        except Exception as error:
            if isinstance(error, ExperimentError) and environment.rank and not group.was_met:
                error.add_note(ELSEWHERE)  # before ranks meet they are copies, so all find the same mistake
            return explain(error)

    failed = launch(options.ranks, become)
    for rank, code in failed.items():
        if code < 0 or code == HUNG:
            told = f"gossamer resume {shlex.quote(str(directory))} --ranks {options.ranks}"
            what = "did not end and was killed" if code == HUNG else f"died of signal {-code}"
            say(f"rank {rank} {what}; continue with: {told}")
    if failed:
        raise SystemExit(max(1 if code < 0 or code == HUNG else code for code in failed.values()))
