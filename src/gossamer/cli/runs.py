"""The commands of runs in the simulator: run, resume, settle, report, export, demo."""

import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from gossamer.cli.options import (
    PATH,
    Mistake,
    checkpoint_option,
    data_option,
    experiment_of,
    experiment_options,
    json_option,
    look_for_data_in,
    scratch_option,
    unused,
    workers_option,
)

if TYPE_CHECKING:
    from gossamer.runs.run import Run


@click.command()
@click.argument("experiment")
@experiment_options
@click.option("--out", type=PATH, help="A new directory for the run; by default under runs/.")
@checkpoint_option
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
    from gossamer.cli.console import Progress, console
    from gossamer.experiments.auto import choose
    from gossamer.simulator.simulate import simulate

    look_for_data_in(data)
    chosen = choose(experiment_of(experiment, settings, rounds=rounds, seed=seed))
    if chosen.note:
        console().print(chosen.note, soft_wrap=True)
    out = out or unused(Path("runs") / chosen.name)
    with Progress({chosen.name: chosen.rounds}) as progress:
        done = simulate(chosen, out, workers, checkpoint_every, progress.of(chosen.name), scratch)
    _show(done, as_json)


@click.command()
@click.argument("run", type=PATH)
@checkpoint_option
@data_option
@workers_option
@scratch_option
@json_option
def resume(
    run: Path, checkpoint_every: int, data: str | None, workers: int | None, scratch: Path | None, as_json: bool
) -> None:
    """Continue the run in directory RUN from its last checkpoint."""
    from gossamer.cli.console import Progress
    from gossamer.runs.files import read_document
    from gossamer.simulator.simulate import resume as resume_run

    look_for_data_in(data)
    past = read_document(run)
    with Progress({past["name"]: past["rounds"]}) as progress:
        done = resume_run(run, None, workers, checkpoint_every, progress.of(past["name"]), scratch)
    _show(done, as_json)


@click.command()
@click.argument("run", type=PATH)
@click.option("--rounds", type=click.IntRange(min=1), default=8, show_default=True, help="Without training.")
@click.option("--out", type=PATH, help="A new directory; by default RUN-settled.")
@data_option
@workers_option
@json_option
def settle(run: Path, rounds: int, out: Path | None, data: str | None, workers: int | None, as_json: bool) -> None:
    """Let the models of the complete run in directory RUN settle: exchange without training."""
    from gossamer.cli.console import Progress
    from gossamer.runs.files import read_document
    from gossamer.simulator.simulate import settle as settle_run

    look_for_data_in(data)
    past = read_document(run)
    out = out or unused(run.with_name(f"{run.resolve().name}-settled"))
    with Progress({past["name"]: past["rounds"] + rounds}) as progress:
        done = settle_run(run, out, rounds, None, workers, progress.of(past["name"]))
    _show(done, as_json)


def _show(done: "Run", as_json: bool) -> None:
    from gossamer.cli.console import console, print_result, results_table

    print_result(json.dumps(done.result) if as_json else results_table([done]))
    console().print(f"kept in {done.directory}", soft_wrap=True)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--out", type=PATH, default=Path("report.html"), show_default=True, help="The page.")
def report(runs: tuple[Path, ...], out: Path) -> None:
    """Compare RUNS, directories of runs, of peers, or of `gossamer up`, on one page."""
    from gossamer.cli.console import console, print_result, results_table
    from gossamer.runs.peer_metrics import directories
    from gossamer.runs.run import open_run, write_report

    if os.path.exists(out):
        raise Mistake(f"{out} exists already; name another file with --out")
    found = [open_run(directory) for path in runs for directory in directories(path)]
    for done in found:
        if not any("test_loss" in metrics for metrics in done.metrics):
            raise Mistake(f"{done.directory} has no evaluated round yet; let it run on, or continue it")
    try:
        write_report(out, found)
    except OSError as error:
        raise Mistake(f"{out} cannot be written: {error.strerror}; name another file with --out") from None
    print_result(results_table(found))
    console().print(f"report: {out}", soft_wrap=True)


def _node(context: click.Context, option: click.Parameter, given: str | None) -> int | Literal["mean"] | None:
    if given is None or given == "mean":
        return given  # type: ignore[return-value]
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise Mistake(f"--node {given}: take mean, or the number of a node, from 0")
    return int(given)


@click.command()
@click.argument("run", type=PATH)
@click.option("--node", callback=_node, help="A node's number, or mean.  [default: mean; of a peer, its own]")
@click.option("--out", type=PATH, default=Path("model.safetensors"), show_default=True, help="A new file.")
@data_option
def export(run: Path, node: Any, out: Path, data: str | None) -> None:
    """Write the weights of a node of RUN, a run's or a peer's directory, or their mean, as named tensors."""
    from gossamer.runs.weights import export as write

    look_for_data_in(data)
    write(run, node, out)
    click.echo(f"wrote {out}", err=True)


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=150, show_default=True, help="Rounds with training.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each, seeds 0, 1, ...")
@click.option("--out", type=PATH, help="A new directory; by default under runs/.")
@workers_option
@json_option
def demo(rounds: int, seeds: int, out: Path | None, workers: int | None, as_json: bool) -> None:
    """Full sharing, JWINS and Lace side by side, on handwritten digits; all settle for four rounds at the end."""
    from gossamer.cli.console import Progress, console, factors, print_result, results_table
    from gossamer.experiments.experiment import named
    from gossamer.experiments.recipes import dpsgd_digits, jwins_digits, lace_digits
    from gossamer.runs.run import write_report
    from gossamer.simulator.simulate import simulate

    recipes = (dpsgd_digits, jwins_digits, lace_digits)
    experiments = [replace(recipe(), rounds=rounds + 4, settle=4) for recipe in recipes]
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
    print_result(json.dumps([done.result for done in runs]) if as_json else results_table(runs))
    if not as_json:
        print_result(factors(runs))
    console().print(f"report: {out / 'report.html'}", soft_wrap=True)
