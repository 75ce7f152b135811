"""A peer as a process: a node, its transport, its directory and its signals.

The directory holds what a run's does: experiment.toml, metrics.jsonl, checkpoint.safetensors, and at the end
result.json and model.safetensors. SIGTERM finishes the round, saves and leaves; SIGHUP reads the group and the keys
again.
"""

import json
import os
import signal
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from gossamer import wire
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers import checkpoint, logs
from gossamer.peers.counters import Counters, serve
from gossamer.peers.data import prepare
from gossamer.peers.grpc.transport import GrpcTransport
from gossamer.peers.identity import group, keys
from gossamer.peers.logs import Log
from gossamer.peers.privacy_ledger import PrivacyLedger
from gossamer.peers.rounds import Node
from gossamer.peers.transport import Timeouts
from gossamer.runs import files
from gossamer.simulator.allocator import tune_malloc
from gossamer.training.privacy import secret, seeded

EXPIRY_WARNING_SECONDS = 3 * 86400


@dataclass
class Place:
    """Where a peer finds what it needs, and leaves what it makes."""

    name: str
    peers: Path  # the group's file
    certificates: Path
    out: Path
    data: Path | None = None
    bind: str | None = None
    metrics: str | None = "127.0.0.1:0"  # where /metrics is to be seen
    checkpoint_every: int = 10
    round_seconds: float = 0.0  # a round takes at least so long
    with_parent: bool = False  # leave when the process that started this one is gone
    seeded_noise: bool = False  # draw the noise of privacy from the seed, as a simulation does: it protects nobody


@dataclass
class Signals:
    """What signals have asked for."""

    leave: bool = False
    reload: threading.Event = field(default_factory=threading.Event)

    def install(self) -> None:
        def leave(number: int, frame: object) -> None:
            if self.leave:
                raise KeyboardInterrupt
            self.leave = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, leave)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda number, frame: self.reload.set())


def run(experiment: Experiment, place: Place, settings: Timeouts) -> dict[str, Any]:
    """Be this peer until the rounds are done or it is asked to leave; its report."""
    torch.set_num_threads(1)  # the same bits everywhere
    tune_malloc()
    wishes, counters = Signals(), Counters()
    wishes.install()
    with ExitStack() as at_the_end:
        log = _take_over_log(place, counters, at_the_end)
        experiment = experiment.with_digests()
        members = group.load(place.peers, experiment.nodes)
        me = members.member(place.name)
        run_id = group.run_id(members, experiment)
        credentials = keys.load(place.certificates, place.name)
        noise = seeded if place.seeded_noise else secret
        node = Node(prepare(experiment, me.node, place.data), me.node, run_id, settings, counters, log, noise)
        if experiment.privacy.on and place.seeded_noise:
            log("noise is not secret", advice="for trials: leave --seeded-noise out to protect data")
        _resume(node, place, run_id, experiment, log)
        releases = PrivacyLedger(experiment.privacy, place.out, node.round)
        wire.precompile()
        transport = GrpcTransport(
            me, members, credentials, settings, counters, log,
            rounds=experiment.rounds, most_bytes=node.most_bytes, check=node.check,
            state=node.whole_state, on_outcome=node.outcome, on_restart=node.restarted, bind=place.bind,
        )  # fmt: skip
        at_the_end.callback(lambda: transport.close(time.monotonic() + settings.deadline_seconds))
        _watch_wishes(wishes, place, transport, experiment.nodes, log)
        if place.metrics:
            _show_metrics(place.metrics, node, transport, at_the_end, log)
        node.wait_for_group(transport, [n for n in members.nodes if n != me.node], lambda: wishes.leave)
        _carry_on(node, transport, place, run_id, wishes, releases)
        done = node.round >= node.experiment.rounds
        if done:
            node.drain(transport, lambda: wishes.leave)
    report = _report(node, place, counters) | releases.report()
    if done:
        (place.out / "model.safetensors").write_bytes(save({"model": node.block.models()[0].contiguous()}))
        files.replace(place.out / "result.json", json.dumps(report, indent=2).encode() + b"\n")
    log("done" if done else "left", **report)
    return report


def _take_over_log(place: Place, counters: Counters, at_the_end: ExitStack) -> Log:
    def on_line(line: str) -> None:
        if "andshake" in line:  # TLS refuses strangers before any of our code is asked
            counters.add(refused=1)
            log.rate_limited("refused", reason=line)
        else:
            log.rate_limited("printed", text=line)

    original = logs.take_over_stderr(on_line)
    at_the_end.callback(logs.give_back_stderr, original)
    log = Log(original, peer=place.name)
    return log


def _resume(node: Node, place: Place, run_id: int, experiment: Experiment, log: Log) -> None:
    try:
        place.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"{place.out} cannot be made: {error.strerror}; name another directory") from None
    found = checkpoint.load(place.out, run_id, node.me, node.tensors())
    if found is not None:
        saved, tensors = found
        node.restore(tensors, saved.round)
        node.counters.restore(saved.totals)
        log("resumed", round=saved.round)
    else:
        files.replace(place.out / "experiment.toml", toml.dumps(experiment).encode())
    kept = [row for row in files.read_lines(place.out / "metrics.jsonl") if row["round"] <= node.round]
    files.replace(place.out / "metrics.jsonl", files.lines(kept))


def _carry_on(
    node: Node, transport: GrpcTransport, place: Place, run_id: int, wishes: Signals, releases: PrivacyLedger
) -> None:
    saved_at = node.round
    while node.round < node.experiment.rounds and not wishes.leave:
        began, cpu_began = time.monotonic(), time.process_time()
        node.catch_up(transport)
        if node.round >= node.experiment.rounds:
            break
        releases.add()
        metrics = node.step(transport)
        totals = node.counters.totals()
        metrics |= {name: totals[name] for name in ("bytes_out", "bytes_in", "neighbours_lost", "neighbours_found")}
        metrics["cpu_seconds"] = round(time.process_time() - cpu_began, 4)  # of all threads
        _append(place, metrics, node.log)
        if node.round % place.checkpoint_every == 0:
            saved_at = _save(node, place, run_id, saved_at)
        while time.monotonic() < began + place.round_seconds and not wishes.leave and not node.is_behind(transport):
            time.sleep(min(0.05, place.round_seconds))
    if saved_at != node.round:
        _save(node, place, run_id, saved_at)


def _append(place: Place, metrics: dict[str, Any], log: Log) -> None:
    try:
        files.append(place.out / "metrics.jsonl", [metrics])
    except (OSError, ValueError) as error:
        log("metrics not written", round=metrics["round"], reason=str(error))


def _save(node: Node, place: Place, run_id: int, saved_at: int) -> int:
    """Save the state; the round of the last state that is saved. A full disk does not end the training."""
    node.counters.add(checkpoints=1)
    saved = checkpoint.Saved(run_id, node.me, node.round, node.counters.totals())
    try:
        checkpoint.save(place.out, saved, node.tensors())
    except OSError as error:
        node.counters.add(checkpoints=-1, checkpoints_failed=1)
        node.log(
            "state not saved", reason=error.strerror or str(error), round=node.round, last_saved=saved_at,
            advice="free some space: a restart would go on from the state saved last",
        )  # fmt: skip
        return saved_at
    node.log("saved", round=node.round)
    return node.round


def _watch_wishes(wishes: Signals, place: Place, transport: GrpcTransport, nodes: int, log: Log) -> None:
    """Threads that read the group again when asked to, and that notice when the parent is gone."""

    def reload() -> None:
        while True:
            wishes.reload.wait()
            wishes.reload.clear()
            try:
                credentials = keys.load(place.certificates, place.name)
                members = group.load(place.peers, nodes)
                members.member(place.name)
                transport.reload(members, credentials)
                log("reloaded", peers=len(members.members), certificate_seconds=int(keys.seconds_left(credentials)))
            except ExperimentError as error:
                log("not reloaded", reason=str(error), advice="the group and keys from before stay")

    def stay_with(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        wishes.leave = True

    threading.Thread(target=reload, daemon=True, name="reload").start()
    if place.with_parent:
        threading.Thread(target=stay_with, args=(os.getppid(),), daemon=True, name="parent").start()


def _show_metrics(where: str, node: Node, transport: GrpcTransport, at_the_end: ExitStack, log: Log) -> None:
    def gauges() -> dict[str, float]:
        round = node.round
        near = {n for each in node.neighbours(round) for n in each}
        return {
            "round": round,
            "neighbours": len(near),
            "neighbours_alive": sum(transport.alive(n) for n in near),
            "deadline_seconds": node.waits.deadline_seconds,
            "certificate_seconds": keys.seconds_left(transport.credentials),
            "clock_skew_seconds": max(transport.skews.values(), default=0.0),
        }

    host, port = group.address_of(where)
    try:
        end, port = serve(host, port, node.counters, gauges)
    except OSError as error:
        raise ExperimentError(f"{where} cannot be listened on ({error.strerror}); --metrics names another") from None
    at_the_end.callback(end)
    log("metrics", address=f"http://{host}:{port}/metrics")
    if keys.seconds_left(transport.credentials) < EXPIRY_WARNING_SECONDS:
        log("certificate ends soon", seconds=int(keys.seconds_left(transport.credentials)),
            advice="renew it with gossamer keys --renew and send SIGHUP")  # fmt: skip


def _report(node: Node, place: Place, counters: Counters) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        rows = files.read_lines(place.out / "metrics.jsonl")
        last = next((row for row in reversed(rows) if "test_loss" in row), {})
        measured = {key: last[key] for key in (node.task.metric, "test_loss") if key in last}
    return {
        "name": place.name,
        "node": node.me,
        "rounds": node.round,
        "model_sha256": node.digest(),
        **measured,
        **counters.totals(),
    }
