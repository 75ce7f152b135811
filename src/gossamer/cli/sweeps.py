"""The commands that run and compare many settings: sweep, compare."""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.completion import complete_experiment
from gossamer.cli.options import (
    PATH,
    Mistake,
    checkpoint_option,
    data_option,
    document,
    examples,
    experiment_of,
    experiment_options,
    jobs_option,
    json_option,
    look_for_data_in,
    say,
    unused,
)

if TYPE_CHECKING:
    from gossamer.cli.console import SweepProgress
    from gossamer.experiments.experiment import Experiment
    from gossamer.runs.comparison import Comparison
    from gossamer.runs.sweep import Sweep


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How many seeds, how many runs at a time, and where the table goes."""
    for option in (
        json_option,
        click.option("--parquet", type=PATH, help="Write the table to a new Parquet file."),
        click.option("--latex", type=PATH, help="Write the table to a new LaTeX file, for booktabs."),
        click.option("--csv", type=PATH, help="Write the table to a new CSV file."),
        data_option,
        checkpoint_option,
        jobs_option,
        click.option("--baseline", multiple=True, help="What others are compared with: a name, or KEY=VALUE."),
        click.option(
            "--seeds", type=click.IntRange(min=1), help="Runs of each setting, with seeds in a row.  [default: 1]"
        ),
    ):
        command = option(command)
    return command


@click.command(
    epilog=examples(
        "gossamer sweep jwins-digits --grid algorithm.budget=0.1,0.2,0.37 --seeds 5",
        "gossamer sweep digits.toml --grid algorithm.name=jwins,silk --out runs/two",
        "gossamer sweep runs/two",
        "gossamer sweep jwins-digits --seeds 100 --slurm --slurm-set timeout_min=60 --slurm-set cpus_per_task=4",
    )
)
@click.argument("base", shell_complete=complete_experiment)
@click.option("--grid", "grids", multiple=True, metavar="KEY=VALUE,VALUE,...", help="Values to try of a setting.")
@experiment_options
@click.option("--skip-invalid", is_flag=True, help="Leave out combinations that cannot work.")
@click.option("--slurm", is_flag=True, help="Run it as jobs of Slurm, one per run; without Slurm, on this machine.")
@click.option(
    "--slurm-set", multiple=True, metavar="KEY=VALUE", help="Of these jobs: timeout_min=60, slurm_partition=cpu."
)
@click.option("--out", type=PATH, help="A directory, new or of the same sweep; by default a new one under runs/.")
@table_options
def sweep(
    base: str,
    grids: tuple[str, ...],
    settings: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    skip_invalid: bool,
    slurm: bool,
    slurm_set: tuple[str, ...],
    out: Path | None,
    seeds: int | None,
    baseline: tuple[str, ...],
    jobs: int | None,
    checkpoint_every: int,
    data: str | None,
    csv: Path | None,
    latex: Path | None,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Run every combination of settings with several seeds, and compare them.

    BASE is a recipe, an experiment file or a sweep file; or a sweep's directory, to carry it on.
    """
    from gossamer.runs.sweep import is_sweep
    from gossamer.simulator.sweep import carry_out

    _check_files(csv, latex, parquet)
    look_for_data_in(data)
    pool = _pool(slurm, slurm_set)
    begun = Path(base)
    if is_sweep(begun):
        if grids or settings or out is not None or (rounds, seed) != (None, None):
            raise Mistake(
                f"{base} is a sweep that was begun; with it go --seeds, --baseline and --jobs, no new settings"
            )
        plan, out = _more_seeds(begun, seeds, baseline), begun
    elif begun.is_dir():
        raise Mistake(f"{base} is a directory, but not of a sweep: it has no sweep.toml; give a recipe or a file")
    else:
        plan = _plan(base, grids, settings, {"rounds": rounds, "seed": seed}, seeds, baseline, skip_invalid)
        out = out or unused(Path("runs") / f"sweep-{next(iter(plan.settings.values())).name}")
    with showing_progress(f"continue with: gossamer sweep {shlex.quote(str(out))}") as progress:
        done = carry_out(plan, out, jobs, checkpoint_every, skip_invalid, progress.tell, pool)
    _show(done, csv, latex, parquet, as_json)


def _pool(slurm: bool, settings: tuple[str, ...]) -> Any:
    """Where the runs of a sweep are carried out."""
    from gossamer.cluster.slurm import SlurmPool
    from gossamer.simulator.run_pool import RunPool

    parameters: dict[str, int | str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not key or not equals or not value:
            raise Mistake(f"--slurm-set {setting}: write KEY=VALUE, such as timeout_min=60")
        parameters[key] = int(value) if value.isdecimal() else value
    if parameters and not slurm:
        raise Mistake("--slurm-set is for jobs of Slurm; give --slurm, too")
    return partial(SlurmPool, parameters=parameters) if slurm else RunPool


def _plan(
    base: str,
    grids: tuple[str, ...],
    settings: tuple[str, ...],
    changes: dict[str, int | None],
    seeds: int | None,
    baseline: tuple[str, ...],
    skip_invalid: bool,
) -> "Sweep":
    """What the options and a sweep file say."""
    from gossamer.experiments import grid, sweep_file, toml
    from gossamer.simulator.sweep import planned

    axes: list[grid.Axes] = [dict(map(grid.parse, grids))] if grids else []
    if len(axes) and len(axes[0]) < len(grids):
        raise Mistake("--grid was given twice for one key; write all of its values behind one")
    path = Path(base)
    if path.is_file() and sweep_file.is_sweep_file(toml.load(path)):
        if grids:
            raise Mistake(f"{base} is a sweep file, which has its own grid; leave --grid out")
        file = sweep_file.load(path)
        beside = path.parent / file.base
        described = document(str(beside) if beside.is_file() else file.base)
        file.apply_settings(described)
        axes, wanted, of_each = file.grids, baseline or file.baseline, seeds or file.seeds
    else:
        described, wanted, of_each = document(base), baseline, seeds or 1
    described |= {key: value for key, value in changes.items() if value is not None}
    for setting in settings:
        toml.change(described, setting)
    return planned(grid.experiments(described, axes, skip_invalid), of_each, wanted)


def _more_seeds(directory: Path, seeds: int | None, baseline: tuple[str, ...]) -> "Sweep":
    """The sweep that was begun in a directory, perhaps with more seeds, or another baseline."""
    from dataclasses import replace

    from gossamer.runs.comparison import choose_baseline
    from gossamer.runs.sweep import read

    plan = read(directory)
    if seeds is not None:
        plan = replace(plan, seeds=tuple(range(plan.seeds[0], plan.seeds[0] + seeds)))
    return replace(plan, baseline=choose_baseline(plan.documents(), baseline)) if baseline else plan


@click.command(
    epilog=examples(
        "gossamer compare runs/first runs/second --target 0.85", "gossamer compare jwins-digits silk-digits"
    )
)
@click.argument("sources", nargs=-1, required=True)
@experiment_options
@click.option("--target", type=float, help="What the metric is to reach; by default the last one of the worst.")
@click.option("--out", type=PATH, help="A directory for what is not run yet; by default a new one under runs/.")
@table_options
def compare(
    sources: tuple[str, ...],
    settings: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    target: float | None,
    out: Path | None,
    seeds: int | None,
    baseline: tuple[str, ...],
    jobs: int | None,
    checkpoint_every: int,
    data: str | None,
    csv: Path | None,
    latex: Path | None,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Compare SOURCES: directories of complete runs or sweeps; and recipes or experiment files, which are run first."""
    from gossamer.simulator import compare as comparing

    _check_files(csv, latex, parquet)
    look_for_data_in(data)
    found: list[Experiment | Path] = [
        Path(source) if os.path.isdir(source) else experiment_of(source, settings, rounds=rounds, seed=seed)
        for source in sources
    ]
    names = [source.name for source in found if not isinstance(source, Path)]
    if not names and (settings or (rounds, seed, seeds, out) != (None, None, None, None)):
        raise Mistake("all of these were run; --set, --rounds, --seed, --seeds and --out are for what is run first")
    out = out or unused(Path("runs") / f"compare-{'-'.join(names)}"[:100])
    with showing_progress(f"continue with: gossamer sweep {shlex.quote(str(out))}") as progress:
        done = comparing.compare(
            *found,
            out=out,
            seeds=seeds or 1,
            baseline=baseline,
            target=target,
            jobs=jobs,
            checkpoint_every=checkpoint_every,
            on_news=progress.tell,
        )
    _show(done, csv, latex, parquet, as_json)


def _check_files(csv: Path | None, latex: Path | None, parquet: Path | None) -> None:
    """Before anything runs."""
    from gossamer.runs.tables import need_parquet

    for option, path in (("--csv", csv), ("--latex", latex), ("--parquet", parquet)):
        if path is not None and path.exists():
            raise Mistake(f"{option} {path} exists already; name another file")
        if path is not None and not path.absolute().parent.is_dir():
            raise Mistake(f"{option} {path}: there is no directory {path.parent}; make it, or name another file")
    if parquet is not None:
        need_parquet()


@contextmanager
def showing_progress(advice: str) -> Iterator["SweepProgress"]:
    """Of runs side by side; after Ctrl-C it is told how far they got, and the advice."""
    from gossamer.cli.console import SweepProgress

    with SweepProgress() as progress:
        try:
            yield progress
        except KeyboardInterrupt:
            if not progress.total:
                raise
            progress.close()
            say(f"stopped; {progress.summary}; {advice}")
            raise SystemExit(130) from None


def _show(done: "Comparison", csv: Path | None, latex: Path | None, parquet: Path | None, as_json: bool) -> None:
    from gossamer.cli.console import comparison_tables, console, print_result

    for path, write in ((csv, done.write_csv), (latex, done.write_latex), (parquet, done.write_parquet)):
        if path is not None:
            write(path)
    if as_json:
        print_result(json.dumps(done.document()))
    else:
        for table in comparison_tables(done):
            print_result(table)
    if done.directory is not None:
        console().print(f"kept in {done.directory}; report: {done.directory / 'report.html'}", soft_wrap=True)
    for name, error in done.failures.items():
        say(f"{name} failed: {error.strip().splitlines()[-1]}")
    if done.failures:
        raise SystemExit(1)
