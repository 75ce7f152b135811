"""The commands of real peers: keys, peer, up."""

import json
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from gossamer.cli.completion import complete_experiment
from gossamer.cli.options import (
    PATH,
    examples,
    experiment_argument,
    experiment_of,
    experiment_options,
    json_option,
    unused,
)
from gossamer.peers.config import CERTIFICATE_DAYS, METRICS, PeerConfig, Timeouts


def timing_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that `peer` and `up` share. The command gets `timeouts`, `checkpoint_every` and `round_seconds`."""

    @wraps(command)
    def with_timeouts(deadline: float, adaptive: bool, start_deadline: float, dead_after: float, **others: Any) -> None:
        try:
            timeouts = Timeouts(deadline, adaptive, start_deadline, dead_after)
        except ValueError as error:
            from gossamer.experiments.experiment import ExperimentError

            raise ExperimentError(str(error)) from None
        command(timeouts=timeouts, **others)

    options = [
        _seconds("--deadline", Timeouts.deadline_seconds, "Seconds a round may wait for messages."),
        click.option("--adaptive", is_flag=True, help="Wait four times as long as recent rounds did, at most that."),
        _seconds("--start-deadline", Timeouts.start_seconds, "Seconds to wait for all at the start."),
        _seconds("--dead-after", Timeouts.dead_seconds, "Seconds without an answer after which a peer is down."),
        click.option(
            "--checkpoint-every",
            type=click.IntRange(min=1),
            default=PeerConfig.checkpoint_every,
            show_default=True,
            help="Rounds between two checkpoints.",
        ),
        click.option(
            "--round-seconds",
            type=click.FloatRange(min=0, max=1e6, max_open=True),
            default=PeerConfig.round_seconds,
            help="A round takes at least so many seconds.",
        ),
    ]
    for option in reversed(options):
        with_timeouts = option(with_timeouts)
    return with_timeouts


def _seconds(name: str, default: float, meaning: str) -> Callable[..., Any]:
    return click.option(name, type=float, default=default, show_default=True, help=meaning)


@click.command(epilog=examples("gossamer keys keys alice bob", "gossamer keys keys alice --renew --days 7"))
@click.argument("directory", type=PATH)
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--days",
    type=click.IntRange(min=1),
    default=CERTIFICATE_DAYS,
    show_default=True,
    help="How long they are good for.",
)
@click.option("--renew", is_flag=True, help="Make new ones for peers that have some.")
def keys(directory: Path, names: tuple[str, ...], days: int, renew: bool) -> None:
    """Make keys and certificates for the peers NAMES in DIRECTORY, and the group's authority if there is none."""
    _need_the_extra()
    from gossamer.peers.identity import keys as made

    for path in made.make(directory, list(names), days, renew):
        click.echo(path)


@click.command(epilog=examples("gossamer peer experiment.toml --me alice --peers peers.toml --certs keys"))
@experiment_argument
@click.option("--me", required=True, help="This peer's name in the group and in its certificate.")
@click.option("--peers", required=True, type=PATH, help="The group's file.")
@click.option("--certs", required=True, type=PATH, help="The directory with this peer's keys.")
@click.option("--data", type=PATH, help="This peer's own data; by default its share of the task's.")
@click.option("--out", type=PATH, help="Where state and results are kept; by default under runs/.")
@click.option("--bind", help="Where to listen, host:port, if not at the address in the group's file.")
@click.option("--metrics", default=METRICS, show_default=True, help='Where /metrics is, host:port, or "off".')
@click.option("--with-parent", is_flag=True, help="Leave when the process that started this one is gone.")
@click.option("--seeded-noise", is_flag=True, help="Draw privacy's noise from the seed: for trials, it protects none.")
@timing_options
def peer(
    experiment: str,
    me: str,
    peers: Path,
    certs: Path,
    data: Path | None,
    out: Path | None,
    bind: str | None,
    metrics: str,
    with_parent: bool,
    seeded_noise: bool,
    timeouts: Timeouts,
    checkpoint_every: int,
    round_seconds: float,
) -> None:
    """Be one peer of a group that runs EXPERIMENT, a TOML file or a recipe, over the network."""
    _need_the_extra()
    from gossamer.peers.peer import run_process

    chosen = experiment_of(experiment)
    out = out or Path("runs") / f"{chosen.name}-{me}"
    shown = None if metrics == "off" else metrics
    config = PeerConfig(
        me, peers, certs, out, data, bind, shown, checkpoint_every, round_seconds, with_parent, seeded_noise
    )
    click.echo(json.dumps(run_process(chosen, config, timeouts)))


@click.command(
    epilog=examples(
        "gossamer up 8",
        "gossamer up 8 jwins-digits --rounds 30 --verify",
        "gossamer up 4 sparse-push-ring --out runs/ring --deadline 10",
    )
)
@click.argument("number", type=click.IntRange(min=2))
@click.argument("experiment", default="jwins-digits", shell_complete=complete_experiment)
@experiment_options
@click.option("--out", type=PATH, help="A new directory for all peers; by default under runs/.")
@click.option("--verify", is_flag=True, help="Run the simulator too, and compare models and bytes.")
@json_option
@timing_options
def up(
    number: int,
    experiment: str,
    settings: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    out: Path | None,
    verify: bool,
    as_json: bool,
    timeouts: Timeouts,
    checkpoint_every: int,
    round_seconds: float,
) -> None:
    """Start NUMBER peers on this machine, with keys of their own, and watch them train EXPERIMENT, file or recipe.

    The default recipe, jwins-digits, needs at least 5 nodes; for fewer, add --set topology.name=ring.
    """
    _need_the_extra()
    from gossamer.cli.console import console
    from gossamer.peers.local.dashboard import watch
    from gossamer.peers.local.local_group import LocalGroup

    chosen = experiment_of(experiment, settings, rounds=rounds, seed=seed, nodes=number)
    options: dict[str, Any] = {
        "checkpoint_every": checkpoint_every,
        "round_seconds": round_seconds,
        "seeded_noise": verify and chosen.privacy.on,  # what the simulator draws
    }
    with LocalGroup(chosen, out or unused(Path("runs") / f"up-{chosen.name}"), timeouts, **options) as group:
        report = watch(group, console(), verify)
    if as_json:
        click.echo(json.dumps(report))
    if report["failed"] or report.get("verified") is False:
        raise SystemExit(1)


def _need_the_extra() -> None:
    """What peers need is optional, because simulations need none of it."""
    from gossamer.experiments.experiment import ExperimentError

    missing = [name for name in ("grpc", "cryptography", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise ExperimentError(f"real peers need {', '.join(missing)}; install it with: pip install 'gossamer[peers]'")
