"""The command of membership inference: audit."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gossamer.cli.options import PATH, data_option, examples, json_option, look_for_data_in, workers_option

if TYPE_CHECKING:
    from gossamer.cli.console import Progress
    from gossamer.runs.run import OnRound
    from gossamer.simulator.audit import Audit


@click.command(
    epilog=examples("gossamer audit runs/mine", "gossamer audit runs/mine --nodes 8 --shadows 32 --json"),
)
@click.argument("run", type=PATH)
@click.option("--nodes", type=click.IntRange(min=1), default=4, show_default=True, help="Nodes to attack.")
@click.option(
    "--shadows",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Models to train for the likelihood-ratio attack, an even number; 0: only the loss attack.",
)
@data_option
@workers_option
@json_option
def audit(run: Path, nodes: int, shadows: int, data: str | None, workers: int | None, as_json: bool) -> None:
    """Measure what neighbours learn of who is in a node's data, in the complete run in directory RUN.

    The run is repeated, and a neighbour of each node guesses from the messages alone which samples it has trained on.
    """
    from gossamer.cli.console import Progress, print_result
    from gossamer.runs.run import open_run
    from gossamer.simulator import audit as audits

    look_for_data_in(data)
    done = open_run(run)
    experiment = audits.auditable(done, nodes, shadows)
    again, alone = "run again", f"{shadows} shadows"
    with Progress(
        {again: experiment.rounds, **({alone: experiment.training_rounds * nodes} if shadows else {})}
    ) as bars:
        of_shadows = partial(_rounds_of_shadows, bars, alone, experiment.training_rounds)
        found = audits.audit(done, nodes, shadows, workers, bars.of(again), of_shadows)
    print_result(json.dumps(asdict(found)) if as_json else _told(found))


def _rounds_of_shadows(bars: "Progress", name: str, rounds: int, node: int) -> "OnRound":
    return bars.of(name, node * rounds)


def _told(found: "Audit") -> str:
    nodes = ", ".join(f"{node} (by {other})" for node, other in zip(found.nodes, found.neighbours, strict=True))
    lines = [f"nodes {nodes}; {found.samples} members among twice as many samples", ""]
    lines.append("attack             AUC    members found at 1 % false alarms")
    for name, attack in (("loss", found.loss), ("likelihood ratio", found.likelihood_ratio)):
        if attack is not None:
            lines.append(f"{name:<18} {attack.auc:.3f}  {attack.true_positives_at_1_percent:.1%}")
    if found.epsilon is not None:
        lines.append(f"\nepsilon {found.epsilon:g} at delta {found.delta:g} is proved; the attacks are what was tried")
    return "\n".join(lines)
