"""One node's ends of its links: messages to bytes and back, without input or output.

Whoever carries the bytes (a simulation, a rank, a peer's transport) calls

    outgoing = endpoint.send(message, exchange)     # outgoing.own is the message as every receiver will see it
    delivery = outgoing.bytes_for(receiver)         # for each receiver, whatever that one missed before included
    endpoint.acknowledged(receiver, exchange)       # when it has arrived
and at the other end
    frames = endpoint.check(delivery, sender, exchange)     # WireError unless they are what they should be
    message = endpoint.receive(frames).message

Who missed what of a cumulative part, and what is then resent, is settled here (resync.py says how). `bytes_for`,
`acknowledged`, `forget` and `check` may be called from other threads than `send` and `receive`; a slow link may ask for
its bytes any number of exchanges later, and after a restart.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.core import Message, Part, PartSpec
from gossamer.wire.codec import Codec
from gossamer.wire.frame import HEADER, OVERHEAD, Frame, WireError, check_frame
from gossamer.wire.resync import needs_resync, num_channels, plain_bytes, resync_parts

REMEMBERED = 64  # exchanges within which an acknowledgement counts


class Received(NamedTuple):
    """The message of a delivery, in which cumulative parts are sums."""

    sender: int
    exchange: int
    message: Message


class _Replica(NamedTuple):
    """What is known of a sender's cumulative parts in a channel."""

    exchange: int  # the last one that was heard
    sums: dict[str, Tensor]  # (1, width)


class _Channel:
    """What was sent and heard in the exchanges of one channel (`PartSpec.channels`)."""

    def __init__(self, node: int, zeros: dict[str, Tensor]):
        self.sent_bytes = 0  # of all frames so far
        self.frames: deque[bytes] = deque()  # the latest ones
        self.sent_by: dict[int, int] = {}  # bytes of all frames by the end of each of the last exchanges
        self.reached: dict[int, int] = {}  # bytes sent up to the last message that reached a receiver
        self.broken: set[int] = set()  # senders whose sums are not known, because a message was refused
        self.replicas = {node: _Replica(-1, zeros)}  # the node's own among them; at first all are 0, as everyone knows

    def add(self, frame: bytes, exchange: int, room: int) -> None:
        """Keep the frame of an exchange, and of those before as many as fill the room."""
        self.sent_bytes += len(frame)
        self.frames.append(frame)
        while len(self.frames) > 1 and sum(map(len, self.frames)) > room:
            self.frames.popleft()
        self.sent_by[exchange] = self.sent_bytes
        while len(self.sent_by) > REMEMBERED:
            del self.sent_by[next(iter(self.sent_by))]


class Endpoint:
    """A node's ends of its links, in a run whose messages have these parts."""

    def __init__(self, node: int, parts: Mapping[str, PartSpec], num_parameters: int, seed: int, run_id: int = 0):
        self.node = node
        self._parts = parts
        self._codec = Codec(parts, num_parameters, seed, run_id)
        self._resync_codec = Codec(resync_parts(parts), num_parameters, seed, run_id)
        self._plain = plain_bytes(parts, num_parameters)
        self._cumulative = {name: _zeros(spec, num_parameters) for name, spec in parts.items() if spec.cumulative}
        self._lock = threading.Lock()
        self._channels = [_Channel(node, self._cumulative) for _ in range(num_channels(parts))]

    def restart(self, exchange: int, sums: Mapping[str, Tensor]) -> None:
        """Go on from these cumulative sums of the node, `own_sums` before this exchange. What others have heard of them
        is not known, and what they said is forgotten: everyone is told anew."""
        for number, channel in enumerate(self._channels):
            with self._lock:
                channel.sent_bytes += self._plain + 1  # this reached nobody, and is more than could be told by frames
                channel.frames.clear()
            own = {name: row.view(len(self._channels), -1)[number : number + 1] for name, row in sums.items()}
            channel.replicas = {self.node: _Replica(exchange - 1, own)}
            channel.broken.clear()

    @property
    def own_sums(self) -> dict[str, Tensor]:
        """The sums of the node's own cumulative parts so far, (1, channels * width)."""
        own = [channel.replicas[self.node].sums for channel in self._channels]
        return {name: torch.cat([sums[name] for sums in own], dim=1) for name in self._cumulative}

    def _channel(self, exchange: int) -> _Channel:
        return self._channels[exchange % len(self._channels)]

    @property
    def schema(self) -> int:
        """Of its messages: ends whose schemas differ cannot read each other's."""
        return self._codec.schema

    @property
    def max_bytes(self) -> int:
        """No delivery is longer: a frame, and those missed before it if they are shorter than the sums."""
        return max(self._codec.max_bytes, self._resync_codec.max_bytes) + self._plain

    # The sending end.

    def send(self, message: Message, exchange: int) -> "Outgoing":
        """Take the node's message of an exchange."""
        frame = self._codec.encode(message, self.node, exchange)
        own = self._add_up(self.node, exchange, self._as_received(message))
        resync = {name: own[name] if spec.cumulative else message[name] for name, spec in self._parts.items()}
        channel = self._channel(exchange)
        with self._lock:
            channel.add(frame, exchange, self._plain)
            return Outgoing(self, exchange, own, resync, channel.sent_bytes, tuple(channel.frames))

    def bytes_for(self, receiver: int, outgoing: "Outgoing") -> bytes:
        """What goes to a receiver: the frame, behind those that the receiver missed, or a resync frame."""
        frames = outgoing.frames
        with self._lock:
            reached = self._channel(outgoing.exchange).reached.get(receiver, 0)
        missed = outgoing.num_bytes - len(frames[-1]) - reached if self._plain else 0
        if needs_resync(missed, len(frames[-1]), self._plain):
            return self._resync_codec.encode(outgoing.resync, self.node, outgoing.exchange)
        first = len(frames) - 1
        while missed > 0:
            first -= 1
            missed -= len(frames[first])
        return frames[-1] if first == len(frames) - 1 else b"".join(frames[first:])

    def acknowledged(self, receiver: int, exchange: int) -> None:
        """What went to this receiver in this exchange has arrived."""
        channel = self._channel(exchange)
        with self._lock:
            if exchange in channel.sent_by:
                channel.reached[receiver] = channel.sent_by[exchange]

    def forget(self, receiver: int) -> None:
        """This receiver knows nothing any more: it was restarted."""
        with self._lock:
            for channel in self._channels:
                channel.reached[receiver] = -self._plain - 1  # more than could be told by frames

    # The receiving end.

    def check(self, delivery: bytes, sender: int, exchange: int) -> tuple[Frame, ...]:
        """The frames of a delivery; WireError unless they are whole, of this run and this sender, the last of the
        exchange."""
        frames: list[Frame] = []
        at = 0
        while at < len(delivery):
            if len(delivery) - at < OVERHEAD:
                raise WireError(f"{len(delivery) - at} bytes are left over behind the last frame.")
            *_, length = HEADER.unpack_from(delivery, at)
            content = delivery[at : at + OVERHEAD + length]  # a delivery of one frame is not copied
            frame = check_frame(content, self._codec.run_id, {self._codec.schema, self._resync_codec.schema})
            if frame.sender != sender:
                raise WireError(f"The frame says that node {frame.sender} sent it, and node {sender} did.")
            frames.append(frame)
            at += len(content)
        exchanges = [frame.round for frame in frames]
        one_channel = len({each % len(self._channels) for each in exchanges}) == 1
        if not one_channel or exchanges[-1] != exchange or sorted(set(exchanges)) != exchanges:
            raise WireError(f"A delivery of round {exchange} holds frames of rounds {exchanges}.")
        return tuple(frames)

    def receive(self, frames: Sequence[Frame], limits: Mapping[str, float] | None = None) -> Received:
        """The message of checked frames; WireError if their content is not one, or if a number of a part is larger than
        the part's limit. What was heard is not added again; a resync frame counts even if its sender, restarted from an
        earlier state, is in exchanges that were heard before."""
        for frame in frames:
            is_resync = frame.schema == self._resync_codec.schema
            message = (self._resync_codec if is_resync else self._codec).decode_checked(frame)
            message = self._add_up(frame.sender, frame.round, message, is_resync, limits)
        return Received(frame.sender, frame.round, message)

    def _add_up(
        self,
        sender: int,
        exchange: int,
        message: Message,
        is_resync: bool = False,
        limits: Mapping[str, float] | None = None,
    ) -> Message:
        """The message of a frame, in which cumulative parts become sums; WireError if not all of it is finite."""
        channel = self._channel(exchange)
        known = channel.replicas.get(sender)
        if sender in channel.broken and not is_resync:
            raise WireError("A message before was refused, and what it changed is not known.")
        if self._cumulative and (known is None or is_resync or exchange > known.exchange):
            before = {} if is_resync or known is None else known.sums
            sums = {name: before.get(name, 0.0) + message[name].values for name in self._cumulative}
            known = _Replica(exchange, sums)
        if known is not None:
            message = message | {name: Part(known.sums[name]) for name in self._cumulative}
        if sender != self.node:
            self._check(channel, sender, message, limits or {})
        if known is not None:
            channel.replicas[sender] = known
        return message

    def _check(self, channel: _Channel, sender: int, message: Message, limits: Mapping[str, float]) -> None:
        """WireError if the numbers cannot be. Then the sender's sums are not known any more, until it resyncs."""
        try:
            for name, part in message.items():
                check_values(name, part.values, limits.get(name, inf), self._parts[name])
            channel.broken.discard(sender)
        except WireError:
            if self._cumulative:
                channel.broken.add(sender)
            raise

    def _as_received(self, message: Message) -> Message:
        """What decoding its frame would give: where everything is sent of a sparse part, all of it is marked."""
        received: Message = {}
        for name, spec in self._parts.items():
            values, sent, quantized = message[name]
            if spec.same_indices_as is not None:
                sent = received[spec.same_indices_as].sent
            elif sent is None and spec.sparse:
                sent = torch.ones(values.shape, dtype=torch.bool)
            received[name] = Part(values, sent, quantized)
        return received


def _zeros(spec: PartSpec, num_parameters: int) -> Tensor:
    dtype = torch.float64 if spec.values == "float64" else torch.float32
    return torch.zeros(1, num_parameters if spec.width is None else spec.width, dtype=dtype)


class Outgoing(NamedTuple):
    """A node's message of an exchange, under way."""

    endpoint: Endpoint
    exchange: int
    own: Message  # what the node itself finds in its inbox, as its receivers do
    resync: Message  # what a resync frame holds
    num_bytes: int  # of all frames that the node had sent by then in the channel
    frames: tuple[bytes, ...]  # the latest ones of the channel, this exchange's last

    def bytes_for(self, receiver: int) -> bytes:
        """What goes to a receiver, made when it is about to leave: what has reached it by then is not sent again."""
        return self.endpoint.bytes_for(receiver, self)


def check_values(name: str, values: Tensor, limit: float, spec: PartSpec | None = None) -> None:
    """WireError if there are infinities, something that is no number, a number beyond the limit, or a push-sum weight
    that none can be."""
    least, most = (extreme.item() for extreme in torch.aminmax(values))  # what is no number survives in both
    if not (isfinite(least) and isfinite(most)):
        raise WireError(f"The values of part {name} are not all finite.")
    if max(-least, most) > limit:
        raise WireError(f"Part {name} has a value of {max(-least, most):.3g}, and more than {limit:.3g} cannot be.")
    if spec is None or not spec.push_sum_weight:
        return
    some_may_be_0 = spec.sparse or spec.same_indices_as is not None  # where nothing was sent
    if least < 0 or (least == 0 and not some_may_be_0):
        raise WireError(f"Part {name} has a push-sum weight of {least:.3g}, and all are above 0.")
