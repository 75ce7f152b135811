"""What can be seen of a peer at the moment, for its page of metrics; what it has counted is in counters.py."""

import time
from math import isfinite
from typing import TYPE_CHECKING, TypeGuard

from gossamer import __version__
from gossamer.experiments.experiment import named
from gossamer.peers.counters import Gauge
from gossamer.peers.identity import keys
from gossamer.peers.progress import PHASES

if TYPE_CHECKING:
    from gossamer.peers.grpc.transport import GrpcTransport
    from gossamer.peers.rounds import Node

GAUGES = {
    "peer_info": "1; the labels say which peer this is, of which run, and what it runs",
    "round": "rounds that are complete",
    "rounds": "rounds of the whole run",
    "phase": "1 for what the peer is doing now, 0 for what else it could do",
    "phase_seconds": "how long it has been doing so",
    "waiting_seconds": "how long it has waited for this neighbour, of each that it waits for now",
    "round_seconds": "how long the last round took",
    "train_loss": "mean loss of the local steps, in the last round that had any; not told under privacy",
    "evaluation": "the last evaluation of this peer's model on the test samples, by metric",
    "evaluation_round": "the round of the last evaluation",
    "neighbours": "neighbours of the next exchange",
    "neighbours_alive": "those of them that are there",
    "neighbour_up": "1 if this neighbour of the next exchange is there, 0 if it is not",
    "deadline_seconds": "how long a round waits for messages",
    "certificate_seconds": "until this peer's certificate ends",
    "clock_skew_seconds": "the most that a neighbour's clock differs",
}


def gauges(name: str, run: str, node: "Node", transport: "GrpcTransport") -> list[Gauge]:
    """Called by the threads that serve the page, while rounds go on."""
    near = sorted({n for each in node.neighbours(node.exchange) for n in each})
    up = {n: transport.alive(n) for n in near}
    phase, now = node.progress.phase, time.monotonic()
    last, tested = node.progress.last, node.progress.last_evaluation
    loss = node.progress.last_training.get("train_loss")
    info = {
        "name": name,
        "run": run,
        "experiment": node.experiment.name,
        "algorithm": named(node.experiment.algorithm),
        "metric": node.task.metric,
        "release": __version__,
    }
    found: dict[str, float | list[tuple[dict[str, str], float]]] = {
        "peer_info": [(info, 1.0)],
        "round": node.round,
        "rounds": node.experiment.rounds,
        "phase": [({"phase": each}, float(each == phase.name)) for each in PHASES],
        "phase_seconds": now - phase.since,
        "waiting_seconds": [({"neighbour": transport.name_of(n)}, now - phase.since) for n in phase.awaited()],
        "neighbours": len(near),
        "neighbours_alive": sum(up.values()),
        "neighbour_up": [({"neighbour": transport.name_of(n)}, float(is_up)) for n, is_up in up.items()],
        "deadline_seconds": node.waits.deadline_seconds,
        "certificate_seconds": keys.seconds_left(transport.credentials),
        "clock_skew_seconds": max(list(transport.skews.values()), default=0.0),
    }
    if _is_number(last.get("seconds")):
        found["round_seconds"] = last["seconds"]
    if _is_number(loss) and not node.experiment.privacy.on:  # of its data, and without noise
        found["train_loss"] = loss
    of = ("test_loss", node.task.metric, *node.task.more_metrics)  # what is tested on its own data stays its own
    if scores := [({"metric": each}, float(tested[each])) for each in of if _is_number(tested.get(each))]:
        found |= {"evaluation": scores, "evaluation_round": tested["round"]}
    return [
        Gauge(each, GAUGES[each], value if isinstance(value, list) else [({}, value)]) for each, value in found.items()
    ]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and isfinite(value)
