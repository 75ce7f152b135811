"""The command line. Results go to standard output; progress, messages and errors to standard error.

Commands import what they need when they run: torch takes seconds, and `--help` needs none of it.
"""

import json
import os
import shlex
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer import __version__
from gossamer.cli import peers as peer_commands
from gossamer.cli.cost import cost
from gossamer.cli.data import data as data_command
from gossamer.cli.experiments import document, unused

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gossamer.runs.run import Run

KINDS = ["algorithms", "topologies", "partitions", "tasks", "recipes", "compressors", "transforms", "models"]

workers_option = click.option("--workers", type=click.IntRange(min=1), help="Processes; by default one a core.")
scratch_option = click.option(
    "--scratch", type=click.Path(path_type=Path), help="Keep models in files of this directory, not in memory."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
data_option = click.option("--data", help="The directory with data sets; by default what GOSSAMER_DATA names.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gossamer")
def cli() -> None:
    """Train one model together on many nodes: no server, few bytes."""


cli.add_command(cost)


@cli.command()
@click.argument("experiment")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting: algorithm.budget=0.2.")
@click.option("--rounds", type=int, help="Short for --set rounds=N.")
@click.option("--seed", type=int, help="Short for --set seed=N.")
@click.option("--out", type=click.Path(path_type=Path), help="A new directory for the run; by default under runs/.")
@click.option("--checkpoint-every", type=click.IntRange(min=1), default=100, show_default=True, help="Rounds.")
@data_option
@workers_option
@scratch_option
@json_option
def run(
    experiment: str,
    settings: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    out: Path | None,
    checkpoint_every: int,
    data: str | None,
    workers: int | None,
    scratch: Path | None,
    as_json: bool,
) -> None:
    """Run EXPERIMENT, a TOML file or the name of a recipe, in the simulator."""
    from gossamer.cli.console import Progress
    from gossamer.experiments import toml
    from gossamer.simulator.simulate import simulate

    _look_for_data_in(data)
    described = document(experiment)
    for key, value in (("rounds", rounds), ("seed", seed)):
        if value is not None:
            described[key] = value
    for setting in settings:
        toml.change(described, setting)
    chosen = toml.read(described)
    out = out or unused(Path("runs") / chosen.name)
    with Progress({chosen.name: chosen.rounds}) as progress:
        done = simulate(chosen, out, workers, checkpoint_every, progress.of(chosen.name), scratch)
    _show(done, as_json)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--checkpoint-every", type=click.IntRange(min=1), default=100, show_default=True, help="Rounds.")
@data_option
@workers_option
@scratch_option
@json_option
def resume(
    run: Path, checkpoint_every: int, data: str | None, workers: int | None, scratch: Path | None, as_json: bool
) -> None:
    """Continue the run in directory RUN from its last checkpoint."""
    from gossamer.cli.console import Progress
    from gossamer.runs.run import open_run
    from gossamer.simulator.simulate import resume as resume_run

    _look_for_data_in(data)
    past = open_run(run).document
    with Progress({past["name"]: past["rounds"]}) as progress:
        done = resume_run(run, None, workers, checkpoint_every, progress.of(past["name"]), scratch)
    _show(done, as_json)


@cli.command("list")
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
def list_(kind: str | None, as_json: bool) -> None:
    """List what an experiment can be made of."""
    from rich.console import Group
    from rich.table import Table

    from gossamer.algorithms import ALGORITHMS
    from gossamer.algorithms.catalogue import entry
    from gossamer.compressors import COMPRESSORS
    from gossamer.data import TASKS
    from gossamer.data.partition import PARTITIONS
    from gossamer.experiments.recipes import RECIPES
    from gossamer.graphs.topologies import TOPOLOGIES
    from gossamer.models import MODELS
    from gossamer.transforms import TRANSFORMS

    all_tables = ALGORITHMS, TOPOLOGIES, PARTITIONS, TASKS, RECIPES, COMPRESSORS, TRANSFORMS, MODELS
    tables: list[dict[str, Any]] = [dict(table) for table in all_tables]
    rows: list[dict[str, Any]] = []
    for k, table in zip(KINDS, tables, strict=True):
        for name, value in table.items() if kind in (None, k) else ():
            row = {"kind": k, "name": name, "description": (value.__doc__ or "").strip().splitlines()[0]}
            rows.append(row | entry(name)._asdict() if k == "algorithms" else row)
    if as_json:
        _out(json.dumps(rows))
        return
    sections: list[RenderableType] = []
    for k in dict.fromkeys(row["kind"] for row in rows):
        detailed = k == kind == "algorithms"
        columns = ("name", "what it is", *(("paper", "needs", "memory", "sends") if detailed else ()))
        shown = Table(*columns, title=k, title_justify="left", title_style="bold", box=None)
        for row in (row for row in rows if row["kind"] == k):
            more = (
                [row["paper"], _joined(row["needs"]), _copies(row["memory"]), "; ".join(row["sends"])]
                if detailed
                else []
            )
            shown.add_row(row["name"], row["description"], *more)
        sections += [shown] if not sections else ["", shown]
    _out(Group(*sections))


def _joined(words: list[str]) -> str:
    return ", ".join(word.replace("_", " ") for word in words)


def _copies(memory: float | None) -> str:
    return "" if memory is None else f"{memory:.0f} model{'s' * (memory != 1)}"


@cli.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("experiment.toml"))
def init(path: Path) -> None:
    """Write a commented experiment to PATH (experiment.toml), to start from."""
    try:
        with path.open("xb") as file:
            file.write((Path(__file__).parents[1] / "experiments" / "recipes" / "experiment.toml").read_bytes())
    except FileExistsError:
        raise Mistake(f"{path} exists already; name another file") from None
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror}; name another file") from None
    click.echo(f"wrote {path}; run it with: gossamer run {path}", err=True)


@cli.command()
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of each run.  [default: 150]")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each, seeds 0, 1, ...")
@click.option("--out", type=click.Path(path_type=Path), help="A new directory; by default under runs/.")
@workers_option
@json_option
def demo(rounds: int | None, seeds: int, out: Path | None, workers: int | None, as_json: bool) -> None:
    """Full sharing, random sampling and JWINS side by side, on handwritten digits."""
    from gossamer.cli.console import Progress, console, results_table
    from gossamer.experiments.experiment import named
    from gossamer.experiments.recipes.digits import dpsgd_digits, jwins_digits, random_sampling_digits
    from gossamer.runs.run import write_report
    from gossamer.simulator.simulate import simulate

    experiments = [recipe() for recipe in (dpsgd_digits, random_sampling_digits, jwins_digits)]
    if rounds is not None:
        experiments = [replace(experiment, rounds=rounds) for experiment in experiments]
    out = out or unused(Path("runs") / "demo")
    if os.path.exists(out):
        raise Mistake(f"{out} exists already; name a new directory")
    runs = []
    with Progress({named(experiment.algorithm): experiment.rounds * seeds for experiment in experiments}) as progress:
        for experiment, seed in product(experiments, range(seeds)):
            which = f"seed {seed + 1}/{seeds}" if seeds > 1 else ""
            on_round = progress.of(named(experiment.algorithm), seed * experiment.rounds, which)
            directory = out / f"{experiment.name}-seed-{seed}"
            runs.append(simulate(replace(experiment, seed=seed), directory, workers, on_round=on_round))
    write_report(out / "report.html", runs, "Gossamer: three ways to share")
    _out(json.dumps([done.result for done in runs]) if as_json else results_table(runs))
    console().print(f"report: {out / 'report.html'}", soft_wrap=True)


@cli.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True, help="The page."
)
def report(runs: tuple[Path, ...], out: Path) -> None:
    """Compare RUNS, directories of runs, on one page."""
    from gossamer.cli.console import console, results_table
    from gossamer.runs.run import open_run, write_report

    if os.path.exists(out):
        raise Mistake(f"{out} exists already; name another file with --out")
    found = [open_run(path) for path in runs]
    for done in found:
        if not any("test_loss" in metrics for metrics in done.metrics):
            raise Mistake(f"{done.directory} has no evaluated round yet; continue it with gossamer resume")
    try:
        write_report(out, found, " and ".join(dict.fromkeys(done.document["name"] for done in found)))
    except OSError as error:
        raise Mistake(f"{out} cannot be written: {error.strerror}; name another file with --out") from None
    _out(results_table(found))
    console().print(f"report: {out}", soft_wrap=True)


cli.add_command(data_command)
for command in (peer_commands.keys, peer_commands.peer, peer_commands.up):
    cli.add_command(command)


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2."""
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(_say("stopped; a run that had begun can be continued with: gossamer resume RUN", 130))
    except Exception as error:
        sys.exit(_explain(error))


def _explain(error: Exception) -> int:
    """Say what went wrong, if it is nobody's programming mistake; the exit code."""
    from gossamer.experiments.experiment import ExperimentError
    from gossamer.simulator.simulate import StopRequest
    from gossamer.simulator.worker_pool import WorkerError
    from gossamer.training.block import NodeError

    if isinstance(error, ExperimentError):
        return _say(str(error), 2)
    if isinstance(error, NodeError | WorkerError):
        return _say(str(error), 1)
    if isinstance(error, OSError):
        return _say(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    if isinstance(error, StopRequest):
        return _say(f"{error}; continue with: gossamer resume {shlex.quote(str(error.run.directory))}", 130)
    raise error


class Mistake(click.ClickException):
    """A user's mistake, told without the usage that click adds."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        _say(self.message, self.exit_code)


def _say(sentence: str, code: int) -> int:
    click.echo(f"gossamer: {sentence}", err=True)
    return code


def _out(what: "RenderableType") -> None:
    from gossamer.cli.console import print_result

    print_result(what)


def _look_for_data_in(directory: str | None) -> None:
    if directory is not None:
        os.environ["GOSSAMER_DATA"] = directory  # where the tasks look; see gossamer.data.sources


def _show(done: "Run", as_json: bool) -> None:
    from gossamer.cli.console import console, results_table

    _out(json.dumps(done.result) if as_json else results_table([done]))
    console().print(f"kept in {done.directory}", soft_wrap=True)
