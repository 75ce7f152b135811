"""Random streams that belong to nodes.

Every draw is a pure function of (seed, node, round, purpose): a node draws the same minibatch and the same cut-off
in a simulation of 96 nodes, in a worker that hosts ten of them, and on a device of its own. The generator is Philox
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), a counter-based one, so there is no state to
save and nothing to fast-forward after a crash.

Only the generator's raw 64-bit words are used. NumPy keeps those stable from version to version, which it does not
promise for its distributions, and peers with different versions must agree on what was drawn.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.kernels.philox import philox_words


@cache
def key_of(purpose: str) -> int:
    """The second word of the generator's key; the first is the seed."""
    return int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")


def philox(seed: int, purpose: str, node: int = 0, round: int = 0, step: int = 0) -> np.random.Philox:
    """The stream of one node for one purpose in one round. Streams with different arguments never overlap."""
    key = np.array([seed, key_of(purpose)], dtype=np.uint64)
    counter = np.array([0, step, round, node], dtype=np.uint64)  # the first word counts what is drawn
    return np.random.Philox(key=key, counter=counter)


def permutation(bits: np.random.Philox, length: int) -> NDArray[np.int64]:
    """A uniformly random order of 0 .. length - 1."""
    return np.argsort(bits.random_raw(length), kind="stable")


def words(
    seed: int, purpose: str, nodes: Sequence[int], rounds: Sequence[int], width: int, step: int = 0
) -> NDArray[np.uint64]:
    """(m, width): the first words of m streams; nodes and rounds may each be one for all."""
    counters = np.empty((len(nodes) if len(rounds) == 1 else len(rounds), 3), np.uint64)
    counters[:, 0], counters[:, 1], counters[:, 2] = step, rounds, nodes
    return philox_words(np.uint64(seed), np.uint64(key_of(purpose)), counters, width)


class Streams:
    """The streams of a block's nodes in one round: what an algorithm draws from, one row a node."""

    def __init__(self, seed: int, nodes: Sequence[int], round: int):
        self.seed = seed
        self.nodes = nodes
        self.round = round

    def raw(self, purpose: str, width: int) -> NDArray[np.uint64]:
        """(B, width) words of 64 random bits."""
        return words(self.seed, purpose, self.nodes, [self.round], width)

    def uniform(self, purpose: str, width: int = 1) -> Tensor:
        """(B, width) numbers in [0, 1), float64."""
        return torch.from_numpy((self.raw(purpose, width) >> np.uint64(11)) * 2.0**-53)
