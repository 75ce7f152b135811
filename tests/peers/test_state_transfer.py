"""Who takes whose state, and who is given one: no single peer's word is enough."""

from dataclasses import replace

import pytest
import torch
from harness import Scripted, lone_node

from gossamer.algorithms import (
    D2,
    Choco,
    ClippedGossip,
    CoordinateMedian,
    Dpsgd,
    Jwins,
    Momentum,
    RelativeToInit,
    SparsePush,
)
from gossamer.compressors import TopK
from gossamer.core import Algorithm
from gossamer.data import Quadratic, Supervised
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.topologies import DirectedRandom, RandomMatching, RandomRegular, Redrawn, Ring
from gossamer.models import GnLeNet
from gossamer.peers.config import Timeouts
from gossamer.peers.rounds import Node
from gossamer.peers.state_transfer import Absence, Taken, median_state, round_of_most
from gossamer.training.block import NodeError
from gossamer.training.privacy import Privacy

FOUR = Experiment(nodes=7, rounds=100, task=Quadratic(dimension=53, num_samples=210), local_steps=1)
TWO = replace(FOUR, topology=Ring())


def node_at(experiment: Experiment, me: int, round: int, fill: float | None = None) -> Node:
    """A node at the end of a round, whose state has this number everywhere if one is given."""
    node = lone_node(experiment, me)
    state = {name: t.clone() if fill is None else torch.full_like(t, fill) for name, t in node.tensors().items()}
    node.restore(state, round)
    return node


def frame_at(experiment: Experiment, me: int, round: int, fill: float) -> bytes:
    frame = node_at(experiment, me, round, fill).state_transfer.frame_for(3, 0)
    assert frame is not None
    return frame


def near(experiment: Experiment) -> list[int]:
    return sorted(lone_node(experiment).near(0))


# Taking.


def test_the_round_of_most_is_one_that_more_than_half_have_reached() -> None:
    assert round_of_most([]) == 0
    assert round_of_most([7]) == 7
    assert round_of_most([0, 99]) == 0, "of two, one can lie"
    assert round_of_most([20, 99, 21]) == 21
    assert round_of_most([0, 0, 99, 99]) == 0
    assert round_of_most([0, 20, 99, 99]) == 20


@pytest.mark.parametrize("experiment", [FOUR, TWO], ids=["four neighbours", "two"])
@pytest.mark.parametrize("algorithm", [Dpsgd(), Jwins(), ClippedGossip(), D2(lazy=True)], ids=str)
def test_one_that_lies_about_its_round_is_not_believed(experiment: Experiment, algorithm: Algorithm) -> None:
    experiment = replace(experiment, algorithm=algorithm)
    liar, *honest = near(experiment)
    for away in (False, True):
        node, told = lone_node(experiment), Scripted({liar: 90} | dict.fromkeys(honest, 1), away=away)
        node.state_transfer.catch_up(told)
        assert node.round == 0
        assert not told.pulled


def test_a_peer_that_was_not_away_takes_no_state_whatever_all_others_say() -> None:
    node, told = lone_node(FOUR), Scripted(dict.fromkeys(near(FOUR), 90))
    node.state_transfer.catch_up(told)
    assert not told.pulled


def test_a_neighbour_that_was_never_heard_has_not_begun() -> None:
    first, *_ = near(FOUR)
    lone_node(FOUR).state_transfer.catch_up(alone := Scripted({first: 90}, away=True))
    assert not alone.pulled, "who starts first meets the liar alone"


@pytest.mark.parametrize("algorithm", [Dpsgd(), ClippedGossip()], ids=str)
def test_those_that_are_gone_are_given_time_to_return_before_the_others_decide(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replace(FOUR, algorithm=algorithm)
    liar, honest, *gone = near(experiment)
    states = {n: frame_at(experiment, n, 90, 7.0) for n in (liar, honest)}
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    node, told = lone_node(experiment), Scripted({liar: 90, honest: 90}, states, set(gone), away=True)
    node.state_transfer.catch_up(told)
    assert not told.pulled, "whoever is heard first after a cut may be the liar"
    told.away = False
    clock[0] += Timeouts().dead_seconds + 1
    node.state_transfer.catch_up(told)
    assert node.round == (0 if algorithm.robust else 90), "half of the states are not enough for a median"


def test_nobody_decides_alone_where_there_are_more() -> None:
    experiment = replace(FOUR, topology=Redrawn(RandomMatching()))
    node = lone_node(experiment)
    assert len(node.near(0)) == 1
    assert len(node.voters(0)) > 2, "neighbours of the next rounds have a say"
    (liar,) = node.near(0)
    told = Scripted(dict.fromkeys(node.voters(0), 0) | {liar: 90}, away=True)
    node.state_transfer.catch_up(told)
    assert not told.pulled
    lone = Scripted({liar: 90}, lost=node.voters(0) - {liar}, away=True)
    node.state_transfer.absence._since = -1e6
    lone.away = False
    node.state_transfer.catch_up(lone)
    assert not lone.pulled


def test_a_peer_that_was_away_takes_the_state_of_one_of_those_ahead() -> None:
    first, second, third, last = near(FOUR)
    states = {first: frame_at(FOUR, first, 20, 1.0), second: frame_at(FOUR, second, 22, 2.0)}
    node, told = lone_node(FOUR), Scripted({first: 20, second: 22, third: 22, last: 0}, states, away=True)
    node.state_transfer.catch_up(told)
    assert (node.round, told.pulled, told.incarnations) == (20, [first], 1)
    assert torch.equal(node.block.models(), torch.ones(1, 53))


@pytest.mark.parametrize("round", [5, 33, 99])
def test_a_state_of_a_round_that_only_its_giver_has_reached_is_refused(round: int) -> None:
    givers = near(FOUR)
    states = {giver: node_at(FOUR, giver, round, 7.0).state_transfer._codec for giver in givers}
    states = {n: codec.encode(node_at(FOUR, n, round, 7.0).tensors(), n, round) for n, codec in states.items()}
    node, told = lone_node(FOUR), Scripted(dict.fromkeys(givers, 22), states, away=True)
    node.state_transfer.catch_up(told)
    assert node.round == 0
    assert told.pulled == givers
    assert node.counters.totals()["bad_frames"] == 4


@pytest.mark.parametrize("experiment", [FOUR, TWO], ids=["four neighbours", "two"])
@pytest.mark.parametrize("algorithm", [ClippedGossip(), Momentum(CoordinateMedian())], ids=str)
def test_under_a_robust_algorithm_no_single_state_decides(experiment: Experiment, algorithm: Algorithm) -> None:
    experiment = replace(experiment, algorithm=algorithm)
    liar, *honest = near(experiment)
    states = {liar: frame_at(experiment, liar, 22, 900.0)} | {n: frame_at(experiment, n, 20, 0.5) for n in honest}
    node, told = lone_node(experiment), Scripted(dict.fromkeys(near(experiment), 20), states, away=True)
    own = node.block.models().clone()
    node.state_transfer.catch_up(told)
    assert node.round == 20
    assert (node.block.models() <= own.clamp(min=0.5)).all()
    for silent in honest[: len(near(experiment)) // 2]:
        del states[silent]
    node = lone_node(experiment)
    node.state_transfer.catch_up(told)
    assert node.round == 0, "the states of half of the neighbours could all be lies"


def test_the_median_of_states_is_between_honest_ones() -> None:
    own = {"x": torch.tensor([[5.0, 5.0]])}
    states = [Taken(n, 1, {"x": torch.tensor([row])}) for n, row in enumerate([[1.0, 2.0], [2.0, 1.0], [9.0, -9.0]])]
    assert median_state(own, states)["x"].tolist() == [[2.0, 1.0]]
    assert median_state(own, states[1:])["x"].tolist() == [[5.0, 1.0]]


def test_an_algorithm_that_needs_every_message_ends_only_if_most_are_ahead() -> None:
    experiment = replace(FOUR, algorithm=D2(lazy=True))
    node, told = lone_node(experiment), Scripted(dict.fromkeys(near(experiment), 20), away=True)
    with pytest.raises(NodeError, match="the others are in round 21 and this peer in 1"):
        node.state_transfer.catch_up(told)


def test_under_privacy_a_peer_goes_on_with_its_own_state_in_the_round_of_the_others() -> None:
    experiment = replace(FOUR, privacy=Privacy(clip=1.0, noise=1.0))
    node, told = node_at(experiment, 3, 2, 4.0), Scripted(dict.fromkeys(near(experiment), 20), away=True)
    node.state_transfer.catch_up(told)
    assert (node.round, told.pulled, told.incarnations) == (20, [], 1)
    assert torch.equal(node.block.models(), torch.full((1, 53), 4.0))


def test_liars_that_are_fewer_than_half_do_not_become_the_most_of_those_that_answer() -> None:
    experiment = replace(FOUR, nodes=8, topology=RandomRegular(5), algorithm=CoordinateMedian())
    first, second, *honest = near(experiment)
    states = {n: frame_at(experiment, n, 22, 900.0) for n in (first, second)}
    states |= {honest[0]: frame_at(experiment, honest[0], 22, 0.5)}
    node, told = lone_node(experiment), Scripted(dict.fromkeys(near(experiment), 22), states, away=True)
    node.state_transfer.catch_up(told)
    assert node.round == 0


@pytest.mark.parametrize(("algorithm", "fill"), [(Dpsgd(), 3e38), (Dpsgd(), -1e5), (SparsePush(TopK(0.3), 0.2), 0.0)])
def test_a_state_with_impossible_numbers_is_refused(algorithm: Algorithm, fill: float) -> None:
    topology = DirectedRandom(2) if "column_stochastic" in algorithm.requires else RandomRegular(4)
    experiment = replace(FOUR, algorithm=algorithm, topology=topology)
    states = {n: frame_at(experiment, n, 22, fill) for n in near(experiment)}
    node, told = lone_node(experiment), Scripted(dict.fromkeys(near(experiment), 22), states, away=True)
    node.state_transfer.catch_up(told)
    assert node.round == 0
    assert node.counters.totals()["bad_frames"] == len(states)


def test_a_peer_that_is_far_behind_goes_on_looking() -> None:
    node, told = lone_node(FOUR), Scripted(dict.fromkeys(near(FOUR), 90), away=True)
    node.state_transfer.catch_up(told)
    told.away, node.state_transfer.absence._since = False, -1e6
    node.state_transfer.catch_up(told)
    assert node.state_transfer.absence, "nobody gave it a state"
    told.rounds = dict.fromkeys(near(FOUR), 1)
    node.state_transfer.catch_up(told)
    assert not node.state_transfer.absence


def test_an_absence_lasts_until_the_others_can_have_been_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    absence = Absence(10)
    assert not absence
    absence.begin()
    absence.looked()
    assert absence
    clock[0] += 11
    assert absence, "a round took that long: look once more"
    absence.looked()
    assert not absence


# Giving.


def test_a_state_is_given_to_a_neighbour_that_is_far_behind_and_to_nobody_else() -> None:
    giver = node_at(FOUR, 3, 50)
    neighbour, *_ = near(FOUR)
    (stranger, *_) = set(range(7)) - set(near(FOUR)) - {3}
    give = giver.state_transfer.frame_for
    assert give(neighbour, 30) is not None
    assert give(neighbour, 40) is None, "it can run what it has missed"
    assert give(neighbour, None) is None, "it has not said where it is"
    assert give(stranger, 30) is None
    private = node_at(replace(FOUR, privacy=Privacy(clip=1.0, noise=1.0)), 3, 50)
    assert private.state_transfer.frame_for(neighbour, 30) is None


def test_a_state_is_given_twice_in_a_while_and_not_more_often() -> None:
    giver = node_at(FOUR, 3, 50)
    neighbour, other, *_ = near(FOUR)
    assert giver.state_transfer.frame_for(neighbour, 0) is not None
    assert giver.state_transfer.frame_for(neighbour, 0) is not None, "it may have got lost on the way"
    giver.restore(giver.tensors(), 59)
    assert giver.state_transfer.frame_for(neighbour, 0) is None
    assert giver.state_transfer.frame_for(other, 0) is not None
    giver.restore(giver.tensors(), 60)
    assert giver.state_transfer.frame_for(neighbour, 0) is not None


# The state itself.


@pytest.mark.parametrize(
    "algorithm", [Jwins(), SparsePush(TopK(0.3), 0.2), RelativeToInit(Choco(TopK(0.3), 0.4))], ids=str
)
def test_a_state_is_taken_to_the_last_bit_and_announced_anew(algorithm: Algorithm) -> None:
    topology = DirectedRandom(2) if "column_stochastic" in algorithm.requires else RandomRegular(4)
    experiment = replace(FOUR, algorithm=algorithm, topology=topology)
    taker = lone_node(experiment, 3)
    number, *_ = sorted(taker.near(0))
    giver = lone_node(experiment, number)
    for t in range(3):
        giver.block.train(t)
        giver._take_in(t, [], giver.endpoint.send(giver.block.send(t), t).own, [], Scripted())
    giver.restore(giver.tensors(), 30)
    frame = giver.state_transfer.frame_for(3, 0)
    assert frame is not None
    assert len(frame) <= taker.state_transfer.max_bytes
    told = Scripted(dict.fromkeys(taker.near(0), 30), {number: frame}, away=True)
    taker.state_transfer.catch_up(told)
    assert taker.round == 30
    for name, tensor in giver.tensors().items():
        assert torch.equal(taker.tensors()[name], tensor), name
    taker.block.train(30)
    sent = taker.endpoint.send(taker.block.send(30), 30)
    receiver = taker.experiment.endpoint(taker.task, 1, run_id=77)
    for name, part in receiver.receive(receiver.check(sent.bytes_for(1), 3, 30)).message.items():
        if algorithm.parts[name].cumulative:  # a receiver that knows nothing of it gets the whole sum at once
            assert torch.equal(part.values, taker.endpoint.own_sums[name])
    for damaged in ({number: frame[:-1] + b"x"}, {(number + 1) % 7: frame}):
        (giving,) = damaged
        assert taker.state_transfer.pull(giving, 30, Scripted(states=damaged)) is None


def test_a_state_is_that_of_the_end_of_a_round_while_the_next_steps_are_taken() -> None:
    data = torch.randn(70, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(70) % 10
    task = Supervised(lambda: GnLeNet().build((3, 8, 8), 10), data, data)
    node = lone_node(replace(FOUR, task=task, algorithm=Jwins(), fast=True), timeouts=Timeouts(away_rounds=0))
    node.restore(node.tensors(), 1)
    (neighbour, *_) = node.near(0)
    before, model = node.state_transfer.frame_for(neighbour, 0), node.block.models().clone()
    assert before is not None
    node.block.train(1)  # in place: of fast models, steps are
    assert not torch.equal(node.block.models(), model)
    assert node.state_transfer.frame_for(neighbour, 0) == before
