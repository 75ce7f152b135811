"""The command line. Results go to standard output; progress, messages and errors to standard error.

Commands import what they need when they run: torch takes seconds, and `--help` needs none of it.
"""

import shlex
import sys

import click

from gossamer import __version__
from gossamer.cli import audit, cost, data, experiments, peers, plan, precompile, reproduce, runs, sweeps, watch
from gossamer.cli.options import say


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gossamer")
def cli() -> None:
    """Train one model together on many nodes: no server, few bytes over the network."""


for command in (
    *(runs.run, runs.resume, runs.settle, runs.report, watch.watch, runs.export, runs.predict, runs.pack, runs.demo),
    *(sweeps.sweep, sweeps.compare, plan.plan, reproduce.reproduce, audit.audit),
    *(experiments.list_, experiments.show, experiments.init, experiments.schema, experiments.completion),
    *(data.data, cost.cost),
    *(peers.keys, peers.invite, peers.join, peers.doctor, peers.peer, peers.up, precompile.precompile),
):
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
        say("stopped; a run that had begun can be continued with: gossamer resume RUN")
        sys.exit(130)
    except Exception as error:
        sys.exit(explain(error))


def explain(error: Exception) -> int:
    """Say what went wrong, if it is nobody's programming mistake; the exit code. What another rank says is not said."""
    from gossamer.experiments.experiment import ExperimentError
    from gossamer.simulator.ranks import ELSEWHERE
    from gossamer.simulator.simulate import StopRequest
    from gossamer.simulator.worker_pool import WorkerError
    from gossamer.training.block import NodeError

    if ELSEWHERE in getattr(error, "__notes__", ()):
        return 2 if isinstance(error, ExperimentError) else 1
    if isinstance(error, ExperimentError):
        say(str(error))
        return 2
    if _is_too_large(error):
        say("this takes more memory than there is; take a smaller model, fewer nodes or samples, or smaller batches")
        return 2
    if isinstance(error, StopRequest):
        say(f"{error}; continue with: gossamer resume {shlex.quote(str(error.run.directory))}")
        return 130
    if isinstance(error, NodeError | WorkerError):
        say(str(error))
    elif isinstance(error, OSError):
        say(f"{error.filename or 'a file'}: {error.strerror or error}")
    else:
        raise error
    return 1


def _is_too_large(error: BaseException | None) -> bool:
    """Was there not enough memory, or a size that no number holds? torch has no class of its own for it."""
    if error is None or isinstance(error, MemoryError | OverflowError):
        return error is not None
    told = (
        "allocate memory",
        "not enough memory",
        "out of memory",
        "size calculation overflowed",
        "Overflow when unpacking",
    )
    return any(words in str(error) for words in told) or _is_too_large(error.__cause__)
