"""The parts of a peer, one by one, without a network."""

import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import msgspec
import pytest
import torch
from harness import Scripted, lone_node

from gossamer.algorithms import Choco, Dpsgd, Jwins
from gossamer.compressors import TopK
from gossamer.core import Part, row_of
from gossamer.data import Cifar10, Quadratic
from gossamer.data.partition import LabelShards
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import PeerConfig, Timeouts
from gossamer.peers.counters import MEANINGS, Counters
from gossamer.peers.data import prepare
from gossamer.peers.grpc.liveness import Liveness
from gossamer.peers.grpc.protocol import Heartbeat
from gossamer.peers.grpc.queues import MOST_WAITING, Delivered, Link, Mailbox, Outcome, Outgoing, Verdict
from gossamer.peers.identity import group, keys
from gossamer.peers.logs import Log, has_handlers
from gossamer.peers.peer import ExpiryNotice
from gossamer.peers.peer import _resume as resume
from gossamer.peers.transport import Arrived
from gossamer.peers.waits import Waits
from gossamer.runs import checkpoint
from gossamer.simulator.simulation import Simulation
from gossamer.training.block import Block
from gossamer.wire import WireError

QUADRATIC = Experiment(nodes=7, rounds=6, task=Quadratic(dimension=53, num_samples=210), algorithm=Jwins())


# The mailbox.


def arrived(sender: int, round: int) -> Arrived:
    return Arrived(sender, round, (b"frame",))


def never(sender: int, round: int) -> bool:
    return False


def test_the_mailbox_keeps_what_is_near_refuses_what_is_used_and_what_is_stale() -> None:
    box = Mailbox(ahead_rounds=1, late_rounds=2)
    box.begin(5)
    now = time.monotonic()
    assert box.put(arrived(1, 5), now) is Verdict.KEPT
    assert box.put(arrived(1, 5), now) is Verdict.DUPLICATE
    assert box.put(arrived(1, 6), now) is Verdict.KEPT
    assert box.put(arrived(1, 7), now) is Verdict.EARLY
    assert box.put(arrived(2, 3), now) is Verdict.KEPT
    assert box.put(arrived(2, 2), now) is Verdict.STALE
    assert box.take(5, [1], now, never) == [arrived(1, 5), arrived(2, 3)]
    assert box.put(arrived(1, 5), now) is Verdict.DUPLICATE, "a restarted sender would be counted twice"
    assert box.begin(9) == 1, "what is dropped is told"


def test_an_early_message_waits_with_its_sender_until_the_receiver_is_there() -> None:
    box = Mailbox(ahead_rounds=1, late_rounds=2)
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(box.put(arrived(1, 3), time.monotonic() + 30)))
    thread.start()
    time.sleep(0.05)
    assert not found
    box.begin(2)
    thread.join(30)
    assert found == [Verdict.KEPT]


def test_taking_ends_at_the_deadline_and_does_not_wait_for_what_cannot_arrive() -> None:
    box = Mailbox(ahead_rounds=1, late_rounds=2)
    started = time.monotonic()
    assert box.take(0, [1, 2], started + 0.2, never) == []
    assert time.monotonic() - started >= 0.2
    assert box.take(0, [1, 2], time.monotonic() + 600, lambda sender, round: True) == []
    box.put(arrived(1, 1), started)
    assert box.take(0, [1], time.monotonic() + 600, never) == [], "a link keeps the order: round 0 will not come"
    assert box.put(arrived(2, 9), time.monotonic()) is Verdict.EARLY
    assert box.take(0, [2], time.monotonic() + 600, never) == [], "nor from one that waits to bring a later round"


# Links.


def test_a_full_mailbox_makes_room_for_what_is_waited_for() -> None:
    box = Mailbox(inf, inf)
    for round in range(MOST_WAITING):
        assert box.put(Arrived(1, round, ()), 0.0) is Verdict.KEPT
    assert box.put(Arrived(1, 100, ()), 0.0) is Verdict.EARLY
    later = threading.Thread(target=lambda: box.put(Arrived(1, 100, ()), time.monotonic() + 20))
    later.start()
    taken = box.take(100, [1], time.monotonic() + 20, lambda sender, round: False)
    later.join()
    assert [arrived.round for arrived in taken] == [*range(MOST_WAITING), 100]


def test_a_restarted_sender_may_be_heard_again() -> None:
    box = Mailbox(inf, inf)
    box.put(Arrived(1, 5, ()), 0.0)
    box.take(5, [1], 0.0, lambda sender, round: False)
    assert box.put(Arrived(1, 3, ()), 0.0) is Verdict.DUPLICATE
    box.forget(1)
    assert box.put(Arrived(1, 3, ()), 0.0) is Verdict.KEPT


def test_a_link_keeps_the_order_tries_again_and_drops_what_waits_too_long() -> None:
    sent: list[tuple[int, bytes]] = []
    done: list[tuple[int, int, int, bool]] = []
    open_gate, tries = threading.Event(), [0]

    def send(round: int, payload: Callable[[], bytes], until: float) -> Delivered:
        open_gate.wait(30)
        tries[0] += 1
        if tries[0] == 1:
            return Delivered(Outcome.RETRY, 4)
        sent.append((round, payload()))
        return Delivered(Outcome.TAKEN, len(payload()))

    link = Link("b", send, lambda *what: done.append(what), lambda: True)
    later = time.monotonic() + 60
    link.offer(Outgoing(0, lambda: b"zero", later), later)
    while link._queued is not None:
        time.sleep(0.001)
    link.offer(Outgoing(1, lambda: b"one", later), later)
    link.offer(Outgoing(2, lambda: b"two", later), time.monotonic() + 0.05)  # the one that waits makes room
    assert done == [(1, 0, 0, False)]
    assert link.oldest == 0
    open_gate.set()
    link.flush(time.monotonic() + 30)
    assert link.oldest is None
    assert sent == [(0, b"zero"), (2, b"two")]
    assert done[1:] == [(0, 4, 2, True), (2, 3, 1, True)]
    link.close()
    link.join(10)


def test_a_receiver_that_says_new_incarnation_for_ever_is_not_sent_to_all_the_time() -> None:
    tries: list[float] = []

    def send(round: int, payload: Callable[[], bytes], until: float) -> Delivered:
        tries.append(time.monotonic())
        return Delivered(Outcome.NEW_INCARNATION, 4)

    link = Link("b", send, lambda *what: None, lambda: True)
    later = time.monotonic() + 1.0
    link.offer(Outgoing(0, lambda: b"zero", later), later)
    link.flush(time.monotonic() + 30)
    assert 2 <= len(tries) <= 10, "at once the first time, and then ever more slowly"
    link.close()
    link.join(10)


# Who is there.


def test_a_neighbour_is_lost_when_it_is_silent_or_refuses_and_found_when_it_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    changes: list[tuple[int, bool]] = []
    liveness = Liveness(5.0, lambda node, alive: changes.append((node, alive)))
    assert liveness.alive(1), "until something speaks against it"
    liveness.heard(1, round=3, settled=3)
    liveness.silent(1, refused=False)
    clock[0] += 4
    liveness.silent(1, refused=False)
    assert liveness.alive(1)
    clock[0] += 2
    liveness.silent(1, refused=False)
    assert not liveness.alive(1)
    assert liveness.cannot_arrive(1, 99)
    liveness.heard(1)
    clock[0] += 0.5
    liveness.silent(1, refused=True)
    assert liveness.alive(1)
    assert liveness.suspected(1)
    clock[0] += 1.5
    liveness.silent(1, refused=True)
    assert changes == [(1, False), (1, True), (1, False)]


def test_a_message_cannot_arrive_only_if_its_sender_is_past_it_and_has_dealt_with_it() -> None:
    liveness = Liveness(5.0, lambda node, alive: None)
    liveness.heard(1, round=4, settled=3)
    assert not liveness.cannot_arrive(1, 3), "it may be on its way"
    assert liveness.cannot_arrive(1, 2)
    liveness.heard(1, round=4, settled=4)
    assert liveness.cannot_arrive(1, 3)
    assert not liveness.cannot_arrive(1, 4)
    liveness.sent(1, 7)
    assert liveness.round_of(1) == 7
    assert not liveness.cannot_arrive(1, 5)


# Keys and groups.


def test_keys_are_for_their_owner_only_and_are_renewed_when_asked(tmp_path: Path) -> None:
    written = keys.make(tmp_path / "keys", ["alice", "bob"])
    assert {path.name for path in written} == {"ca.key", "ca.pem", "alice.key", "alice.pem", "bob.key", "bob.pem"}
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if path.suffix == ".key" else 0o644)
    first = keys.load(tmp_path / "keys", "alice")
    assert 29 < keys.seconds_left(first) / 86400 <= 30
    with pytest.raises(ExperimentError, match="renew it with --renew"):
        keys.make(tmp_path / "keys", ["alice"])
    keys.make(tmp_path / "keys", ["alice"], days=7, renew=True)
    second = keys.load(tmp_path / "keys", "alice")
    assert second.authority == first.authority
    assert second.certificate != first.certificate
    assert 6 < keys.seconds_left(second) / 86400 <= 7
    with pytest.raises(ExperimentError, match="small letters"):
        keys.make(tmp_path / "keys", ["Alice!"])


def test_keys_that_others_can_read_or_that_belong_to_another_are_not_used(tmp_path: Path) -> None:
    keys.make(tmp_path, ["alice", "bob"])
    os.chmod(tmp_path / "bob.key", 0o644)
    with pytest.raises(ExperimentError, match=r"others can read .*chmod 600"):
        keys.load(tmp_path, "bob")
    (tmp_path / "carol.pem").write_bytes((tmp_path / "alice.pem").read_bytes())
    (tmp_path / "carol.key").write_bytes((tmp_path / "alice.key").read_bytes())
    os.chmod(tmp_path / "carol.key", 0o600)
    with pytest.raises(ExperimentError, match="the certificate of alice, not of carol"):
        keys.load(tmp_path, "carol")
    with pytest.raises(ExperimentError, match="gossamer keys makes it"):
        keys.load(tmp_path, "dave")


def test_a_key_that_does_not_fit_its_certificate_is_told(tmp_path: Path) -> None:
    keys.make(tmp_path, ["alice", "bob"])
    (tmp_path / "alice.key").write_bytes((tmp_path / "bob.key").read_bytes())
    with pytest.raises(ExperimentError, match=r"alice\.key is not the key of .*alice\.pem; copy both"):
        keys.load(tmp_path, "alice")


def test_a_clock_outside_the_certificates_time_is_told_with_both_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.make(tmp_path, ["alice"])

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(hours=3)

    monkeypatch.setattr(keys, "datetime", Later)
    with pytest.raises(ExperimentError, match=r"this machine's clock says 2000-01-01 03:00.*set the clock"):
        keys.load(tmp_path, "alice")


GROUP = """
run = "one"

[peers.alice]
node = 0
address = "10.0.0.1:7000"

[peers.bob]
node = 1
address = "[::1]:7001"
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GROUP.replace("node = 1", "node = 0"), "alice and bob are both node 0"),
        (GROUP.replace("node = 1", "node = 9"), "bob is node 9, and the nodes are 0 to 1"),
        (GROUP.replace("7001", "port"), 'written "host:port"'),
        (GROUP.replace("7001", "99999"), "a port is at most 65535"),
        (GROUP.replace("bob", "Bob"), "small letters"),
        (GROUP + 'relay = "carol"', "relay of bob is 'carol', and must be another with an address; those are alice"),
        (GROUP + 'relay = "bob"', "relay of bob is 'bob', and must be another"),
        (GROUP.replace('address = "10.0.0.1:7000"', "") + 'relay = "alice"', "an address; there is none"),
        (GROUP.replace("address", "adress"), "with node and address, or relay if it can have none"),
        ('run = "one"\npeers = {}', "lists no peer"),
        ("peers = 3", "a peer is written"),
    ],
)
def test_mistakes_in_the_groups_file_are_told(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "peers.toml").write_text(text)
    with pytest.raises(ExperimentError, match=complaint):
        group.load(tmp_path / "peers.toml", 2)


def test_a_group_is_read_as_it_was_written_and_runs_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "peers.toml").write_text(GROUP)
    read = group.load(tmp_path / "peers.toml", 2)
    assert read.member("bob").address == "[::1]:7001"
    (tmp_path / "again.toml").write_text(group.dumps(read))
    assert group.load(tmp_path / "again.toml", 2) == read
    hidden = GROUP.replace('address = "[::1]:7001"', 'relay = "alice"')
    (tmp_path / "hidden.toml").write_text(hidden)
    there = group.load(tmp_path / "hidden.toml", 2)
    assert (there.member("bob").address, there.member("bob").relay) == ("", "alice")
    (tmp_path / "again.toml").write_text(group.dumps(there))
    assert group.load(tmp_path / "again.toml", 2) == there
    with pytest.raises(ExperimentError, match="carol is not in the group"):
        read.member("carol")
    experiment = replace(QUADRATIC, nodes=2)
    same = group.run_id(read, experiment)
    assert same == group.run_id(group.Group("one", {}), replace(experiment, name="other"))
    assert same != group.run_id(group.Group("two", {}), experiment)
    assert same != group.run_id(read, replace(experiment, seed=1))
    assert same != group.run_id(read, replace(experiment, algorithm=Jwins(budget=0.2)))
    here, there = (replace(experiment, task=Cifar10(root=root)) for root in ("/here", "/there"))
    assert group.run_id(read, here) == group.run_id(read, there)  # where a peer's files are is its own affair


# What is kept.


def test_a_peer_goes_on_from_its_own_state_and_refuses_that_of_another(tmp_path: Path) -> None:
    node, log = lone_node(QUADRATIC), Log(os.open(os.devnull, os.O_WRONLY))
    config = PeerConfig("d", tmp_path / "group", tmp_path, tmp_path)
    saved = checkpoint.Saved(round=5, totals={"bytes_out": 7}, run=77, node=node.me)
    for changed in ({"run": 78}, {"node": 4}, {"run": None}):
        checkpoint.save(tmp_path, msgspec.structs.replace(saved, **changed), node.tensors())
        with pytest.raises(ExperimentError, match="has a state of another run, experiment or node; move it away"):
            resume(node, config, 77, QUADRATIC, log)
    checkpoint.save(tmp_path, saved, {"x": torch.zeros(1, 2)})
    with pytest.raises(ExperimentError, match="is not as this experiment has it"):
        resume(node, config, 77, QUADRATIC, log)
    checkpoint.save(tmp_path, saved, node.tensors())
    resume(node, config, 77, QUADRATIC, log)
    assert node.round == 5
    assert node.counters.totals()["bytes_out"] == 7


def test_totals_go_on_after_a_restart() -> None:
    counters = Counters()
    assert set(counters.totals()) == set(MEANINGS)
    counters.add(bytes_out=3, missing=1)
    again = Counters()
    again.restore(counters.totals() | {"unknown": 1})
    again.add(bytes_out=4)
    assert again.totals()["bytes_out"] == 7


# A node and its messages.


def frame_of(experiment: Experiment, node: int, round: int, run_id: int = 77) -> bytes:
    task = experiment.task.load()
    experiment = experiment.prepared(task)
    shards, x0 = [experiment.shards(task)[node]], task.initial_model(0)[None]
    block = Block(experiment, experiment.trainer_for(task), [node], shards, x0)
    endpoint = experiment.endpoint(task, node, run_id)
    block.train(0)
    return endpoint.send(block.send(0), round).bytes_for(0)


def test_deliveries_are_checked_for_run_sender_round_and_damage() -> None:
    node, frame = lone_node(QUADRATIC), frame_of(QUADRATIC, 2, 4)
    assert [checked.content for checked in node.check(frame, 2, 4)] == [frame]
    older = frame_of(QUADRATIC, 2, 3)
    assert [checked.content for checked in node.check(older + frame, 2, 4)] == [older, frame]
    for delivery, sender, round, complaint in [
        (frame, 1, 4, "node 2 sent it, and node 1 did"),
        (frame, 2, 5, "A delivery of round 5 holds"),
        (frame + older, 2, 3, "holds frames of rounds"),
        (frame + b"x", 2, 4, "left over"),
        (b"", 2, 4, "holds frames of rounds"),
        (frame_of(QUADRATIC, 2, 4, run_id=78), 2, 4, "belongs to run"),
        (frame_of(replace(QUADRATIC, seed=1), 2, 4), 2, 4, "not those of this algorithm"),
    ]:
        with pytest.raises(WireError, match=complaint):
            node.check(delivery, sender, round)
    assert len(frame) <= node.endpoint.max_bytes


def test_values_that_are_not_finite_are_counted_and_not_taken_in() -> None:
    node = lone_node(replace(QUADRATIC, algorithm=Dpsgd()))
    (sender, *_), own = node.neighbours(0)[1], Part(torch.zeros(1, 53))
    for poison in (float("nan"), float("inf")):
        neighbour = node.experiment.endpoint(node.task, sender, run_id=77)
        sent = neighbour.send({"x": Part(torch.full((1, 53), poison))}, 0)
        frames = node.check(sent.bytes_for(node.me), sender, 0)
        missing = node._take_in(0, [Arrived(sender, 0, frames)], {"x": own}, [sender], Scripted())
        assert missing == 1
        assert torch.isfinite(node.block.models()).all()
    assert node.counters.totals()["bad_frames"] == 2


def test_sums_may_grow_with_the_rounds_and_other_numbers_may_not() -> None:
    summing = lone_node(replace(QUADRATIC, algorithm=Choco(TopK(0.5))))
    plain = lone_node(replace(QUADRATIC, algorithm=Dpsgd()))
    for node in (summing, plain):
        node._note_sizes(node.endpoint.send(row_of(node.block.send(0), 0), 0).own)
    (first,), (once,) = summing._limits().values(), plain._limits().values()
    assert first >= 1000
    summing.round = plain.round = 20_000
    assert summing._limits() == {"q": pytest.approx(21 * first)}
    assert plain._limits() == {"x": once}


def test_an_adaptive_deadline_follows_recent_waits_within_bounds() -> None:
    waits = Waits(Timeouts(deadline_seconds=30, adaptive=True))
    for _ in range(20):
        assert waits.deadline_seconds == 30
        waits.add(2.0, complete=True)
    waits.add(25.0, complete=False)  # a round that met its deadline says nothing
    assert waits.deadline_seconds == 8
    waits.add(20.0, complete=True)
    assert waits.deadline_seconds == 30
    for _ in range(20):
        waits.add(0.001, complete=True)
    assert waits.deadline_seconds == 1


def test_heartbeats_are_read_as_they_were_written_and_nothing_else_is() -> None:
    assert Heartbeat.read(Heartbeat(7, 6, True, 1.5, 9).write()) == Heartbeat(7, 6, True, 1.5, 9)
    for content in (
        b"",
        b"x" * 21,
        Heartbeat(1, 0, False, float("nan"), 0).write(),
        Heartbeat(1, 2, False, 0.0, 0).write(),
    ):
        with pytest.raises(ValueError, match="a heartbeat"):
            Heartbeat.read(content)


def test_a_log_writes_json_lines_and_few_of_what_others_cause(tmp_path: Path) -> None:
    import json

    with (tmp_path / "log").open("wb") as file:
        log = Log(file.fileno(), peer="alice")
        log("begins", round=3)
        for _ in range(500):
            log.rate_limited("refused", reason="no")
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {"event": "begins", "peer": "alice", "round": 3}.items() <= rows[0].items()
    assert 50 <= len(rows) <= 152


def test_a_program_takes_the_log_as_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gossamer.peers")
    log = Log(None, peer="alice")
    log("begins", round=3)
    log("neighbour lost", neighbour="bob", name="no trouble")
    found = [(record.name, record.levelname, record.event, record.details) for record in caplog.records]  # type: ignore[attr-defined]
    assert found == [
        ("gossamer.peers", "INFO", "begins", {"peer": "alice", "round": 3}),
        ("gossamer.peers", "WARNING", "neighbour lost", {"peer": "alice", "neighbour": "bob", "name": "no trouble"}),
    ]


def test_lines_are_written_only_if_nobody_handles_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert not has_handlers()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler()])
    assert has_handlers()
    monkeypatch.setattr(logging.getLogger("gossamer.peers"), "propagate", False)
    assert not has_handlers()


def test_a_peer_says_once_per_day_that_its_certificate_ends_soon(tmp_path: Path) -> None:
    keys.make(tmp_path / "keys", ["alice"], days=1)
    with (tmp_path / "log").open("wb") as file:
        notice = ExpiryNotice(Log(file.fileno()))
        for _ in range(3):
            notice.look(keys.load(tmp_path / "keys", "alice"))
        assert (tmp_path / "log").read_text().count("certificate ends soon") == 1
        keys.make(tmp_path / "keys", ["alice"], days=30, renew=True)
        notice.renewed()
        notice.look(keys.load(tmp_path / "keys", "alice"))
    assert (tmp_path / "log").read_text().count("certificate ends soon") == 1


def test_own_data_must_be_inputs_and_targets(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    experiment = Experiment(nodes=5)
    with pytest.raises(ExperimentError, match=r"has no train\.safetensors, and Digits reads no other files"):
        prepare(experiment, 0, tmp_path)
    save_file({"inputs": torch.rand(5, 64)}, tmp_path / "train.safetensors")
    with pytest.raises(ExperimentError, match="must hold inputs and targets"):
        prepare(experiment, 0, tmp_path)
    save_file({"inputs": torch.rand(5, 3), "targets": torch.arange(5)}, tmp_path / "train.safetensors")
    with pytest.raises(ExperimentError, match="the model does not take the data"):
        prepare(experiment, 0, tmp_path)
    save_file({"inputs": torch.rand(5, 64), "targets": torch.arange(5)}, tmp_path / "train.safetensors")
    assert prepare(experiment, 0, tmp_path).samples.tolist() == [0, 1, 2, 3, 4]


def test_faults_and_pooled_data_are_for_the_simulator() -> None:
    from gossamer.algorithms import Centralized

    with pytest.raises(ExperimentError, match="faults: peers meet real ones"):
        prepare(replace(QUADRATIC, faults=Faults(drop=0.1)), 0, None)
    with pytest.raises(ExperimentError, match="one node hold all data"):
        prepare(replace(QUADRATIC, algorithm=Centralized()), 0, None)


def test_a_peer_tests_its_model_on_its_own_distribution_as_the_simulator_does() -> None:
    evaluation = Evaluation(samples="all", nodes="all", personal=True)
    experiment = Experiment(nodes=4, rounds=1, topology=Ring(), partition=LabelShards(2), evaluation=evaluation)
    with Simulation(experiment, workers=1) as simulation:
        expected, models = simulation.step(), simulation.models()
        found = []
        for me in range(4):
            peer = lone_node(experiment, me)
            peer.block.models()[0].copy_(models[me])
            peer.round = 1
            found.append(peer.evaluation()["accuracy_personal"])
    assert sum(found) / 4 == pytest.approx(expected["accuracy_personal_mean"], abs=1e-12)
    assert len({*found}) > 1
