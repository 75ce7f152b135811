"""The virtual clock: schedules worked out by hand, and real runs against a list of events."""

import heapq
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer
from gossamer.algorithms import Dpsgd, Lace, LocalOnly, Silk
from gossamer.data import Quadratic
from gossamer.experiments import toml
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError, Wire
from gossamer.experiments.recipes import dpsgd_digits
from gossamer.graphs.clock import Clock, LogNormal, Times, Uniform
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRing, Matchings, Ring
from gossamer.runs.run import Run
from gossamer.simulator.simulation import Simulation

SMALL = Experiment(
    task=Quadratic(),
    nodes=8,
    rounds=6,
    local_steps=2,
    topology=Ring(),
    evaluation=Evaluation(every=3),
    algorithm=Dpsgd(),
)
SLOW_NODES = (0.25, 0.1, 3.0, 0.1, 0.1, 0.2, 1.0, 0.1)


def test_the_schedule_of_a_ring_of_four_is_the_one_worked_out_by_hand() -> None:
    # A ring 0 - 1 - 2 - 3 - 0. A message of 1000 bytes takes 1 s of an uplink of 0.008 Mbit/s, and 2 s of node 1's,
    # which is half as quick; a node sends two. A latency of 0.25 s at each end is 0.5 s in all. A local step takes
    # nodes 0, 1 and 2 a quarter of a second, and node 3 four seconds.
    clock = Clock(
        step_seconds=(0.25, 0.25, 0.25, 4.0),
        latency_seconds=0.25,
        uplink_megabits=(0.008, 0.004, 0.008, 0.008),
        downlink_megabits=1.0,
    )
    speeds, mixing = clock.speeds(4, seed=0), Ring().at(4, 0, 0)
    others = mixing.senders != mixing.receivers
    senders, receivers = mixing.senders[others], mixing.receivers[others]
    times, expected = Times.start(4), []
    for round in range(2):
        latencies, rates = clock.links_in(speeds, senders, receivers, round)
        times = times.computed(clock.step_seconds_in(speeds, round))
        times = times.exchanged(senders, receivers, 8 * 1000 / rates, latencies, np.ones(8, bool))
        expected.append((times.ready.tolist(), times.uplink.tolist()))

    # Round 1. Steps end at   0.25  0.25  0.25  4
    # both messages have left 2.25  4.25  2.25  6
    # and are there at        2.75  4.75  2.75  6.5
    # 0 and 2 wait for 1 and 3 until 6.5; 1 waits for 0 and 2 until 2.75; 3 has everything when it is done, at 4.
    assert expected[0] == ([6.5, 2.75, 6.5, 4.0], [2.25, 4.25, 2.25, 6.0])
    # Round 2. Steps end at   6.75  3     6.75  8
    # sending begins at       6.75  4.25  6.75  8     (the uplink of node 1 was not free at 3)
    # both messages have left 8.75  8.25  8.75  10
    # and are there at        9.25  8.75  9.25  10.5
    # 0 and 2 wait for 3 until 10.5; 1 and 3 wait for 0 and 2 until 9.25.
    assert expected[1] == ([10.5, 9.25, 10.5, 9.25], [8.75, 8.25, 8.75, 10.0])


def test_a_message_takes_the_lower_of_its_senders_uplink_and_its_receivers_downlink() -> None:
    clock = Clock(uplink_megabits=(1.0, 8.0), downlink_megabits=(2.0, 4.0), latency_seconds=(0.1, 0.2))
    latencies, rates = clock.links_in(clock.speeds(2, 0), np.array([0, 1]), np.array([1, 0]), 0)
    assert rates.tolist() == [1e6, 2e6]
    assert latencies == pytest.approx([0.3, 0.3])


def events(run: Run, directory: Path) -> list[float]:
    """clock_seconds of every round of a run without faults, by an event queue over its ledger: an oracle."""
    experiment = run.experiment
    assert experiment is not None
    clock, n = experiment.clock, experiment.nodes
    speeds = clock.speeds(n, experiment.seed)
    lines = [json.loads(line) for line in (directory / "ledger.jsonl").read_text().splitlines()]
    steps = [0.0 if r >= experiment.training_rounds else experiment.local_steps for r in range(experiment.rounds)]
    ready, free, ends = [0.0] * n, [0.0] * n, []
    for exchange in range(experiment.rounds * experiment.exchanges):
        round, index = divmod(exchange, experiment.exchanges)
        here = [x for x in lines if x["round"] == round + 1 and x.get("exchange", 0) == index]
        queue: list[tuple[float, int, dict[str, int]]] = []
        for node in range(n):
            if index == 0:
                ready[node] += steps[round] * float(speeds.step_seconds[node])
            leaves, mine = max(ready[node], free[node]), [x for x in here if x["sender"] == node]
            for line in mine:
                bits = 8 * sum(line[kind] for kind in ("header", "indices", "values", "resync") if kind in line)
                leaves += bits / min(speeds.uplink[node], speeds.downlink[line["receiver"]])
            for line in mine:
                delay = speeds.latency_seconds[node] + speeds.latency_seconds[line["receiver"]]
                heapq.heappush(queue, (float(leaves + delay), len(queue), line))
            free[node] = leaves if mine else free[node]
        while queue:
            time, _, line = heapq.heappop(queue)
            ready[line["receiver"]] = max(ready[line["receiver"]], time)
        if index == experiment.exchanges - 1:
            ends.append(max(ready))
    return ends


@pytest.mark.parametrize(
    "experiment",
    [
        replace(SMALL, clock=Clock("4g", SLOW_NODES)),
        replace(SMALL, clock=Clock("mixed", LogNormal(0.05)), exchanges=2, settle=2),
        replace(SMALL, clock=Clock("lora", Uniform(0.1, 0.4)), topology=DirectedRing(), algorithm=gossamer.Sgp()),
        replace(SMALL, clock=Clock("wifi", 0.01), algorithm=Silk()),
        replace(dpsgd_digits(), rounds=6, settle=2, exchanges=2, topology=Matchings(), algorithm=Lace(),
                clock=Clock("4g", 0.02)),
    ],
)  # fmt: skip
def test_a_run_takes_the_time_that_a_queue_of_events_finds_from_its_ledger(
    experiment: Experiment, tmp_path: Path
) -> None:
    run = gossamer.simulate(replace(experiment, wire=Wire(ledger=True)), tmp_path / "run", workers=1)
    found = [metrics["clock_seconds"] for metrics in run.metrics]
    assert found == pytest.approx(events(run, tmp_path / "run"), rel=1e-12)
    assert all(0 < metrics["clock_seconds_mean"] <= metrics["clock_seconds"] for metrics in run.metrics)
    assert run.result["clock_seconds"] == found[-1]


@pytest.mark.parametrize("algorithm", [Dpsgd(), Silk()])
def test_a_clock_changes_neither_models_nor_bytes_nor_other_metrics(algorithm: gossamer.Algorithm) -> None:
    plain, timed = (
        gossamer.simulate(replace(SMALL, algorithm=algorithm, clock=clock), workers=1)
        for clock in (Clock(), Clock("4g", 0.1))
    )
    assert torch.equal(plain.models, timed.models)
    for one, other in zip(plain.metrics, timed.metrics, strict=True):
        of_clock = other.keys() - one.keys()
        assert all(key.startswith(("clock_", "energy_", "battery_")) for key in of_clock)
        assert len(of_clock) == 6
        assert {k: v for k, v in one.items() if k != "seconds"}.items() <= other.items()
    assert plain.result["metric"] == timed.result["metric"] == "distance"


def test_a_clock_goes_on_after_a_resume_where_it_was(tmp_path: Path) -> None:
    experiment = replace(SMALL, clock=Clock("mixed", LogNormal(0.1)), faults=Faults(drop=0.1, down=((2, 2, 4),)))
    whole = gossamer.simulate(experiment, workers=1)
    with Simulation(experiment, workers=1) as first:
        for _ in range(3):
            first.step()
        saved, totals = {name: tensor.clone() for name, tensor in first.save().items()}, dict(first.totals)
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, 3, totals)
        for expected in whole.metrics[3:]:
            found = second.step()
            assert {k: v for k, v in found.items() if k != "seconds"}.items() <= expected.items()


def test_nobody_waits_for_what_is_lost_or_late_or_for_a_node_that_is_down() -> None:
    def seconds(faults: Faults) -> float:
        return gossamer.simulate(replace(SMALL, faults=faults, clock=Clock("wifi", SLOW_NODES)), workers=1).result[
            "clock_seconds"
        ]

    slowest = 6 * 2 * 3.0  # node 2 itself
    assert seconds(Faults()) > slowest
    assert seconds(Faults(down=((2, 1, 6),))) < 6 * 2 * 1.0 + 1
    # Node 2's messages are late, so that others go on without them; it itself is as slow as before.
    late = gossamer.simulate(
        replace(SMALL, faults=Faults(late=((2, 1),)), clock=Clock("wifi", SLOW_NODES)), workers=1
    ).result
    assert late["clock_seconds"] == pytest.approx(slowest, rel=0.01)
    assert late["clock_seconds_mean"] < 0.6 * slowest


def test_local_steps_alone_take_their_seconds_and_no_radio() -> None:
    result = gossamer.simulate(
        replace(dpsgd_digits(), rounds=5, algorithm=LocalOnly(), clock=Clock("4g", 0.5)), workers=1
    ).result
    assert result["clock_seconds"] == 5 * 3 * 0.5
    assert result["energy_joules_radio_mean"] == 0
    assert result["energy_joules_mean"] > 0


def test_energy_is_that_of_the_steps_and_of_every_byte_sent_and_received() -> None:
    experiment = replace(dpsgd_digits(), rounds=4, clock=Clock("lora", battery_wh=5.0))
    result = gossamer.simulate(experiment, workers=1).result
    # 29 mA and 10.8 mA at 3.3 V over 5470 bits per second; each byte is sent by one node and received by another.
    per_byte = 3.3 * (0.029 + 0.0108) * 8 / 5470
    assert result["energy_joules_radio_mean"] == pytest.approx(per_byte * result["bytes_total"] / 16)
    # 16 samples through 64 x 64 and 64 x 10 weights: 3 adds and 3 mults for each, 0.9 and 3.7 pJ; ReLU costs nothing.
    steps = 4 * 3 * 3 * 16 * (64 * 64 + 64 * 10) * (0.9 + 3.7) * 1e-12
    assert result["energy_joules_mean"] - result["energy_joules_radio_mean"] == pytest.approx(steps, rel=1e-6)
    assert result["battery_share_mean"] == pytest.approx(result["energy_joules_mean"] / (5 * 3600))


def test_distributions_are_drawn_from_each_nodes_own_stream() -> None:
    few, many = (Clock(step_seconds=LogNormal(0.1, 0.5)).speeds(nodes, 3).step_seconds for nodes in (4, 20_000))
    assert few.tolist() == many[:4].tolist()
    assert np.median(many) == pytest.approx(0.1, rel=0.02)
    assert np.log(many).std() == pytest.approx(0.5, rel=0.02)
    flat = Clock(step_seconds=Uniform(1, 3)).speeds(20_000, 3).step_seconds
    assert (flat.min(), flat.max(), flat.mean()) == pytest.approx((1, 3, 2), abs=0.02)
    networks = Clock("mixed").speeds(3000, 0).uplink
    assert all(800 < (networks == rate).sum() < 1200 for rate in (1e9, 20e6, 6e6))


def test_traces_hold_from_their_round_on_and_a_run_notes_what_they_were(tmp_path: Path) -> None:
    steps, links = tmp_path / "steps.csv", tmp_path / "links.csv"
    steps.write_text("round,node,step_seconds\n1,0,0.5\n3,0,2\n")
    links.write_text("round,sender,receiver,latency_seconds,megabits\n2,0,1,1.5,0.5\n")
    clock = Clock("lan", 0.1, steps=str(steps), links=str(links)).with_digests()
    speeds = clock.speeds(8, 0)
    assert [clock.step_seconds_in(speeds, round)[0] for round in range(4)] == [0.5, 0.5, 2, 2]
    assert clock.step_seconds_in(speeds, 0)[1] == 0.1
    ends = np.array([0, 1]), np.array([1, 0])
    assert [clock.links_in(speeds, *ends, round)[1].tolist() for round in range(2)] == [[1e9, 1e9], [5e5, 1e9]]
    assert clock.links_in(speeds, *ends, 1)[0].tolist() == [1.5, 0.0002]
    experiment = replace(SMALL, clock=clock)
    assert toml.read(toml.write(experiment)) == experiment
    assert gossamer.simulate(experiment, workers=1).result["clock_seconds"] > 2 * 4 * 2
    steps.write_text("round,node,step_seconds\n1,0,0.6\n")
    with pytest.raises(ExperimentError, match="is not the one whose digest is"):
        gossamer.simulate(experiment, workers=1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "line 1 of the trace .* must be round,node,step_seconds"),
        ("round,node\n", "line 1"),
        ("round,node,step_seconds\n1,0,fast\n", "line 2 of the trace .* '1,0,fast' was found"),
        ("round,node,step_seconds\n0,0,1\n", "line 2"),
        ("round,node,step_seconds\n1,0.5,1\n", "line 2"),
        ("round,node,step_seconds\n1,0,-1\n", "line 2"),
        ("round,node,step_seconds\n1,0,1,1\n", "line 2"),
        ("round,node,step_seconds\n\n1,8,1\n", "node 8 was given in a trace, and the nodes are 0 to 7"),
    ],
)
def test_a_trace_that_is_none_is_refused_with_its_line(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(content)
    with pytest.raises(ExperimentError, match=told):
        gossamer.simulate(replace(SMALL, clock=Clock(steps=str(path))), workers=1)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("step_seconds=-1", "step_seconds must be a number at least 0, a list of one per node, or a distribution"),
        ("step_seconds=[0.1, 0.2]", "step_seconds has 2 numbers, and there are 8 nodes"),
        ("step_seconds=normal", r"no 'normal' \(did you mean lognormal\?\); take one of uniform, lognormal"),
        ('step_seconds={name="uniform"}', "step_seconds.low: 'uniform' needs it"),
        ("uplink_megabits=0", "uplink_megabits must be a number over 0"),
        (
            'uplink_megabits={name="uniform", low=0, high=1}',
            "uplink_megabits must be over 0, and Uniform.* is 0 somewhere",
        ),
        ('downlink_megabits={name="lognormal", median=0}', "downlink_megabits must be over 0"),
        ("network=5g", '"lan" or "wifi" or "4g" or "lora" or "mixed"'),
        ("battery_wh=0", "battery_wh must be a number over 0"),
        ("links=none.csv", "the trace none.csv cannot be read"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_a_sentence(setting: str, told: str) -> None:
    document = toml.write(SMALL)
    toml.change(document, f"clock.{setting}")
    with pytest.raises(ExperimentError, match=told):
        gossamer.simulate(toml.read(document), workers=1)


LACE = replace(
    dpsgd_digits(), nodes=8, rounds=20, settle=4, asynchronous=True, algorithm=Lace(kept=0.06), topology=Matchings()
)


def test_in_an_asynchronous_run_a_node_takes_part_as_often_as_its_speed_allows() -> None:
    speeds = (0.1,) * 5 + (0.2, 0.25, 1.0)
    delivery = replace(LACE, clock=Clock(step_seconds=speeds)).delivery
    took_part = np.sum([delivery.up(exchange) for exchange in range(LACE.training_rounds)], axis=0)
    assert took_part.tolist() == [16] * 5 + [8, 6, 1]  # 16 rounds of the quickest take 4.8 seconds
    assert delivery.up(LACE.training_rounds).all()  # they settle together
    whole = replace(LACE, faults=Faults(slow=((5, 2), (6, 4)))).delivery
    as_clock = replace(LACE, clock=Clock(step_seconds=(0.1,) * 5 + (0.2, 0.4, 0.1))).delivery
    assert all(np.array_equal(whole.up(exchange), as_clock.up(exchange)) for exchange in range(20))


def test_in_an_asynchronous_run_nobody_waits_for_a_slow_node() -> None:
    clock = Clock("4g", (0.1,) * 7 + (1.0,))
    together, apart = (
        gossamer.simulate(replace(LACE, asynchronous=asynchronous, clock=clock), workers=1).result
        for asynchronous in (False, True)
    )
    assert together["clock_seconds"] > 16 * 3 * 1.0
    assert apart["clock_seconds"] < 16 * 3 * 0.1 + 4
    assert apart["bytes_resync"] > 0  # what the slow one missed
    slow = (
        gossamer.simulate(replace(LACE, clock=Clock(step_seconds=(0.1,) * 7 + (0.5,))), workers=1),
        gossamer.simulate(replace(LACE, faults=Faults(slow=((7, 5),))), workers=1),
    )
    assert torch.equal(slow[0].models, slow[1].models)


def test_speeds_are_said_once() -> None:
    with pytest.raises(ExperimentError, match=r"leave faults\.slow out"):
        gossamer.simulate(replace(LACE, clock=Clock("4g"), faults=Faults(slow=((5, 2),))))
