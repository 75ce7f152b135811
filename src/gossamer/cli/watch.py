"""The command that shows runs in a browser while they go on."""

from pathlib import Path

import click

from gossamer.cli.options import PATH, Mistake, examples


@click.command(epilog=examples("gossamer watch", "gossamer watch runs/first --port 8000"))
@click.argument("directory", type=PATH, default=Path("runs"), metavar="[RUN or DIRECTORY]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any that is free.")
def watch(directory: Path, port: int) -> None:
    """Show RUN, or all runs in DIRECTORY, by default runs/, in a browser on this machine, as they go on."""
    from gossamer.runs.watch import WatchServer

    if not directory.is_dir():
        raise Mistake(f"{directory} is no directory; name a run, or a directory with runs, such as runs/")
    try:
        server = WatchServer(directory, port)
    except OSError as error:
        raise Mistake(f"port {port} cannot be had: {error.strerror}; name another with --port") from None
    with server:
        click.echo(f"watching {directory} at {server.address} (Ctrl-C ends it)", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("stopped watching; runs go on", err=True)
