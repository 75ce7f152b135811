"""Which samples the nodes of a block take in a step."""

from collections.abc import Sequence

import numpy as np

from gossamer.core import Samples
from gossamer.kernels.minibatches import take_minibatches
from gossamer.rng import key_of


class Batches:
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
