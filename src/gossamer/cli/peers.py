"""The commands of real peers: keys, peer, up."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from gossamer.cli.experiments import document, unused

PATH = click.Path(path_type=Path)


def patience(command: Any) -> Any:
    """The options that `peer` and `up` share: how long to wait for what."""
    options = [
        click.option("--deadline", type=float, default=30.0, show_default=True, help="Seconds a round may wait."),
        click.option("--adaptive", is_flag=True, help="Wait four times as long as recent rounds did, at most that."),
        click.option("--start-deadline", type=float, default=120.0, show_default=True, help="Seconds to wait for all."),
        click.option("--dead-after", type=float, default=5.0, show_default=True, help="Seconds without an answer."),
        click.option("--checkpoint-every", type=click.IntRange(min=1), default=10, show_default=True, help="Rounds."),
        click.option("--round-seconds", type=click.FloatRange(min=0), default=0.0, help="A round takes at least this."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("directory", type=PATH)
@click.argument("names", nargs=-1, required=True)
@click.option("--days", type=click.IntRange(min=1), default=30, show_default=True, help="How long they are good for.")
@click.option("--renew", is_flag=True, help="Make new ones for peers that have some.")
def keys(directory: Path, names: tuple[str, ...], days: int, renew: bool) -> None:
    """Make keys and certificates for the peers NAMES in DIRECTORY, and the group's authority if there is none."""
    _need_the_extra()
    from gossamer.peers.identity import keys as made

    for path in made.make(directory, list(names), days, renew):
        click.echo(path)


@click.command()
@click.argument("experiment")
@click.option("--me", required=True, help="This peer's name in the group and in its certificate.")
@click.option("--peers", required=True, type=PATH, help="The group's file.")
@click.option("--certs", required=True, type=PATH, help="The directory with this peer's keys.")
@click.option("--data", type=PATH, help="This peer's own data; by default its share of the task's.")
@click.option("--out", type=PATH, help="Where state and results are kept; by default under runs/.")
@click.option("--bind", help="Where to listen, host:port, if not at the address in the group's file.")
@click.option("--metrics", default="127.0.0.1:0", show_default=True, help='Where /metrics is, host:port, or "off".')
@click.option("--with-parent", is_flag=True, help="Leave when the process that started this one is gone.")
@click.option("--seeded-noise", is_flag=True, help="Draw privacy's noise from the seed: for trials, it protects none.")
@patience
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
    deadline: float,
    adaptive: bool,
    start_deadline: float,
    dead_after: float,
    checkpoint_every: int,
    round_seconds: float,
) -> None:
    """Be one peer of a group that runs EXPERIMENT, a TOML file or a recipe, over the network."""
    _need_the_extra()
    from gossamer.experiments import toml
    from gossamer.peers.peer import Place, run

    chosen = toml.read(document(experiment))
    out = out or Path("runs") / f"{chosen.name}-{me}"
    shown = None if metrics == "off" else metrics
    place = Place(me, peers, certs, out, data, bind, shown, checkpoint_every, round_seconds, with_parent, seeded_noise)
    report = run(chosen, place, settings(deadline, adaptive, start_deadline, dead_after))
    click.echo(json.dumps(report))


@click.command()
@click.argument("number", type=click.IntRange(min=2))
@click.argument("experiment", default="jwins-digits")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting of the experiment.")
@click.option("--rounds", type=int, help="Short for --set rounds=N.")
@click.option("--seed", type=int, help="Short for --set seed=N.")
@click.option("--out", type=PATH, help="A new directory for all peers; by default under runs/.")
@click.option("--verify", is_flag=True, help="Run the simulator too, and compare models and bytes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@patience
def up(
    number: int,
    experiment: str,
    changes: tuple[str, ...],
    rounds: int | None,
    seed: int | None,
    out: Path | None,
    verify: bool,
    as_json: bool,
    deadline: float,
    adaptive: bool,
    start_deadline: float,
    dead_after: float,
    checkpoint_every: int,
    round_seconds: float,
) -> None:
    """Start NUMBER peers on this machine, with keys of their own, and watch them train EXPERIMENT, file or recipe."""
    _need_the_extra()
    from gossamer.experiments import toml
    from gossamer.peers.local.dashboard import watch
    from gossamer.peers.local.group import LocalGroup

    described = document(experiment) | {"nodes": number}
    for key, value in (("rounds", rounds), ("seed", seed)):
        if value is not None:
            described[key] = value
    for change in changes:
        toml.change(described, change)
    chosen = toml.read(described)
    settings(deadline, adaptive, start_deadline, dead_after)
    given = {
        "--deadline": deadline, "--start-deadline": start_deadline, "--dead-after": dead_after,
        "--checkpoint-every": checkpoint_every, "--round-seconds": round_seconds,
    }  # fmt: skip
    options = [word for name, value in given.items() for word in (name, str(value))] + ["--adaptive"] * adaptive
    options += ["--seeded-noise"] * (verify and chosen.privacy.on)  # what the simulator draws
    with LocalGroup(chosen, out or unused(Path("runs") / f"up-{chosen.name}"), options) as fleet:
        report = watch(fleet, verify)
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


def settings(deadline: float, adaptive: bool, start_deadline: float, dead_after: float) -> Any:
    from gossamer.experiments.experiment import ExperimentError
    from gossamer.peers.transport import Timeouts

    try:
        return Timeouts(deadline, adaptive, start_deadline, dead_after)
    except ValueError as error:
        raise ExperimentError(str(error)) from None
