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
from dataclasses import dataclass, field
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


def _no_links() -> Integers:
    return np.empty(0, np.int64)


@dataclass
class ResyncLedger:
    """Up to where each receiver was reached by each sender's frames of a channel, in bytes: for all links of a
    simulation, which counts what an `Endpoint` per node would send.

    Only links are kept over which a frame came. On graphs that change, those are forgotten of which the receiver has
    missed more than the sums take: it gets a resync frame, as one that was never reached does. So there are no more
    than the links of as many exchanges as have frames that fill the room of the sums once.
    """

    sent: Tensor  # (n,): bytes of all frames of a node so far
    most_missed: Tensor  # (n,): bytes that one of the receivers of this exchange has missed, at most
    resync_bytes: Tensor  # (n,): of the resync frame of this exchange, where one is needed
    plain: int  # bytes of a node's sums as they are
    links: Integers = field(default_factory=_no_links)  # receiver * n + sender, ascending
    reached: Integers = field(default_factory=_no_links)  # of `sent`, up to the last frame that came over each link

    @classmethod
    def of(cls, nodes: int, plain: int, zeros: Callable[..., Tensor]) -> "ResyncLedger":
        """Before the first exchange; `zeros` makes tensors that processes share."""
        sent, most_missed, resync_bytes = (zeros(nodes, dtype=torch.int64) for _ in range(3))
        return cls(sent, most_missed, resync_bytes, plain)

    def saved(self, channel: int = 0) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        name = _saved_name(channel)
        return {f"{name}.said": self.sent, f"{name}.links": torch.from_numpy(np.stack([self.links, self.reached], 1))}

    def restore(self, tensors: Mapping[str, Tensor], channel: int = 0) -> None:
        """As it was saved."""
        name = _saved_name(channel)
        self.sent.copy_(tensors[f"{name}.said"])
        self.links, self.reached = np.ascontiguousarray(tensors[f"{name}.links"].numpy().T)

    def begin(self, senders: Integers, receivers: Integers) -> None:
        """Before an exchange over these links."""
        self.most_missed.zero_()
        np.maximum.at(self.most_missed.numpy(), senders, self._missed(senders, receivers))

    def need_resync(self, nodes: Integers, frame_bytes: Integers) -> Marks:
        """Which of these nodes, whose frames have so many bytes, send a resync frame to any receiver."""
        needed: Marks = needs_resync(self.most_missed.numpy()[nodes], frame_bytes, self.plain)
        return needed

    def resend(self, senders: Integers, receivers: Integers, frame_bytes: Integers) -> Resend:
        """What is resent in an exchange; (n,) bytes of the nodes' frames are given."""
        missed = self._missed(senders, receivers)
        is_resync = needs_resync(missed, frame_bytes[senders], self.plain)
        return Resend(is_resync, np.where(is_resync, self.resync_bytes.numpy()[senders], missed))

    def record(self, frame_bytes: Integers, senders: Integers, receivers: Integers) -> None:
        """The exchange is over: (n,) bytes that nodes sent, 0 for those that are down, and whom they reached, by
        receiver and sender."""
        sent = self.sent.numpy()
        sent += frame_bytes
        links = receivers * len(sent) + senders
        places, known = self._find(links)
        if not known.all():
            kept = sent[self.links % len(sent)] - self.reached <= self.plain
            self.links, self.reached = self.links[kept], self.reached[kept]
            places, known = self._find(links)
            self.links = np.insert(self.links, places[~known], links[~known])
            self.reached = np.insert(self.reached, places[~known], 0)
            places, _ = self._find(links)
        self.reached[places] = sent[senders]

    def _missed(self, senders: Integers, receivers: Integers) -> Integers:
        """Bytes of the frames that each receiver missed before this exchange."""
        sent = self.sent.numpy()
        places, known = self._find(receivers * len(sent) + senders)
        reached = np.zeros(len(places), np.int64)
        reached[known] = self.reached[places[known]]
        missed: Integers = sent[senders] - reached
        return missed

    def _find(self, links: Integers) -> tuple[Integers, Marks]:
        """Where links are in the list, or would be, and which are."""
        places = np.searchsorted(self.links, links)
        known = places < len(self.links)
        known[known] = self.links[places[known]] == links[known]
        return places, known


def by_link(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's tensors as `ResyncLedger.saved` gives them; earlier versions kept a table of all node pairs."""
    found = dict(tensors)
    for name in tensors:
        if name.startswith("told") and name.endswith(".reached"):
            reached = found.pop(name).numpy()  # (n, n): receiver by sender
            links = np.flatnonzero(reached)
            pairs = np.stack([links, reached.reshape(-1)[links]], 1)
            found[name.replace(".reached", ".links")] = torch.from_numpy(pairs)
    return found


def _saved_name(channel: int) -> str:
    return f"told.{channel}" if channel else "told"
