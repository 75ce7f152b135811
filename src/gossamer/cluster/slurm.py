"""The runs of a sweep as jobs of Slurm, one each, by submitit; where there is no Slurm, as processes of this machine.

A job is told the sweep's directory and the number of a run, and carries on with what it finds there. So it may be
stopped and started again by anyone: by Slurm, which requeues it when it is preempted or out of time, or here, if its
process died.
"""

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import sweep as sweeps
from gossamer.runs.sweep import Failure, PlannedRun
from gossamer.simulator.run_pool import News, OnNews, Tasks, carry_on

_SECONDS_BETWEEN_LOOKS = 1.0
_ATTEMPTS = 3  # of a job whose process dies
_TIMEOUT_MIN = 24 * 60  # unless another is given: submitit's own are five


class RunJob:
    """What a job does. submitit asks `checkpoint` what to requeue: the same, which goes on from the last checkpoint."""

    def __call__(self, out: str, number: int, workers: int, checkpoint_every: int) -> tuple[str, str]:
        """Carry a run of the sweep in a directory on; how that ended, and what is to be said of it."""
        run = list(sweeps.read(Path(out)).runs(Path(out)))[number]
        return carry_on(run, Tasks(), workers, checkpoint_every, lambda metrics: None)

    def checkpoint(self, *arguments: Any) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self, *arguments)


@dataclass
class SlurmPool:
    """Submits what there is to run, waits for it, and keeps what failed: as `simulator.run_pool.RunPool` does here."""

    out: Path
    tasks: Tasks
    failures: dict[str, Failure]
    checkpoint_every: int
    on_news: OnNews
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of submitit's executor
    seconds_between_looks: float = _SECONDS_BETWEEN_LOOKS

    def run(self, todo: Sequence[PlannedRun], jobs: int, workers: int) -> None:
        """On Slurm at most so many at a time as its settings say; elsewhere so many `jobs`."""
        executor, on_slurm = self._executor()
        workers = int(self.parameters.get("cpus_per_task", 1)) if on_slurm else workers
        directories = [run.directory for run in sweeps.read(self.out).runs(self.out)]
        numbers = {run.directory: directories.index(run.directory) for run in todo}
        waiting = deque((run, 1) for run in todo)
        running: dict[str, tuple[Any, PlannedRun, int]] = {}  # by the job's number
        try:
            while waiting or running:
                room = len(waiting) if on_slurm else jobs - len(running)
                starting = [waiting.popleft() for _ in range(min(room, len(waiting)))]
                arguments = [
                    (str(self.out), numbers[run.directory], workers, self.checkpoint_every) for run, _ in starting
                ]
                with executor.batch() if starting else nullcontext():
                    submitted = [executor.submit(RunJob(), *given) for given in arguments]
                for job, (run, attempt) in zip(submitted, starting, strict=True):
                    running[job.job_id] = job, run, attempt
                    if attempt == 1:
                        self.on_news(News(run, "started"))
                time.sleep(self.seconds_between_looks)
                for number, (job, run, attempt) in list(running.items()):
                    if job.done():
                        del running[number]
                        if self._ended(job, run, attempt):
                            waiting.append((run, attempt + 1))
        finally:
            for job, _, _ in running.values():  # Ctrl-C, or a mistake of our own
                job.cancel(check=False)

    def _executor(self) -> tuple[Any, bool]:
        try:
            import submitit
        except ImportError:
            raise ExperimentError("--slurm needs submitit; pip install 'gossamer[cluster]'") from None
        executor = submitit.AutoExecutor(folder=self.out / "jobs")
        on_slurm = executor.cluster == "slurm"
        try:
            executor.update_parameters(**{"name": "gossamer", "timeout_min": _TIMEOUT_MIN, **self.parameters})
        except (NameError, TypeError, ValueError) as error:
            raise ExperimentError(f"--slurm-set: {error}; see submitit's AutoExecutor for what it takes") from None
        return executor, on_slurm

    def _ended(self, job: Any, run: PlannedRun, attempt: int) -> bool:
        """Keep and tell how a job ended; True: its process died, and is to be tried again."""
        try:
            what, error = job.result()
        except Exception as death:  # submitit's own, with what it knows of the job
            if attempt < _ATTEMPTS:
                return True
            log = os.path.relpath(self.out / "jobs")
            what, error = "failed", f"its job died {attempt} times; see {log} ({str(death).strip().splitlines()[0]})"
        if what in ("diverged", "failed"):
            self.failures[run.directory.name] = Failure(error, final=what == "diverged")
            sweeps.write_failures(self.out, self.failures)
            self.on_news(News(run, "failed", error=error))
        else:
            self.on_news(News(run, "stopped" if what == "stopped" else "complete"))
        return False
