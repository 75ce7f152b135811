"""Which samples the nodes of a block take in a step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Samples
from gossamer.core.kernels import njit
from gossamer.core.rng import Words, fill_words, key_of, u64

Integers = NDArray[np.int64]
_FEW = 16  # numbers that are sorted sooner by insertion


@njit(cache=True)
def _sort(words: Words, order: Integers) -> None:
    """The order in which words ascend, equal ones as they come."""
    if len(words) > _FEW:
        order[:] = np.argsort(words, kind="mergesort")
        return
    for i in range(len(words)):
        place = i
        while place > 0 and words[order[place - 1]] > words[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i


@njit(cache=True)
def take_minibatches(
    seed: Any,
    purpose: Any,
    nodes: Words,
    samples: Integers,
    starts: Integers,
    epochs: Integers,
    ordered: Integers,
    step: int,
    size: int,
) -> Integers:
    """(B, size): the samples of nodes in a step. samples[starts[i] : starts[i + 1]] are those of nodes[i]; `ordered`
    has them in the order of epoch `epochs[i]`, and is brought up to the epochs that the step reaches.

    The order of an epoch is that of the words of the stream (seed, purpose, node, epoch).
    """
    chosen = np.empty((len(nodes), size), np.int64)
    longest = np.max(np.diff(starts))
    all_words, all_orders = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    for row in range(len(nodes)):
        start = starts[row]
        length = starts[row + 1] - start
        words, order = all_words[:length], all_orders[:length]
        epoch, at = step * size // length, step * size % length
        for place in range(size):
            if at == length:
                epoch, at = epoch + 1, 0
            if epochs[row] != epoch:
                if length > 1:
                    fill_words(seed, purpose, u64(0), u64(epoch), nodes[row], words)
                order[0] = 0
                _sort(words, order)
                for i in range(length):
                    ordered[start + i] = samples[start + order[i]]
                epochs[row] = epoch
            chosen[row, place] = ordered[start + at]
            at += 1
    return chosen


class Minibatches:
    """The minibatches of nodes: a node's samples in a new random order every epoch, cut into equal pieces.

    A pure function of the step, so a resumed run sees the same ones. A piece may reach into the next epoch.
    """

    def __init__(self, shards: Sequence[Samples], batch_size: int, seed: int, nodes: Sequence[int]):
        self._batch_size = batch_size
        self._key = np.uint64(seed), np.uint64(key_of("epoch"))
        self._nodes = np.array(nodes, np.uint64)
        self._samples = np.concatenate(shards)
        self._starts = np.cumsum([0, *map(len, shards)])  # of every node's samples among them
        self._epochs = np.full(len(nodes), -1)  # whose order is kept,
        self._ordered = np.empty_like(self._samples)  # and the samples in it
        self.at(0)  # compiles the kernel before processes fork

    def at(self, step: int) -> Samples:
        """(B, b): the minibatches of a step, counted from the start of the run."""
        kept = self._epochs, self._ordered
        return take_minibatches(*self._key, self._nodes, self._samples, self._starts, *kept, step, self._batch_size)
