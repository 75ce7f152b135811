"""What a node takes in when not everything came, or not in time: the rule of `faults.Network`, for one node.

An algorithm that keeps mass (push-sum) adds what came, each with the weight of the round it was sent in. One that
averages gives the weight of what is missing to itself, and scales what came if it is more than 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.graphs.mixing_matrix import MixingMatrix


class Entry(NamedTuple):
    """A message that a node takes in, its own among them."""

    sender: int
    sent: int  # the round
    weight: float


def row(mixing: MixingMatrix, node: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The senders that reach a node, itself included, ascending, and their weights."""
    here = slice(mixing.indptr[node], mixing.indptr[node + 1])
    return mixing.senders[here], mixing.weights[here]


def weight(mixing: MixingMatrix, receiver: int, sender: int) -> float | None:
    """None if there is no such link."""
    senders, weights = row(mixing, receiver)
    at = int(np.searchsorted(senders, sender))
    return float(weights[at]) if at < len(senders) and senders[at] == sender else None


def weigh(
    mixing_of: Callable[[int], MixingMatrix], me: int, round: int, came: Sequence[tuple[int, int]], keeps_mass: bool
) -> list[Entry]:
    """The messages of other nodes that came, as (sender, round), and the node's own, with weights, in order."""
    senders, weights = row(mixing_of(round), me)
    expected = [(int(sender), round) for sender in senders if sender != me]
    if sorted(came) == expected:
        return [Entry(int(sender), round, float(w)) for sender, w in zip(senders, weights, strict=True)]
    found = []
    for sender, sent in came:
        of_link = weight(mixing_of(sent), me, sender)
        assert of_link is not None, "a message came over no link"
        found.append(Entry(sender, sent, of_link))
    own = weight(mixing_of(round), me, me)
    assert own is not None, "every node reaches itself"
    if not keeps_mass:
        total = sum(entry.weight for entry in sorted(found, key=lambda entry: (-entry.sent, entry.sender)))
        found = [entry._replace(weight=entry.weight / max(total, 1)) for entry in found]
        own = max(1 - total, 0)
    return sorted([*found, Entry(me, round, own)], key=lambda entry: (entry.sender, -entry.sent))


def choose(
    came: Sequence[tuple[int, int]], round: int, late_rounds: int, keeps_mass: bool
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Which of the messages that came, as (sender, round), to use, and which came too late.

    Of mass nothing may be lost, so every message counts. An average takes the newest of each sender.
    """
    newest = dict(sorted(came))
    used: list[tuple[int, int]] = []
    dropped: list[tuple[int, int]] = []
    for sender, sent in came:
        fresh = round - sent <= late_rounds and (keeps_mass or sent == newest[sender])
        (used if fresh else dropped).append((sender, sent))
    return used, dropped
