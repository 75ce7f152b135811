"""The command that shows runs, or a group of peers, in a browser while they go on."""

from pathlib import Path

import click

from gossamer.cli.options import PATH, Mistake, examples

MOST_PEERS = 256  # each takes a thread


@click.command(
    epilog=examples(
        "gossamer watch",
        "gossamer watch runs/first --port 8000",
        "gossamer watch --metrics 127.0.0.1:9101 --metrics 127.0.0.1:9102",
    )
)
@click.argument("directory", type=PATH, default=None, required=False, metavar="[RUN or DIRECTORY]")
@click.option(
    "--metrics",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="Show the peer whose /metrics is there; once per peer.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any that is free.")
def watch(directory: Path | None, addresses: tuple[str, ...], port: int) -> None:
    """Show RUN, or all runs in DIRECTORY, by default runs/, in a browser on this machine, as they go on.

    With --metrics, show a group of peers instead, wherever they run (docs/deploy.md).
    """
    from gossamer.runs.watch import WatchServer
    from gossamer.runs.watch.loopback import LoopbackServer

    if directory is not None and addresses:
        raise Mistake(f"{directory} and --metrics were given; name a directory, or the pages of peers, not both")
    directory = directory or Path("runs")
    if not addresses and not directory.is_dir():
        raise Mistake(f"{directory} is no directory; name a run, or a directory with runs, such as runs/")
    peers = _pages(addresses)
    try:
        server: LoopbackServer
        if peers:
            from gossamer.peers.watch import PeerWatchServer

            server = PeerWatchServer(peers, port)
        else:
            server = WatchServer(directory, port)
    except OSError as error:
        raise Mistake(f"port {port} cannot be had: {error.strerror}; name another with --port") from None
    what, go_on = (f"{len(peers)} peers", "peers") if peers else (str(directory), "runs")
    with server:
        click.echo(f"watching {what} at {server.address} (Ctrl-C ends it)", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo(f"stopped watching; {go_on} go on", err=True)


def _pages(addresses: tuple[str, ...]) -> list[tuple[str, int]]:
    from gossamer.peers.identity.group import address_of

    found = [address_of(address) for address in dict.fromkeys(addresses)]
    if len(found) > MOST_PEERS:
        raise Mistake(f"{len(found)} peers were named with --metrics; {MOST_PEERS} can be watched at once")
    for host, port in found:
        if port == 0:
            raise Mistake(f"--metrics {host}:0 names no port; the peer's log says which one it has")
    return found
