"""The command line. Results go to standard output; progress, messages and errors to standard error."""

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gossamer import toml
from gossamer.algorithms import ALGORITHMS
from gossamer.console import Progress, console, results_table
from gossamer.engines.block import NodeError
from gossamer.engines.workers import WorkerError
from gossamer.experiment import ExperimentError
from gossamer.partition import PARTITIONS
from gossamer.recipes import RECIPES
from gossamer.recipes.digits import dpsgd_digits, jwins_digits, random_sampling_digits
from gossamer.run import Run, StopRequest, open_run, simulate, write_report
from gossamer.run import resume as resume_run
from gossamer.tasks import TASKS
from gossamer.topologies import TOPOLOGIES

KINDS: dict[str, dict[str, Any]] = {
    "algorithms": dict(ALGORITHMS),
    "topologies": dict(TOPOLOGIES),
    "partitions": dict(PARTITIONS),
    "tasks": dict(TASKS),
    "recipes": dict(RECIPES),
}

workers_option = click.option("--workers", type=click.IntRange(min=1), help="Processes; by default one a core.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gossamer")
def cli() -> None:
    """Train one model together on many nodes: no server, few bytes."""


@cli.command()
@click.argument("experiment")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting: algorithm.budget=0.2.")
@click.option("--rounds", type=int, help="Short for --set rounds=N.")
@click.option("--seed", type=int, help="Short for --set seed=N.")
@click.option("--out", type=click.Path(path_type=Path), help="A new directory for the run; by default under runs/.")
@click.option("--checkpoint-every", type=click.IntRange(min=1), default=100, show_default=True, help="Rounds.")
@workers_option
@json_option
def run(
    experiment: str,
    settings: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    out: Path | None,
    checkpoint_every: int,
    workers: int | None,
    as_json: bool,
) -> None:
    """Run EXPERIMENT, a TOML file or the name of a recipe, in the simulator."""
    document = _document(experiment)
    for key, value in (("rounds", rounds), ("seed", seed)):
        if value is not None:
            document[key] = value
    for setting in settings:
        toml.change(document, setting)
    chosen = toml.read(document)
    out = out or _unused(Path("runs") / chosen.name)
    with Progress({chosen.name: chosen.rounds}) as progress:
        done = simulate(chosen, out, workers, checkpoint_every, progress.of(chosen.name))
    _show(done, as_json)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--checkpoint-every", type=click.IntRange(min=1), default=100, show_default=True, help="Rounds.")
@workers_option
@json_option
def resume(run: Path, checkpoint_every: int, workers: int | None, as_json: bool) -> None:
    """Continue the run in directory RUN from its last checkpoint."""
    past = open_run(run).experiment
    with Progress({past.name: past.rounds}) as progress:
        done = resume_run(run, None, workers, checkpoint_every, progress.of(past.name))
    _show(done, as_json)


@cli.command("list")
@click.argument("kind", type=click.Choice(list(KINDS)), required=False)
@json_option
def list_(kind: str | None, as_json: bool) -> None:
    """List what an experiment can be made of."""
    kinds = {kind: KINDS[kind]} if kind else KINDS
    found = {k: {name: _first_line(value) for name, value in table.items()} for k, table in kinds.items()}
    if as_json:
        rows = [{"kind": k, "name": name, "description": text} for k in found for name, text in found[k].items()]
        click.echo(json.dumps(rows))
        return
    for k, names in found.items():
        table = Table("name", "what it is", title=k, title_justify="left", title_style="bold", box=None)
        for name, text in names.items():
            table.add_row(name, text)
        console(stderr=False).print(table, end="\n\n" if len(found) > 1 else "\n")


@cli.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("experiment.toml"))
def init(path: Path) -> None:
    """Write a commented experiment to PATH (experiment.toml), to start from."""
    try:
        with path.open("x") as file:
            file.write((Path(__file__).parent / "recipes" / "experiment.toml").read_text())
    except FileExistsError:
        raise ExperimentError(f"{path} exists already; name another file") from None
    except OSError as error:
        raise ExperimentError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}; run it with: gossamer run {path}", err=True)


@cli.command()
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of each run.  [default: 150]")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each, seeds 0, 1, ...")
@click.option("--out", type=click.Path(path_type=Path), help="A new directory; by default under runs/.")
@workers_option
@json_option
def demo(rounds: int | None, seeds: int, out: Path | None, workers: int | None, as_json: bool) -> None:
    """Full sharing, random sampling and JWINS side by side, on handwritten digits."""
    experiments = [recipe() for recipe in (dpsgd_digits, random_sampling_digits, jwins_digits)]
    if rounds is not None:
        experiments = [replace(experiment, rounds=rounds) for experiment in experiments]
    out = out or _unused(Path("runs") / "demo")
    if out.exists():
        raise ExperimentError(f"{out} exists already; name a new directory")
    runs = []
    with Progress({experiment.name: experiment.rounds * seeds for experiment in experiments}) as progress:
        for experiment, seed in product(experiments, range(seeds)):
            on_round = progress.of(experiment.name, done=seed * experiment.rounds)
            directory = out / f"{experiment.name}-seed-{seed}"
            runs.append(simulate(replace(experiment, seed=seed), directory, workers, on_round=on_round))
    write_report(out / "report.html", runs, "Gossamer: three ways to share")
    if as_json:
        click.echo(json.dumps([done.result for done in runs]))
    else:
        console(stderr=False).print(results_table(runs))
    console().print(f"report: {out / 'report.html'}", soft_wrap=True)


@cli.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True, help="The page."
)
def report(runs: tuple[Path, ...], out: Path) -> None:
    """Compare RUNS, directories of runs, on one page."""
    if out.exists():
        raise ExperimentError(f"{out} exists already; name another file with --out")
    found = [open_run(path) for path in runs]
    for done in found:
        if not any("test_loss" in metrics for metrics in done.metrics):
            raise ExperimentError(f"{done.directory} has no evaluated round yet; continue it with gossamer resume")
    write_report(out, found, " and ".join(dict.fromkeys(done.experiment.name for done in found)))
    console(stderr=False).print(results_table(found))
    console().print(f"report: {out}", soft_wrap=True)


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2."""
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ExperimentError as error:
        sys.exit(_say(str(error), 2))
    except (NodeError, WorkerError) as error:
        sys.exit(_say(str(error), 1))
    except OSError as error:
        sys.exit(_say(f"{error.filename or 'a file'}: {error.strerror or error}", 1))
    except StopRequest as request:
        sys.exit(_say(f"{request}; continue with: gossamer resume {request.run.directory}", 130))
    except (KeyboardInterrupt, click.Abort):
        sys.exit(_say("stopped; what the last checkpoint holds can be continued with: gossamer resume RUN", 130))


def _say(sentence: str, code: int) -> int:
    click.echo(f"gossamer: {sentence}", err=True)
    return code


def _document(experiment: str) -> dict[str, Any]:
    if experiment in RECIPES:
        return toml.write(RECIPES[experiment]())
    if Path(experiment).is_file():
        return toml.load(Path(experiment))
    raise ExperimentError(f"{experiment} is neither a file nor a recipe; the recipes are {', '.join(RECIPES)}")


def _unused(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _show(done: Run, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(done.result))
    else:
        console(stderr=False).print(results_table([done]))
    console().print(f"kept in {done.directory}", soft_wrap=True)


def _first_line(value: Any) -> str:
    return (value.__doc__ or "").strip().splitlines()[0]
