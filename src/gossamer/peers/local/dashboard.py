"""What a person sees of a group on this machine: a live table, and the report at the end."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gossamer.experiments.experiment import Experiment
from gossamer.peers.data import by_rows
from gossamer.peers.local.local_group import LocalGroup
from gossamer.runs.report import size
from gossamer.runs.weights import model_digest
from gossamer.simulator.accounting import KINDS
from gossamer.simulator.simulation import Simulation

SECONDS_BETWEEN_TABLES = 0.5
SECONDS_BETWEEN_LINES = 5.0  # where there is no terminal to draw in


def watch(group: LocalGroup, terminal: Console, verify: bool) -> dict[str, Any]:
    """Run a group to its end; its report, which is also shown."""
    started = time.monotonic()
    with _stop_requests() as requests, Live(console=terminal, auto_refresh=False, transient=True) as live:
        group.start()
        shown = 0.0
        while group.running:
            if requests.pop("stop", None):
                for name in group.running:
                    group.send(name, signal.SIGTERM)
            if time.monotonic() - shown > (SECONDS_BETWEEN_TABLES if terminal.is_terminal else SECONDS_BETWEEN_LINES):
                shown = time.monotonic()
                if terminal.is_terminal:
                    live.update(table(group), refresh=True)
                else:
                    rounds = [group.last_round(name).get("round", 0) for name in group.names]
                    terminal.print(f"rounds {min(rounds)} to {max(rounds)} of {group.experiment.rounds}")
            time.sleep(0.1)
    report = _report(group, time.monotonic() - started)
    terminal.print(table(group))
    for name in report["failed"]:
        terminal.print(f"{name} failed: {_last_words(group, name)}")
    if verify and not report["failed"]:
        report |= compare(group.experiment, report)
        equal, same_bytes = report["verified"], report["verified_bytes"]
        terminal.print(f"models {'equal' if equal else 'DIFFER from'} the simulator's to the last bit; "
                       f"bytes {'equal' if same_bytes else 'DIFFER from'} its ledger")  # fmt: skip
    terminal.print(f"kept in {group.directory}", soft_wrap=True)
    return report


def table(group: LocalGroup) -> Table:
    """One row per peer: round, metric, bytes in and out, neighbours that are there."""
    shown = Table("peer", "round", "score", "out", "in", "neighbours", box=None, padding=(0, 1))
    for name in group.names:
        last = group.last_round(name)
        score = next((last[key] for key in ("accuracy", "distance") if key in last), None)
        running = name in group.running
        shown.add_row(
            name,
            f"{last.get('round', 0)}/{group.experiment.rounds}",
            "" if score is None else f"{score:.1%}" if "accuracy" in last else f"{score:.4g}",
            size(last.get("bytes_out", 0)),
            size(last.get("bytes_in", 0)),
            f"{last.get('alive', 0)}/{last.get('neighbours', 0)}" if running else "",
        )
    return shown


def compare(experiment: Experiment, report: dict[str, Any]) -> dict[str, Any]:
    """The simulator's models and ledger beside what the peers report."""
    with Simulation(by_rows(experiment)) as simulation:
        ledger = np.zeros(experiment.nodes, np.int64)
        while simulation.round < experiment.rounds:
            simulation.step()
            for line in simulation.ledger():
                ledger[line["sender"]] += sum(line.get(kind, 0) for kind in (*KINDS, "resync"))
        digests = [model_digest(model) for model in simulation.models()]
        if not simulation.experiment.delivery.sent(0).senders.size or not simulation.experiment.algorithm.parts:
            ledger[:] = 0
    peers = sorted(report["peers"], key=lambda peer: peer["node"])
    return {
        "verified": [peer["model_sha256"] for peer in peers] == digests,
        "verified_bytes": [peer["bytes_out"] for peer in peers] == ledger.tolist()
        and sum(peer["bytes_in"] for peer in peers) == int(ledger.sum()),
        "simulated_sha256": digests,
        "ledger_bytes": ledger.tolist(),
    }


def _report(group: LocalGroup, seconds: float) -> dict[str, Any]:
    results = {name: group.result(name) for name in group.names}
    peers = [result for result in results.values() if result is not None]
    return {
        "name": group.experiment.name,
        "rounds": group.experiment.rounds,
        "nodes": group.experiment.nodes,
        "peers": peers,
        "bytes_total": sum(peer["bytes_out"] for peer in peers),
        "failed": [name for name, result in results.items() if result is None or group.codes.get(group.pids[name])],
        "seconds": round(seconds, 3),
        "directory": str(group.directory),
    }


def _last_words(group: LocalGroup, name: str) -> str:
    text = (group.directory_of(name) / "log.jsonl").read_text(errors="replace").strip()
    return text.rpartition("\n")[2][:500] or "it said nothing"


@contextmanager
def _stop_requests() -> Iterator[dict[str, bool]]:
    """Ctrl-C asks the peers to finish their round and leave; a second one ends them."""
    requests: dict[str, bool] = {}
    asked = 0

    def request(number: int, frame: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt
        requests["stop"] = True

    before = [(s, signal.signal(s, request)) for s in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield requests
    finally:
        for s, handler in before:
            signal.signal(s, handler)
