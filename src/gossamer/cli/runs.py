"""The commands of runs in the simulator: run, resume, settle, report, export, predict, pack, demo."""

import json
import os
import sys
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
    rank_options,
    say,
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
        "gossamer run big.toml --ranks 2 --out runs/big",
    )
)
@experiment_argument
@experiment_options
@click.option("--out", type=PATH, help="A new directory for the run; by default under runs/.")
@checkpoint_option
@data_option
@workers_option
@rank_options
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
    ranks: int | None,
    placement: str,
    timeout: float,
    scratch: Path | None,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Run EXPERIMENT, a TOML file or the name of a recipe, in the simulator.

    With --ranks, or under torchrun or srun, nodes are spread over processes (docs/cluster.md); the result is the same.
    """
    from gossamer.cli.console import console
    from gossamer.cli.ranks import RankOptions, Start, in_ranks
    from gossamer.experiments.auto import choose
    from gossamer.simulator.simulate import refuse_existing, run_or_resume, simulate

    look_for_data_in(data)
    options = RankOptions.of(ranks, placement, timeout, scratch, needs_out=out is None)
    chosen = choose(experiment_of(experiment, settings, rounds=rounds, seed=seed))
    if chosen.note and options.is_first:
        console().print(chosen.note, soft_wrap=True)
    directory = out or unused(Path("runs") / chosen.name)
    if options.is_first and not options.restarted:
        refuse_existing(directory)

    def work(start: Start) -> None:
        with _watched(chosen.name, chosen.rounds, tensorboard, directory, start.is_first) as on_round:
            each = start.workers(workers)
            if options.restarted:
                done = run_or_resume(chosen, directory, each, checkpoint_every, on_round, ranks=start.ranks)
            else:
                kept = checkpoint_every, on_round, scratch
                done = simulate(chosen, directory, each, *kept, task=start.task, ranks=start.ranks)
        if start.is_first:
            _show(done, as_json)

    in_ranks(options, chosen, work, directory)


@click.command(epilog=examples("gossamer resume runs/mine", "gossamer resume runs/mine --workers 1 --json"))
@click.argument("run", type=PATH)
@checkpoint_option
@data_option
@workers_option
@rank_options
@scratch_option
@tensorboard_option
@json_option
def resume(
    run: Path,
    checkpoint_every: int,
    data: str | None,
    workers: int | None,
    ranks: int | None,
    placement: str,
    timeout: float,
    scratch: Path | None,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Continue the run in directory RUN from its last checkpoint, in any number of ranks."""
    from gossamer.cli.ranks import RankOptions, Start, in_ranks
    from gossamer.runs.files import experiment_of, read_document
    from gossamer.simulator.simulate import resume as resume_run

    look_for_data_in(data)
    options = RankOptions.of(ranks, placement, timeout, scratch)
    past = read_document(run)

    def work(start: Start) -> None:
        with _watched(past["name"], past["rounds"], tensorboard, run, start.is_first) as on_round:
            kept = checkpoint_every, on_round, scratch
            done = resume_run(run, None, start.workers(workers), *kept, task=start.task, ranks=start.ranks)
        if start.is_first:
            _show(done, as_json)

    in_ranks(options, experiment_of(past), work, run)


@contextmanager
def _watched(name: str, rounds: int, tensorboard: bool, run: Path, is_first: bool) -> "Iterator[OnRound | None]":
    """What shows and logs the rounds of a run; nothing, in ranks other than the first."""
    from gossamer.cli.console import Progress

    if not is_first:
        yield None
        return
    with Progress({name: rounds}) as progress, _logging(tensorboard, run) as log:
        yield _both(progress.of(name), log)


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
    if done.experiment is not None and (before := done.experiment.settle - rounds):
        say(f"{run} had settled for {before} rounds already; these are {rounds} more")
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
        "gossamer export runs/mine --out model.pt2                   # or model.onnx",
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

    A file that ends in .pt2 or .onnx gets the model as a program, for torch.export or ONNX.

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


@click.command(
    epilog=examples(
        "gossamer predict runs/mine samples.npy",
        "gossamer predict runs/mine samples.safetensors --node 3 --out predictions.csv",
    )
)
@click.argument("run", type=PATH)
@click.argument("samples", type=PATH)
@click.option("--node", callback=_node, help="A node's number, or mean.  [default: mean; of a peer, its own]")
@click.option(
    "--out",
    type=PATH,
    default=Path("predictions.safetensors"),
    show_default=True,
    help="A new file; .npy and .csv are other kinds.",
)
@data_option
def predict(run: Path, samples: Path, node: Any, out: Path, data: str | None) -> None:
    """Write what a model of RUN says of SAMPLES: the tensor inputs of a .safetensors file, or an .npy file.

    If there is a tensor targets beside the inputs, loss and metric are printed.
    """
    from gossamer.runs import files, inference, weights

    if os.path.exists(out):
        raise Mistake(f"{out} exists already; name another file with --out")
    if out.suffix not in (".safetensors", ".npy", ".csv"):
        raise Mistake(f"--out {out}: take a file that ends in .safetensors, .npy or .csv")
    look_for_data_in(data)
    given = inference.read_samples(samples)
    trained = weights.trained(run, node)
    model = inference.model_of(trained.task, *trained.weights.of(trained.node))
    found = inference.predict(model, trained.task, given, _with_bar)
    try:
        files.replace(out, inference.as_bytes(found, out.suffix))
    except OSError as error:
        raise Mistake(f"{out} cannot be written: {error.strerror}; name another file with --out") from None
    if found.loss is not None:
        score = {} if found.score is None else {trained.task.metric: found.score}
        click.echo(json.dumps({"loss": found.loss, **score}))
    click.echo(f"wrote {len(found.outputs)} predictions to {out}", err=True)


def _with_bar(batches: range) -> Iterator[int]:
    with click.progressbar(batches, file=sys.stderr) as bar:
        yield from bar


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
