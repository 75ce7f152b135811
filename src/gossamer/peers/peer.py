"""A peer: a node, its transport, its directory and its signals.

The directory holds what a run's does: experiment.toml, metrics.jsonl, checkpoint.safetensors, and at the end
result.json and model.safetensors; nobody else can read them. SIGTERM finishes the round, saves and leaves; SIGHUP reads
the group and the keys again.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from gossamer.core.kernels import compilation
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.counters import Counters, serve
from gossamer.peers.data import prepare
from gossamer.peers.gauges import gauges
from gossamer.peers.grpc.connections import raise_descriptor_limit
from gossamer.peers.grpc.transport import GrpcTransport
from gossamer.peers.identity import group, keys
from gossamer.peers.identity.greeting import greeting
from gossamer.peers.identity.group import Group
from gossamer.peers.logs import Log, has_handlers, taken_over_stderr
from gossamer.peers.privacy_ledger import PrivacyLedger
from gossamer.peers.rounds import Node
from gossamer.runs import checkpoint, files, weights
from gossamer.runs.weights import Weights
from gossamer.simulator.allocator import tune_malloc
from gossamer.simulator.precompile import precompile
from gossamer.training.block import NodeError
from gossamer.training.privacy import secret, seeded

DAY_SECONDS = 86400.0
EXPIRY_WARNING_SECONDS = 3 * DAY_SECONDS
RETRY_SECONDS = 2.0  # between attempts to save the last state on a full disk


@dataclass
class Signals:
    """What a peer is asked to do while it runs: by signals, or by another thread that sets these."""

    leave: bool = False
    reload: threading.Event = field(default_factory=threading.Event)  # read the group and the keys again

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Follow the process's signals. Python lets only its main thread do so; in another one nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def leave(number: int, frame: object) -> None:
            if self.leave:
                raise KeyboardInterrupt
            self.leave = True

        handlers: dict[int, Callable[[int, Any], None]] = {signal.SIGTERM: leave, signal.SIGINT: leave}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = lambda number, frame: self.reload.set()
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_peer(
    experiment: Experiment,
    config: PeerConfig,
    timeouts: Timeouts = Timeouts(),
    *,
    log: Log | None = None,
    signals: Signals | None = None,
) -> dict[str, Any]:
    """Be one peer of a group in this process, until the rounds are done or it is asked to leave.

    Returns the report: rounds, the sha256 of the model, the last evaluation and all counters. `config.out` holds the
    model at the end; a peer that left goes on from its checkpoint there when it is run again. In the main thread
    SIGTERM, Ctrl-C and SIGHUP are handled while it runs. In any other thread they are not: set `signals.leave` or
    `signals.reload` from outside. torch computes with one thread from then on, so that the bits are the same
    everywhere. The log goes to `logging.getLogger("gossamer.peers")` and, if nothing handles that one's records, as
    JSON lines to standard error. ExperimentError if the experiment,
    the group or the keys cannot be used, or if most others have another experiment and none has this one. NodeError if
    a round fails, or if no neighbour was reached in the whole run: the model is in `config.out` then, too.
    """
    torch.set_num_threads(1)
    log, signals = log or Log(None if has_handlers() else 2, peer=config.name), signals or Signals()
    compilation.tell = lambda text: log("kernels", text=text)
    try:
        config.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"{config.out} cannot be made: {error.strerror}; name another directory") from None
    with signals.handled(), files.locked(config.out):
        return _run(experiment.with_digests(), config, timeouts, log, signals)


def run_process(experiment: Experiment, config: PeerConfig, timeouts: Timeouts) -> dict[str, Any]:
    """`run_peer` as all that a process does: what libraries print on standard error goes into the log, too."""
    tune_malloc()
    raise_descriptor_limit()
    with taken_over_stderr(peer=config.name) as log:
        return run_peer(experiment, config, timeouts, log=log)


def _run(experiment: Experiment, config: PeerConfig, timeouts: Timeouts, log: Log, signals: Signals) -> dict[str, Any]:
    counters = Counters()
    with ExitStack() as at_the_end:
        members = group.load(config.peers, experiment.nodes)
        me = members.member(config.name)
        run_id = group.run_id(members, experiment)
        credentials = keys.load(config.certificates, config.name)
        noise = seeded if config.seeded_noise else secret
        inputs = prepare(experiment, me.node, config.data, config.own_data)
        node = Node(inputs, me.node, run_id, timeouts, counters, log, noise)
        if experiment.privacy.on and config.seeded_noise:
            log("noise is not secret", advice="for trials: leave --seeded-noise out to protect data")
        _resume(node, config, run_id, experiment, log)
        ledger = PrivacyLedger(experiment.privacy, config.out, node.round, config.seeded_noise)
        precompile(*inputs)  # before the others wait for it
        transport = GrpcTransport(
            me, members, credentials, timeouts, counters, log,
            rounds=experiment.rounds, exchanges=node.experiment.exchanges, asynchronous=experiment.asynchronous,
            hears_again=node.hears_again, check=node.check, max_delivery_bytes=node.endpoint.max_bytes,
            max_state_bytes=node.state_transfer.max_bytes, state=node.state_transfer.frame_for,
            on_outcome=node.outcome, on_restart=node.restarted, bind=config.bind,
            greeting=greeting(
                members, experiment, sum(node.task.layer_sizes), node.endpoint.schema, node.task.layer_shapes
            ),
        )  # fmt: skip
        at_the_end.callback(lambda: transport.close(time.monotonic() + timeouts.deadline_seconds))
        _watch(signals, config, transport, experiment.nodes, at_the_end, log)
        if config.metrics:
            _serve_metrics(config, node, transport, members.run, at_the_end, log)
        if node.round < node.experiment.rounds:  # else only its results are missing
            node.wait_for_group(transport, [n for n in members.nodes if n != me.node], lambda: signals.leave)
            saved_at = _run_rounds(node, transport, config, run_id, signals, ledger)
            if node.round >= node.experiment.rounds:
                node.drain(transport, lambda: signals.leave)
            _save_at_last(node, config, run_id, signals, saved_at)
    report = _report(node, config, counters) | ledger.report()
    done = node.round >= node.experiment.rounds
    if done:
        trained = Weights(node.block.models(), node.block.buffers, node.round, node.me)
        try:
            weights.write(config.out / "model.safetensors", experiment.name, node.task, trained, node.me, private=True)
            files.replace(config.out / "result.json", json.dumps(report, indent=2).encode() + b"\n", private=True)
        except OSError as error:
            raise NodeError(
                f"{error.filename} cannot be written: {error.strerror}; the model is in the checkpoint: "
                "free some space, then start this peer again"
            ) from error
    log("done" if done else "left", **report)
    if done and _reached_nobody(node, members, counters):
        log("reached nobody", rounds=node.round)
        raise NodeError(
            f"{me.name} reached none of its neighbours in {node.round} rounds: its model, kept in {config.out}, has "
            "learned from its own data alone; its log says whom it cannot reach, and why"
        )
    return report


def _reached_nobody(node: Node, members: Group, counters: Counters) -> bool:
    """Was there someone to exchange messages with, and no message or state came or went in the whole run?"""
    totals = counters.totals()
    if any(totals[name] for name in ("messages_in", "messages_out", "pulls_in", "pulls_out")):
        return False
    exchanges = range(node.experiment.rounds * node.experiment.exchanges)
    return any(other in members.nodes for e in exchanges for each in node.neighbours(e) for other in each)


def _resume(node: Node, config: PeerConfig, run_id: int, experiment: Experiment, log: Log) -> None:
    found = checkpoint.load(config.out)
    if found is not None:
        saved, tensors = found
        if (saved.run, saved.node) != (run_id, node.me):
            raise ExperimentError(
                f"{config.out} has a state of another run, experiment or node; move it away, or name another directory"
            )
        if saved.round > experiment.rounds:
            checkpoint.damaged(config.out, f"it is of round {saved.round} of {experiment.rounds}")
        checkpoint.check_tensors(config.out, tensors, node.tensors())
        node.restore(tensors, saved.round)
        node.counters.restore(saved.totals)
        done = saved.round == experiment.rounds
        log("resumed", round=saved.round, **({"advice": "nothing is left to train"} if done else {}))
    kept = files.read_lines(config.out / "metrics.jsonl", node.round, strict=False)
    for row in kept:
        node.progress.note(row)
    try:
        if found is None:
            files.replace(config.out / "experiment.toml", toml.dumps(experiment).encode(), private=True)
        files.replace(config.out / "metrics.jsonl", files.lines(kept), private=True)
    except OSError as error:
        raise ExperimentError(
            f"{error.filename} cannot be written: {error.strerror}; mend that, then start this peer again"
        ) from error


def _run_rounds(
    node: Node, transport: GrpcTransport, config: PeerConfig, run_id: int, signals: Signals, ledger: PrivacyLedger
) -> int:
    """Run them until they are done or it is asked to leave; the round of the last state that is saved."""
    saved_at, outcast = node.round, None
    metrics: dict[str, Any] = {}
    while node.round < node.experiment.rounds and not signals.leave:
        if outcast := transport.outcast():  # asked once: the next moment it may be none
            break
        began, cpu_began = time.monotonic(), time.process_time()
        if node.experiment.asynchronous:
            node.keep_pace(transport, lambda: signals.leave)
        else:
            node.state_transfer.catch_up(transport)
        if node.round >= node.experiment.rounds:
            break
        if node.trains:  # rounds that settle tell nothing new of the data
            ledger.add()
        metrics = node.step(transport)
        totals = node.counters.totals()
        metrics |= {name: totals[name] for name in ("bytes_out", "bytes_in", "neighbours_lost", "neighbours_found")}
        metrics["node"] = node.me
        metrics["cpu_seconds"] = round(time.process_time() - cpu_began, 4)  # of all threads
        node.progress.note(metrics)
        _append(config, metrics, node.log)
        if node.round % config.checkpoint_every == 0:
            saved_at = _save(node, config, run_id, saved_at, metrics)
        node.progress.enter("pausing")
        while time.monotonic() < began + config.round_seconds and not signals.leave and not node.is_behind(transport):
            time.sleep(min(0.05, config.round_seconds))
    if saved_at != node.round:
        saved_at = _save(node, config, run_id, saved_at, metrics)
    if outcast:
        raise ExperimentError(outcast)
    return saved_at


def _save_at_last(node: Node, config: PeerConfig, run_id: int, signals: Signals, saved_at: int) -> None:
    """Do not end before the last state is saved: on a full disk, keep trying until there is space."""
    while saved_at != node.round:
        if signals.leave:
            raise NodeError(
                f"{config.out / checkpoint.NAME} has the state of round {saved_at}, that of round {node.round} could "
                "not be saved; free some space, then start this peer again, to go on from there"
            )
        time.sleep(RETRY_SECONDS)
        saved_at = _save(node, config, run_id, saved_at, {})


def _append(config: PeerConfig, metrics: dict[str, Any], log: Log) -> None:
    try:
        files.append(config.out / "metrics.jsonl", [metrics])
    except (OSError, ValueError) as error:
        log("metrics not written", round=metrics["round"], reason=str(error))


def _save(node: Node, config: PeerConfig, run_id: int, saved_at: int, metrics: dict[str, Any]) -> int:
    """Save the state; the round of the last state that is saved. A full disk does not end the training."""
    node.counters.add(checkpoints=1)
    saved = checkpoint.Saved(round=node.round, totals=node.counters.totals(), run=run_id, node=node.me)
    try:
        checkpoint.save(config.out, saved, node.tensors(), private=True)
    except OSError as error:
        node.counters.add(checkpoints=-1, checkpoints_failed=1)
        node.log(
            "state not saved", reason=error.strerror or str(error), round=node.round, last_saved=saved_at,
            advice="free some space: a restart would go on from the state saved last",
        )  # fmt: skip
        return saved_at
    measured = {key: metrics[key] for key in ("train_loss", "test_loss", node.task.metric) if key in metrics}
    node.log("saved", round=node.round, **measured)
    return node.round


def _watch(
    signals: Signals, config: PeerConfig, transport: GrpcTransport, nodes: int, at_the_end: ExitStack, log: Log
) -> None:
    """A thread that reads the group and the keys again when asked to, and that notices when the parent is gone."""
    ended, parent, expiry = threading.Event(), os.getppid(), ExpiryNotice(log)

    def reload() -> None:
        try:
            credentials = keys.load(config.certificates, config.name)
            members = group.load(config.peers, nodes)
            members.member(config.name)
            transport.reload(members, credentials)
            expiry.renewed()
            log("reloaded", peers=len(members.members), certificate_seconds=int(keys.seconds_left(credentials)))
        except ExperimentError as error:
            log("not reloaded", reason=str(error), advice="the group and keys from before stay")

    def watch() -> None:
        while not ended.is_set():
            if signals.reload.wait(0.5):
                signals.reload.clear()
                reload()
            if config.with_parent and os.getppid() != parent:
                signals.leave = True
            expiry.look(transport.credentials)

    threading.Thread(target=watch, daemon=True, name="watch").start()
    at_the_end.callback(ended.set)


class ExpiryNotice:
    """Says, once per day, that a certificate ends soon."""

    def __init__(self, log: Log):
        self._log = log
        self._next: float | None = None  # when to look again, by time.monotonic()

    def look(self, credentials: keys.Credentials) -> None:
        if self._next is not None and time.monotonic() < self._next:
            return
        left = keys.seconds_left(credentials)
        soon = left < EXPIRY_WARNING_SECONDS
        self._next = time.monotonic() + (DAY_SECONDS if soon else min(DAY_SECONDS, left - EXPIRY_WARNING_SECONDS + 1))
        if soon:
            self._log("certificate ends soon", seconds=int(left), advice="get a new one with gossamer join --renew, or "
                      "gossamer keys --renew where the authority is, and send SIGHUP")  # fmt: skip

    def renewed(self) -> None:
        """Look at once."""
        self._next = None


def _serve_metrics(
    config: PeerConfig, node: Node, transport: GrpcTransport, run: str, at_the_end: ExitStack, log: Log
) -> None:
    assert config.metrics is not None
    host, port = group.address_of(config.metrics)
    try:
        end, port = serve(host, port, node.counters, lambda: gauges(config.name, run, node, transport))
    except OSError as error:
        raise ExperimentError(
            f"{config.metrics} cannot be listened on ({error.strerror}); --metrics names another"
        ) from None
    at_the_end.callback(end)

    def ended(kind: type[BaseException] | None, *_: object) -> None:
        node.progress.enter("failed" if kind else "done" if node.round >= node.experiment.rounds else "left")

    at_the_end.push(ended)  # before the page ends, so that who reads it learns how it went
    log("metrics", address=f"http://{host}:{port}/metrics")


def _report(node: Node, config: PeerConfig, counters: Counters) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        rows = files.read_lines(config.out / "metrics.jsonl", strict=False)
        last = next((row for row in reversed(rows) if "test_loss" in row), {})
        measured = {key: last[key] for key in (node.task.metric, "test_loss") if key in last}
    return {
        "name": config.name,
        "node": node.me,
        "rounds": node.round,
        "model_sha256": node.digest(),
        **measured,
        **counters.totals(),
    }
