"""Random streams that belong to nodes.

Every draw is a pure function of (seed, node, round, purpose): a node draws the same minibatch and the same cut-off
in a simulation of 96 nodes, in a worker that hosts ten of them, and on a device of its own. The generator is Philox
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), a counter-based one, so there is no state to
save and nothing to fast-forward after a crash.

Only the generator's raw 64-bit words are used. NumPy keeps those stable from version to version, which it does not
promise for its distributions, and peers with different versions must agree on what was drawn.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core.kernels import njit

u64: Any = np.uint64
Words = NDArray[np.uint64]

_MULTIPLIERS = (u64(0xD2E7470EE14C6C93), u64(0xCA5A826395121157))
_KEY_STEPS = (u64(0x9E3779B97F4A7C15), u64(0xBB67AE8584CAA73B))
_ROUNDS = 10
_LOW = u64(0xFFFFFFFF)
_HALF = u64(32)


@njit(cache=True)
def _high(a: Any, b: Any) -> Any:
    """The upper 64 bits of a product of 128."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a_high * b_low + (a_low * b_low >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@njit(cache=True)
def fill_words(seed: Any, purpose: Any, step: Any, round: Any, node: Any, words: Words) -> None:
    """The first words of the stream with key (seed, purpose) and counter (0, step, round, node)."""
    width = len(words)
    for block in range((width + 3) >> 2):
        a, b, c, d = u64(block + 1), u64(step), u64(round), u64(node)
        key_a, key_b = u64(seed), u64(purpose)
        for _ in range(_ROUNDS):
            high_a, low_a = _high(_MULTIPLIERS[0], a), _MULTIPLIERS[0] * a
            high_c, low_c = _high(_MULTIPLIERS[1], c), _MULTIPLIERS[1] * c
            a, b, c, d = high_c ^ b ^ key_a, low_c, high_a ^ d ^ key_b, low_a
            key_a, key_b = key_a + _KEY_STEPS[0], key_b + _KEY_STEPS[1]
        for place, word in enumerate((a, b, c, d)):
            if 4 * block + place < width:
                words[4 * block + place] = word


@njit(cache=True)
def philox_words(seed: Any, purpose: Any, counters: Words, width: int) -> Words:
    """(m, width): the first words of the streams with key (seed, purpose) and each counter (0, *counters[i]), the
    three words of which are step, round and node."""
    words = np.empty((counters.shape[0], width), np.uint64)
    for row in range(counters.shape[0]):
        fill_words(seed, purpose, counters[row, 0], counters[row, 1], counters[row, 2], words[row])
    return words


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
    """The streams of a block's nodes in one round: what an algorithm draws from, one row per node."""

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


def global_states() -> tuple[Any, ...]:
    """Of the generators that belong to the process, from which users' own code draws."""
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def restore_global_states(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


@contextmanager
def kept_generators() -> Iterator[None]:
    """Leave these generators as they were, whatever is seeded and drawn meanwhile."""
    states = global_states()
    try:
        yield
    finally:
        restore_global_states(states)
