"""Cumulative parts over links that lose messages: what a sender sends to a receiver that missed some of it.

A frame holds what a cumulative part gained in one exchange, and receivers keep the sum. A sender knows which of its
frames reached whom (a network acknowledges them). With its next message, a receiver that missed some gets either

    the frames that it missed, in their order, and then the new one: the receiver adds them up, or
    one *resync* frame in place of all of them, in which cumulative parts are the sums themselves, in float32,

whichever is shorter if a sum is taken to cost its 4 bytes per number, so that nothing must be coded to decide. A sender
therefore keeps no more frames than fill the room of its sums once. Before the first exchange all sums are 0, and
everyone knows it: who was never reached has missed all frames, no more.

A part may have several *channels* (`PartSpec.channels`): exchange t belongs to channel t mod channels, and each channel
has sums, frames and an account of its own, as if it were another run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core import PartSpec

Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]


def has_cumulative(parts: Mapping[str, PartSpec]) -> bool:
    return any(spec.cumulative for spec in parts.values())


def num_channels(parts: Mapping[str, PartSpec]) -> int:
    """In how many channels a node's cumulative parts add up; ValueError if they differ."""
    numbers = {spec.channels for spec in parts.values() if spec.cumulative} or {1}
    if len(numbers) > 1 or min(numbers) < 1:
        raise ValueError(f"the cumulative parts of a message have {sorted(numbers)} channels; give all the same number")
    return numbers.pop()


def resync_parts(parts: Mapping[str, PartSpec]) -> dict[str, PartSpec]:
    """The parts of a resync frame: cumulative ones are whole sums, the others as ever."""
    for name, spec in parts.items():
        if spec.same_indices_as is not None and parts[spec.same_indices_as].cumulative:
            raise ValueError(
                f"part {name!r} has the indices of {spec.same_indices_as!r}, which is cumulative; give it its own"
            )
    return {name: _sum_spec(spec) if spec.cumulative else spec for name, spec in parts.items()}


def _sum_spec(spec: PartSpec) -> PartSpec:
    return PartSpec(spec.width, values="float64" if spec.values == "float64" else "float32")


def plain_bytes(parts: Mapping[str, PartSpec], num_parameters: int) -> int:
    """Of the sums of one node's cumulative parts, at 4 bytes per number; 0: none is cumulative."""
    return sum(4 * (num_parameters if s.width is None else s.width) for s in parts.values() if s.cumulative)


def needs_resync(missed_bytes: Any, frame_bytes: Any, plain: int) -> Any:
    """Does a receiver that missed frames of so many bytes get a resync frame? Of numbers, or of arrays of them."""
    return (missed_bytes > 0) & (missed_bytes + frame_bytes > plain)


class Resend(NamedTuple):
    """What is resent, link by link."""

    is_resync: Marks  # by a resync frame, in place of the exchange's own
    num_bytes: Integers  # of the resync frame, or of frames of earlier exchanges

    @classmethod
    def nothing(cls, num_links: int) -> "Resend":
        return cls(np.zeros(num_links, bool), np.zeros(num_links, np.int64))


@dataclass
class ResyncLedger:
    """Up to where each receiver was reached by each sender's frames of a channel, in bytes: for all links of a
    simulation, which counts what an `Endpoint` per node would send."""

    sent: Tensor  # (n,): bytes of all frames of a node so far
    reached: Tensor  # (n, n): of these, up to the last one of the sender (column) that reached the receiver (row)
    resync_bytes: Tensor  # (n,): of the resync frame of this exchange, where one is needed
    plain: int  # bytes of a node's sums as they are

    @classmethod
    def of(cls, nodes: int, plain: int, zeros: Callable[..., Tensor]) -> "ResyncLedger":
        """Before the first exchange; `zeros` makes tensors that processes share."""
        sent, reached, resync = (zeros(*shape, dtype=torch.int64) for shape in ((nodes,), (nodes, nodes), (nodes,)))
        return cls(sent, reached, resync, plain)

    def saved(self, channel: int = 0) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        where = f"told.{channel}" if channel else "told"  # named as in the first checkpoints
        return {f"{where}.said": self.sent, f"{where}.reached": self.reached}

    def missed(self, senders: Integers, receivers: Integers) -> Integers:
        """Bytes of the frames that each receiver missed before this exchange."""
        missed: Integers = (self.sent[senders] - self.reached[receivers, senders]).numpy()
        return missed

    def need_resync(self, senders: Integers, receivers: Integers, frame_bytes: Integers) -> Marks:
        """Which messages are resync frames; (n,) bytes of the nodes' frames are given."""
        needed: Marks = needs_resync(self.missed(senders, receivers), frame_bytes[senders], self.plain)
        return needed

    def resend(self, senders: Integers, receivers: Integers, frame_bytes: Integers) -> Resend:
        """What is resent in an exchange."""
        is_resync = self.need_resync(senders, receivers, frame_bytes)
        missed = self.missed(senders, receivers)
        return Resend(is_resync, np.where(is_resync, self.resync_bytes.numpy()[senders], missed))

    def record(self, frame_bytes: Integers, senders: Integers, receivers: Integers) -> None:
        """The exchange is over: (n,) bytes that nodes sent, 0 for those that are down, and whom they reached."""
        self.sent += torch.from_numpy(frame_bytes)
        self.reached[receivers, senders] = self.sent[senders]
