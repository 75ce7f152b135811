"""The commands of real peers: keys, invite, join, doctor, peer, up."""

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
    say,
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


def own_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which peer this is: the options that `peer` and `doctor` share."""
    options = [
        click.option("--me", required=True, help="This peer's name in the group and in its certificate."),
        click.option("--peers", required=True, type=PATH, help="The group's file."),
        click.option("--certs", required=True, type=PATH, help="The directory with this peer's keys."),
        click.option("--data", type=PATH, help="This peer's own data; by default its share of the task's."),
        click.option("--bind", help="Where to listen, host:port, if not at the address in the group's file."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


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


@click.command(
    epilog=examples(
        "gossamer invite bob --certs keys --at 192.168.1.10:7010 --peers peers.toml --experiment experiment.toml",
        "gossamer invite bob --certs keys --at 192.168.1.10:7010 --renew",
    )
)
@click.argument("name")
@click.option("--certs", required=True, type=PATH, help="The directory with the authority's key.")
@click.option("--at", default="127.0.0.1:0", show_default=True, help="Where to wait for it, host:port.")
@click.option("--reached-at", help="host:port by which it gets there, if that differs.")
@click.option("--peers", type=PATH, help="The group's file, which it gets, too.")
@click.option("--experiment", type=PATH, help="The experiment's file, which it gets, too.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="How long the code is good for.")  # fmt: skip
@click.option("--days", type=click.IntRange(min=1), default=CERTIFICATE_DAYS, show_default=True,
              help="How long its certificate is good for.")  # fmt: skip
@click.option("--renew", is_flag=True, help="It has a certificate already, and gets a new one.")
def invite(
    name: str,
    certs: Path,
    at: str,
    reached_at: str | None,
    peers: Path | None,
    experiment: Path | None,
    minutes: float,
    days: int,
    renew: bool,
) -> None:
    """Print a one-time code with which the peer NAME gets its certificate, and wait until it has."""
    _need_the_extra()
    from gossamer.experiments import toml
    from gossamer.experiments.experiment import ExperimentError
    from gossamer.peers.identity.invitation import Invitation

    if peers is not None and name not in (listed := toml.load(peers).get("peers", {})):
        raise ExperimentError(f"{peers} does not list {name}; its peers are {', '.join(listed)}")
    if experiment is not None:
        toml.load(experiment)  # a sentence now, and not at the other end
    given = {"peers.toml": peers, "experiment.toml": experiment}
    contents = {file: path.read_bytes() for file, path in given.items() if path is not None}
    with Invitation(name, certs, at, contents, days, renew, reached_at, say) as invitation:
        click.echo(f"gossamer join {invitation.code}")
        say(
            f"tell {name} this line where nobody else reads it; it works once, for {minutes:g} minutes (Ctrl-C ends it)"
        )
        if not invitation.wait(60 * minutes):
            raise ExperimentError(f"{name} did not come within {minutes:g} minutes; make another invitation")
    say(f"{name} has joined, and its certificate is good for {days} days")
    if invitation.warning:
        say(invitation.warning)


@click.command(epilog=examples("gossamer join bob@192.168.1.10:7010/CODE", "gossamer join CODE --certs keys --renew"))
@click.argument("code")
@click.option("--certs", type=PATH, default=Path("keys"), show_default=True, help="Where keys are kept.")
@click.option("--renew", is_flag=True, help="Replace the key and the certificate that are there.")
def join(code: str, certs: Path, renew: bool) -> None:
    """Get this peer's certificate, and the group's files, with the CODE of an invitation. Its key is made here."""
    _need_the_extra()
    from gossamer.peers.identity.invitation_code import Code
    from gossamer.peers.identity.joining import join as joined

    for path in joined(Code.read(code), certs, Path(), renew):
        click.echo(path)


@click.command(epilog=examples("gossamer doctor experiment.toml --me alice --peers peers.toml --certs keys"))
@experiment_argument
@own_options
@click.option("--wait", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds to wait for the others, who do the same or are running.")  # fmt: skip
@json_option
def doctor(
    experiment: str,
    me: str,
    peers: Path,
    certs: Path,
    data: Path | None,
    bind: str | None,
    wait: float,
    as_json: bool,
) -> None:
    """Check all that a peer needs before it trains: group, keys, data, port, and every other peer both ways.

    Run it on all machines at the same time. It trains nothing and writes nothing.
    """
    say(f"looking at what {me} needs, and then at the others")  # the imports take a moment
    _need_the_extra()
    from gossamer.peers.doctor import Check, examine_peer

    def tell(check: Check) -> None:
        if not as_json:
            click.echo(check)

    config = PeerConfig(me, peers, certs, Path(), data=data, bind=bind, metrics=None)
    checks = examine_peer(experiment_of(experiment), config, wait, tell, say)
    if as_json:
        click.echo(json.dumps([check._asdict() for check in checks]))
    if not all(check.ok for check in checks):
        raise SystemExit(1)


@click.command(epilog=examples("gossamer peer experiment.toml --me alice --peers peers.toml --certs keys"))
@experiment_argument
@own_options
@click.option("--out", type=PATH, help="Where state and results are kept; by default under runs/.")
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
