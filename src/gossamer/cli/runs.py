"""The commands of runs in the simulator: run, resume, settle, report, export, pack, demo."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    examples,
    experiment_argument,
    experiment_of,
    experiment_options,
    json_option,
    look_for_data_in,
    scratch_option,
    tensorboard_option,
    unused,
    workers_option,
)

if TYPE_CHECKING:
    from gossamer.runs.run import OnRound, Run


@click.command(
    epilog=examples(
        "gossamer run jwins-digits --rounds 30",
        "gossamer run experiment.toml --set algorithm.budget=0.2 --seed 1 --out runs/mine",
        "gossamer run jwins-cifar10 --data ~/data --workers 2 --tensorboard",
    )
)
@experiment_argument
@experiment_options
@click.option("--out", type=PATH, help="A new directory for the run; by default under runs/.")
@checkpoint_option
@data_option
@workers_option
@scratch_option
@tensorboard_option
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
    tensorboard: bool,
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
    with Progress({chosen.name: chosen.rounds}) as progress, _logging(tensorboard, out) as log:
        on_round = _both(progress.of(chosen.name), log)
        done = simulate(chosen, out, workers, checkpoint_every, on_round, scratch)
    _show(done, as_json)


@click.command(epilog=examples("gossamer resume runs/mine", "gossamer resume runs/mine --workers 1 --json"))
@click.argument("run", type=PATH)
@checkpoint_option
@data_option
@workers_option
@scratch_option
@tensorboard_option
@json_option
def resume(
    run: Path,
    checkpoint_every: int,
    data: str | None,
    workers: int | None,
    scratch: Path | None,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Continue the run in directory RUN from its last checkpoint."""
    from gossamer.cli.console import Progress
    from gossamer.runs.files import read_document
    from gossamer.simulator.simulate import resume as resume_run

    look_for_data_in(data)
    past = read_document(run)
    with Progress({past["name"]: past["rounds"]}) as progress, _logging(tensorboard, run) as log:
        on_round = _both(progress.of(past["name"]), log)
        done = resume_run(run, None, workers, checkpoint_every, on_round, scratch)
    _show(done, as_json)


@contextmanager
def _logging(tensorboard: bool, run: Path) -> "Iterator[OnRound | None]":
    """What writes TensorBoard's events into the run's directory, if that is wanted."""
    from gossamer.runs.loggers import TensorBoardLogger

    if not tensorboard:
        yield None
        return
    logger = TensorBoardLogger(run / "tensorboard")
    try:
        yield logger
    finally:
        logger.close()


def _both(first: "OnRound", second: "OnRound | None") -> "OnRound":
    def on_round(metrics: dict[str, Any]) -> None:
        first(metrics)
        if second is not None:
            second(metrics)

    return on_round


@click.command(epilog=examples("gossamer settle runs/mine", "gossamer settle runs/mine --rounds 12 --out runs/mine-12"))
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


@click.command(
    epilog=examples("gossamer report runs/mine", "gossamer report runs/mine runs/jwins-digits --out both.html")
)
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


@click.command(
    epilog=examples(
        "gossamer export runs/mine",
        "gossamer export runs/mine --node 3 --out node3.safetensors",
        "gossamer export runs/mine --metrics metrics.parquet",
    )
)
@click.argument("run", type=PATH)
@click.option("--node", callback=_node, help="A node's number, or mean.  [default: mean; of a peer, its own]")
@click.option("--out", type=PATH, default=Path("model.safetensors"), show_default=True, help="A new file.")
@click.option("--metrics", type=PATH, help="Write the metrics there instead, by round and node: a new Parquet file.")
@data_option
def export(run: Path, node: Any, out: Path, metrics: Path | None, data: str | None) -> None:
    """Write the weights of a node of RUN, a run's or a peer's directory, or their mean, as named tensors.

    With --metrics, write its metrics instead; RUN may then also be the directory of gossamer up.
    """
    from gossamer.runs import node_metrics, weights

    if metrics is not None:
        number = node_metrics.export(run, metrics)
        click.echo(f"wrote {number} rows to {metrics}", err=True)
        return
    look_for_data_in(data)
    weights.export(run, node, out)
    click.echo(f"wrote {out}", err=True)


@click.command(epilog=examples("gossamer pack runs/mine", "gossamer pack runs/mine --out artefact.zip --data ~/data"))
@click.argument("run", type=PATH)
@click.option("--out", type=PATH, help="A new file; by default RUN.zip.")
@data_option
def pack(run: Path, out: Path | None, data: str | None) -> None:
    """Pack the complete run in directory RUN into a zip archive with which others can repeat it.

    It has the experiment, versions of packages, digests of data and models, metrics, result, report, and a README with
    the command.
    """
    from gossamer.simulator.pack import pack as packed

    look_for_data_in(data)
    click.echo("reading the data, to note their digests", err=True)
    click.echo(f"wrote {packed(run, out)}", err=True)


@click.command(epilog=examples("gossamer demo", "gossamer demo --seeds 1 --rounds 50"))
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
