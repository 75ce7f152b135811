"""Compare what was run, and what is to be run first."""

import os
from collections.abc import Sequence
from pathlib import Path

from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.runs import sweep as sweeps
from gossamer.runs.comparison import Comparison, check_target, choose_baseline, compared
from gossamer.runs.run import Run, labels, open_run
from gossamer.simulator.run_pool import OnNews
from gossamer.simulator.sweep import sweep

Source = Experiment | Run | str | os.PathLike[str]


def compare(
    *sources: Source,
    out: str | os.PathLike[str] | None = None,
    seeds: int | Sequence[int] = 1,
    baseline: str | Sequence[str] = (),
    target: float | None = None,
    jobs: int | None = None,
    checkpoint_every: int = 100,
    on_news: OnNews | None = None,
) -> Comparison:
    """Compare complete runs, directories of runs or sweeps, and experiments, which are run first, as a sweep in `out`.

    Runs of one experiment with several seeds are one setting. `baseline` is a setting's name, or a value as in
    "algorithm.name=dpsgd"; by default the first. `target` is what the metric is to reach, by default the last one of
    the worst setting.
    """
    experiments = [source.with_digests() for source in sources if isinstance(source, Experiment)]
    groups = _groups([found for source in sources for found in _settings(source)])
    chosen = choose_baseline({name: runs[0].document for name, runs in groups.items()}, baseline)
    if not experiments:
        return compared(groups, chosen, "worst" if target is None else target)
    if out is None:
        raise ExperimentError("experiments that are to be run need a directory; give it as out")
    if target is not None and not 0 <= target <= 1:  # perhaps a mistake, which is better told now
        check_target(target, experiments[0].load_task().metric)
    done = sweep(experiments, out, seeds, (), jobs, checkpoint_every, on_news=on_news)
    complete = {
        name: _by_seed([run for run in runs if run.metrics] + [run for run in done.runs if _same_setting(run, runs[0])])
        for name, runs in groups.items()
    }
    groups = {name: runs for name, runs in complete.items() if runs}
    return compared(groups, chosen, "worst" if target is None else target, done.failures, Path(out))


def _settings(source: Source) -> list[tuple[str | None, list[Run]]]:
    """The runs of each setting, and what it is called if it has a name; of an experiment one that has not begun."""
    if isinstance(source, Experiment):
        return [(None, [Run(source.with_digests())])]
    if isinstance(source, Run):
        return [(None, [_complete(source)])]
    directory = Path(source)
    if not sweeps.is_sweep(directory):
        return [(None, [_complete(open_run(directory))])]
    groups = sweeps.complete_runs(directory)
    if not groups:
        raise ExperimentError(f"{directory} has no complete run yet; carry it on with gossamer sweep {directory}")
    return list(groups.items())


def _complete(run: Run) -> Run:
    where = run.directory or run.document["name"]
    if run.peer is not None:
        raise ExperimentError(f"{where} is of a peer, which knows one node only; gossamer report shows it")
    run.check_rounds("a comparison")
    return run


def _groups(found: Sequence[tuple[str | None, list[Run]]]) -> dict[str, list[Run]]:
    """The runs of one experiment together, under a name that no other has."""
    groups: list[tuple[str | None, list[Run]]] = []
    for name, runs in found:
        same = next((group for _, group in groups if _same_setting(group[0], runs[0])), None)
        if same is not None:
            same += runs
        else:
            groups.append((name, list(runs)))
    for _, group in groups:
        seeds = [run.document["seed"] for run in group]
        if len({*seeds}) < len(seeds):
            raise ExperimentError(f"{group[0].document['name']} was given twice with one seed; give each run once")
    if not groups:
        raise ExperimentError("there is nothing to compare; give experiments, or directories of complete runs")
    names = [name for name, _ in groups]
    if None in names or len({*names}) < len(names):
        names = list(sweeps.distinct(labels([group[0] for _, group in groups])))
    return {str(name): group for name, (_, group) in zip(names, groups, strict=True)}


def _by_seed(runs: Sequence[Run]) -> list[Run]:
    """One per seed, the first."""
    return list({run.document["seed"]: run for run in reversed(runs)}.values())[::-1]


def _same_setting(one: Run, other: Run) -> bool:
    return not toml.differences(one.document | {"seed": 0}, other.document | {"seed": 0})
