"""The minibatches of many nodes in one call: for small models, finding them node by node takes as long as a layer."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gossamer.kernels.philox import Words, fill_words, u64

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
