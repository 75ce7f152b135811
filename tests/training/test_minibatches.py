"""Minibatches are pieces of random orders of a node's own samples, in any block and at any step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.core.rng import permutation, philox
from gossamer.training.minibatches import Minibatches


def test_every_epoch_takes_every_sample_once_in_a_new_order() -> None:
    samples = np.arange(100, 110)
    batches = Minibatches([samples], 4, seed=1, nodes=[2])
    drawn = np.concatenate([batches.at(step)[0] for step in range(15)]).reshape(6, 10)
    for epoch in drawn:
        assert sorted(epoch) == samples.tolist()
    assert len({tuple(epoch) for epoch in drawn}) == 6
    assert batches.at(3)[0].tolist() == drawn.reshape(-1)[12:16].tolist()
    assert Minibatches([samples], 25, seed=1, nodes=[2]).at(7).shape == (1, 25)


def expected(samples: np.ndarray, batch_size: int, seed: int, node: int, step: int) -> list[int]:
    """By a generator of NumPy's a sample."""
    found = []
    for place in range(step * batch_size, (step + 1) * batch_size):
        epoch, at = divmod(place, len(samples))
        found.append(int(samples[permutation(philox(seed, "epoch", node, epoch), len(samples))[at]]))
    return found


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**63 - 1),
    first=st.integers(0, 2**31),
    steps=st.lists(st.integers(0, 10_000), min_size=1, max_size=3),
)
def test_minibatches_of_many_nodes_are_those_of_numpys_streams(
    lengths: list[int], batch_size: int, seed: int, first: int, steps: list[int]
) -> None:
    shards = [np.arange(length) * 3 + 1000 * row for row, length in enumerate(lengths)]
    nodes = range(first, first + len(shards))
    batches = Minibatches(shards, batch_size, seed, nodes)
    for step in steps:  # in any order, for a run may be resumed
        for found, shard, node in zip(batches.at(step).tolist(), shards, nodes, strict=True):
            assert found == expected(shard, batch_size, seed, node, step)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 300])
def test_a_node_takes_the_same_in_any_block(length: int) -> None:
    shards = [np.arange(length) + length * node for node in range(5)]
    together = Minibatches(shards, 8, seed=3, nodes=range(5))
    alone = [Minibatches([shard], 8, seed=3, nodes=[node]) for node, shard in enumerate(shards)]
    for step in range(60):
        assert together.at(step).tolist() == [one.at(step)[0].tolist() for one in alone]
