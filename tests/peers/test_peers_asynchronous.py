"""A peer of an asynchronous run: whose word it takes on when to settle, and what it keeps."""

import time
from dataclasses import replace

import pytest
import torch
from harness import Scripted, lone_node

from gossamer.core import Part
from gossamer.experiments.recipes import lace_digits
from gossamer.peers.config import Timeouts
from gossamer.peers.rounds import Node

LACE = replace(lace_digits(), nodes=6, rounds=20, settle=4, asynchronous=True)
AT = 16 * LACE.exchanges  # where they settle, in exchanges


def a_node(round: int) -> Node:
    node = lone_node(LACE, timeouts=Timeouts(deadline_seconds=0.3))
    node.round = round
    return node


@pytest.mark.parametrize(
    ("rounds", "lost", "expected"),
    [
        ({}, set(), 3),
        ("one", set(), 3),  # a liar, of the others nothing was heard
        ("one", "others", 3),  # the same, when the others are gone
        ("most", set(), 16),
    ],
)
def test_a_slow_peer_settles_when_most_of_its_partners_do(rounds: object, lost: object, expected: int) -> None:
    node = a_node(3)
    voters = sorted(node.voters(3))
    said = {"one": voters[:1], "most": voters[: len(voters) // 2 + 1]}.get(str(rounds), [])
    gone = set(voters[1:]) if lost == "others" else set()
    node.keep_pace(Scripted(rounds=dict.fromkeys(said, AT), lost=gone), lambda: False)  # type: ignore[arg-type]
    assert node.round == expected


def test_a_quick_peer_waits_for_the_others_and_not_for_ever() -> None:
    node, began = a_node(16), time.monotonic()
    node.keep_pace(Scripted(rounds=dict.fromkeys(node.voters(16), 3)), lambda: False)  # type: ignore[arg-type]
    assert 0.25 < time.monotonic() - began < 20
    began = time.monotonic()
    node.keep_pace(Scripted(rounds=dict.fromkeys(node.voters(16), AT)), lambda: False)  # type: ignore[arg-type]
    assert time.monotonic() - began < 0.25


def test_of_the_messages_of_another_channel_only_the_newest_is_kept() -> None:
    node, channels = a_node(3), LACE.prepared(LACE.load_task()).delivery.channels
    found = {(1, 1 + channels * k): {"q": Part(torch.zeros(1, 3))} for k in range(50)}
    assert node._of_channel(0, found) == {}
    assert list(node._other_channels) == [(1, 1 + channels * 49)]
    assert list(node._of_channel(1, {})) == [(1, 1 + channels * 49)]
    assert not node._other_channels


def test_a_peer_of_a_pair_that_was_away_goes_on_with_its_own_state() -> None:
    node = lone_node(replace(LACE, asynchronous=False, rounds=60), timeouts=Timeouts(dead_seconds=0.01))
    node.block.train(0)
    before = node.tensors()
    others = Scripted(rounds=dict.fromkeys(range(6), 30 * LACE.exchanges), away=True)
    time.sleep(0.02)
    node.state_transfer.catch_up(others)  # type: ignore[arg-type]
    assert node.round == 30
    assert others.pulled == []
    assert all(torch.equal(tensor, before[name]) for name, tensor in node.tensors().items())
