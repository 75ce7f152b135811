"""Between frames and the inbox of one node: what is made of bytes that came, and what is refused."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gossamer.core import Message, Part, PartSpec
from gossamer.core.inbox import BlockInbox, Edges
from gossamer.peers.arrivals import Entry
from gossamer.wire import WireError
from gossamer.wire.frame import HEADER, OVERHEAD, check_frame


def most_bytes(parts: Mapping[str, PartSpec], num_parameters: int) -> int:
    """No frame of these parts is longer: raw values, a bitmap and their tags, with room to spare."""
    widths = [num_parameters if spec.width is None else spec.width for spec in parts.values()]
    return OVERHEAD + sum(256 + 10 * width for width in widths)


def split(delivery: bytes, sender: int, round: int, run_id: int, schemas: frozenset[int]) -> tuple[bytes, ...]:
    """The frames of a delivery; WireError unless they are whole, of this run and this sender, the last of the round."""
    frames, rounds, at = [], [], 0
    while at < len(delivery):
        if len(delivery) - at < OVERHEAD:
            raise WireError(f"{len(delivery) - at} bytes are left over behind the last frame.")
        *_, schema, who, when, length = HEADER.unpack_from(delivery, at)
        frame = delivery[at : at + OVERHEAD + length]  # a delivery of one frame is not copied
        if schema not in schemas:
            raise WireError("The frame's parts are not those of this algorithm and model.")
        check_frame(frame, run_id, schema)
        if who != sender:
            raise WireError(f"The frame says that node {who} sent it, and node {sender} did.")
        frames.append(frame)
        rounds.append(when)
        at += len(frame)
    if not frames or rounds[-1] != round or sorted(set(rounds)) != rounds:
        raise WireError(f"A delivery of round {round} holds frames of rounds {rounds}.")
    return tuple(frames)


def all_finite(values: Tensor) -> bool:
    """Are there no infinities, and nothing that is no number? Both survive in the least or the largest."""
    return bool(torch.isfinite(torch.stack(torch.aminmax(values))).all())


def as_heard(message: Message, parts: Mapping[str, PartSpec]) -> Message:
    """What decoding its own frame would give a node: where everything is sent of an indexed part, all is marked."""
    heard: Message = {}
    for name, spec in parts.items():
        values, sent, quantized = message[name]
        if spec.same_indices_as is not None:
            sent = heard[spec.same_indices_as].sent
        elif sent is None and spec.sparse:
            sent = torch.ones(values.shape, dtype=torch.bool)
        heard[name] = Part(values, sent, quantized)
    return heard


def inbox_of(entries: list[Entry], messages: Mapping[tuple[int, int], Message], me: int) -> BlockInbox:
    """The inbox of one node, from the messages by sender and round."""
    rows = [messages[entry.sender, entry.sent] for entry in entries]

    def stacked(name: str) -> Part:
        sent = [row[name].sent for row in rows]
        marks = None if sent[0] is None else torch.cat([s for s in sent if s is not None])
        return Part(torch.cat([row[name].values for row in rows]), marks)

    edges = Edges(
        indptr=np.array([0, len(entries)]),
        positions=np.arange(len(entries)),
        senders=np.array([entry.sender for entry in entries]),
        weights=np.array([entry.weight for entry in entries]),
    )
    own = max(i for i, entry in enumerate(entries) if entry.sender == me)
    return BlockInbox({name: stacked(name) for name in rows[0]}, edges, [own])
