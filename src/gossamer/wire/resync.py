"""Running parts over links that lose messages: what a sender says to a receiver that missed some of it.

A frame holds what a running part gained in one round, and receivers keep the sum. A sender knows which of its frames
reached whom (a network acknowledges them). With its next message, a receiver that missed some gets either

    the frames that it missed, in their order, and then this round's: the receiver adds them up, or
    one *resync* frame in place of all of them, in which running parts are the sums themselves, in float32,

whichever is shorter if a sum is taken to cost its 4 bytes a number, so that nothing must be coded to decide. A sender
therefore keeps no more frames than fill the room of its running sums once. Before the first round all sums are 0, and
everyone knows it: who was never reached has missed all frames, no more.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from gossamer.core import Message, Part, PartSpec
from gossamer.wire.codec import Codec
from gossamer.wire.frame import SCHEMA


def has_cumulative(parts: Mapping[str, PartSpec]) -> bool:
    return any(spec.cumulative for spec in parts.values())


def resync_parts(parts: Mapping[str, PartSpec]) -> dict[str, PartSpec]:
    """The parts of a resync frame: running ones are whole sums, the others as ever."""
    for name, spec in parts.items():
        if spec.same_indices_as is not None and parts[spec.same_indices_as].cumulative:
            raise ValueError(
                f"part {name!r} is like {spec.same_indices_as!r}, which is running; mark its entries itself"
            )
    return {name: _whole(spec) if spec.cumulative else spec for name, spec in parts.items()}


def _whole(spec: PartSpec) -> PartSpec:
    return PartSpec(spec.width, values="float64" if spec.values == "float64" else "float32")


def plain_bytes(parts: Mapping[str, PartSpec], num_parameters: int) -> int:
    """Of the running sums of one node, at 4 bytes a number."""
    return sum(4 * (num_parameters if s.width is None else s.width) for s in parts.values() if s.cumulative)


def needs_resync(missed_bytes: Any, frame_bytes: Any, plain: int) -> Any:
    """Does a receiver that missed frames of so many bytes get a resync frame? Of numbers, or of arrays of them."""
    return (missed_bytes > 0) & (missed_bytes + frame_bytes > plain)


class Said(NamedTuple):
    """What a node had said by the end of a round."""

    num_bytes: int  # of all frames
    frames: tuple[bytes, ...]  # the latest ones


class Speaker:
    """The sending end of a node's links."""

    def __init__(self, plain: int, anew: bool = False):
        """`anew`: the node's sums are not 0, and nobody is known to have heard them, as after a restart."""
        self._plain = plain  # `plain_bytes` of the run; 0: no part is running, and each message stands for itself
        self._said = plain + 1 if anew else 0  # bytes of all frames so far
        self._frames: deque[bytes] = deque()  # the latest ones
        self._kept = 0  # bytes of these
        self._reached: dict[Hashable, int] = {}  # what was said up to the last message that reached a receiver

    def say(self, frame: bytes) -> Said:
        """The frame of a new round, whoever is there to hear it."""
        self._frames.append(frame)
        self._said += len(frame)
        self._kept += len(frame)
        while len(self._frames) > 1 and self._kept > self._plain:
            self._kept -= len(self._frames.popleft())
        return Said(self._said, tuple(self._frames))

    def frames_for(self, receiver: Hashable, resync: Callable[[], bytes], said: Said | None = None) -> list[bytes]:
        """What goes to a receiver in this round, in this order; `resync` gives the resync frame, if it is needed.

        With `said`, in that round: a slow link is behind.
        """
        num_bytes, kept = said or Said(self._said, tuple(self._frames))
        last = kept[-1]
        missed = num_bytes - len(last) - self._reached.get(receiver, 0) if self._plain else 0
        if needs_resync(missed, len(last), self._plain):
            return [resync()]
        frames = [last]
        for frame in kept[-2::-1]:
            if missed == 0:
                break
            frames.append(frame)
            missed -= len(frame)
        return frames[::-1]

    def reached(self, receiver: Hashable, said: Said | None = None) -> None:
        """What went to this receiver in this round, or by what was `said` then, arrived."""
        self._reached[receiver] = said.num_bytes if said else self._said

    def forget(self, receiver: Hashable) -> None:
        """This receiver knows nothing any more: it was restarted."""
        self._reached[receiver] = -self._plain - 1  # more than all that could be told by frames


class _Heard(NamedTuple):
    round: int
    sums: dict[str, Tensor]  # (1, width)


class Listener:
    """The receiving end of a node's links: the running sums of those that it heard."""

    def __init__(self, codec: Codec, resync_codec: Codec, parts: Mapping[str, PartSpec]):
        self._codec = codec
        self._resync_codec = resync_codec
        self._running = [name for name, spec in parts.items() if spec.cumulative]
        self._heard: dict[int, _Heard] = {}

    def sums(self, sender: int) -> dict[str, Tensor]:
        """The running sums of a sender, as far as it was heard; {} if it never was."""
        return self._heard[sender].sums if sender in self._heard else {}

    def start_at(self, sender: int, round: int, sums: dict[str, Tensor]) -> None:
        """Forget everyone, and take these for the sums of one sender by the end of a round."""
        self._heard = {sender: _Heard(round, sums)} if sums else {}

    def take(self, frames: Sequence[bytes]) -> tuple[int, int, Message]:
        """Sender and round of the last of these frames, and its message, in which running parts are sums.

        WireError if a frame is not one of this run. A frame that was heard before is not added again.
        """
        for frame in frames:
            whole = frame[SCHEMA] == self._resync_codec.schema.to_bytes(4, "little")
            sender, round, message = (self._resync_codec if whole else self._codec).decode(frame)
            message = self.hear(sender, round, message, whole)
        return sender, round, message

    def hear(self, sender: int, round: int, message: Message, whole: bool = False) -> Message:
        """The message of a frame, or of a `whole` resync frame, in which running parts become sums."""
        heard = self._heard.get(sender)
        if self._running and (heard is None or round > heard.round):
            before = {} if whole or heard is None else heard.sums
            sums = {name: before.get(name, 0.0) + message[name].values for name in self._running}
            heard = self._heard[sender] = _Heard(round, sums)
        if heard is not None:
            message = message | {name: Part(heard.sums[name]) for name in self._running}
        return message
