"""What the simulator knows of every link: how much of a running part each receiver has been told.

It stands for the `Speaker` and the `Listener` that every node would have: bytes are counted by the same rule, and
nothing is kept of the frames but their lengths.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.experiments.experiment import Experiment
from gossamer.graphs.faults import Links
from gossamer.simulator.shared_memory import Memory
from gossamer.wire.resync import has_cumulative, needs_resync, plain_bytes

Integers = NDArray[np.int64]


class Resend(NamedTuple):
    """What is told again, link by link."""

    whole: NDArray[np.bool_]  # by a resync frame, in place of the round's own
    num_bytes: Integers  # of the resync frame, or of frames of earlier rounds

    @classmethod
    def nothing(cls, num_links: int) -> "Resend":
        return cls(np.zeros(num_links, bool), np.zeros(num_links, np.int64))


@dataclass
class ResyncLedger:
    """Bytes of frames, told and missed."""

    said: Tensor  # (n,): bytes of all frames of a node so far
    reached: Tensor  # (n, n): of these, up to the last one of the sender (column) that reached the receiver (row)
    resync_bytes: Tensor  # (n,): of the resync frame of this round, where one is needed
    plain: int  # bytes of a node's running sums as they are

    @classmethod
    def of(cls, experiment: Experiment, num_parameters: int, memory: Memory) -> "ResyncLedger | None":
        """Before the first round; None if nothing can be missed, or it would not matter."""
        n, parts = experiment.nodes, experiment.algorithm.parts
        if not has_cumulative(parts) or (experiment.topology.static and not experiment.faults.any):
            return None
        said, reached, resync = (memory.zeros(*shape, dtype=torch.int64) for shape in ((n,), (n, n), (n,)))
        return cls(said, reached, resync, plain_bytes(parts, num_parameters))

    def saved(self) -> dict[str, Tensor]:
        return {"told.said": self.said, "told.reached": self.reached}

    def missed(self, sent: Links) -> Integers:
        """Bytes of the frames that each receiver missed before this round."""
        missed: Integers = (self.said[sent.senders] - self.reached[sent.receivers, sent.senders]).numpy()
        return missed

    def need_resync(self, sent: Links, frame_bytes: Integers) -> NDArray[np.bool_]:
        """Which of the messages of a round are resync frames; (n,) bytes of the nodes' frames are given."""
        needed: NDArray[np.bool_] = needs_resync(self.missed(sent), frame_bytes[sent.senders], self.plain)
        return needed

    def again(self, sent: Links, frame_bytes: Integers) -> "Resend":
        """What is told again in a round."""
        whole = self.need_resync(sent, frame_bytes)
        return Resend(whole, np.where(whole, self.resync_bytes.numpy()[sent.senders], self.missed(sent)))

    def note(self, sent: Links, arrives: NDArray[np.bool_], frame_bytes: Integers, up: NDArray[np.bool_]) -> None:
        """The round is over: what was said, and whom it reached."""
        self.said += torch.from_numpy(np.where(up, frame_bytes, 0))
        receivers, senders = sent.receivers[arrives], sent.senders[arrives]
        self.reached[receivers, senders] = self.said[senders]
