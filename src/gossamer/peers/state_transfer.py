"""A node's state as one frame: what a peer that was away takes from a neighbour.

Not the model alone, because a model is not enough for every algorithm: push-sum weights, replicas and what they are
counted from must fit together. All of it travels densely, in the wire format, as parts named by their place in the
state.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer import wire
from gossamer.core import Part, PartSpec
from gossamer.wire import WireError

SUMS = "sums."  # before the names of cumulative parts


class StateTransfer:
    """Frames of states like this one; its tensors are (1, width)."""

    def __init__(self, like: Mapping[str, Tensor], seed: int, run_id: int):
        parts = {name: _spec(tensor) for name, tensor in like.items() if tensor.numel()}
        self._like = dict(like)
        self._codec = wire.Codec(parts, 1, seed, run_id)
        self.max_bytes = self._codec.max_bytes

    def encode(self, tensors: Mapping[str, Tensor], sender: int, round: int) -> bytes:
        return self._codec.encode({name: Part(t) for name, t in tensors.items() if t.numel()}, sender, round)

    def decode(self, frame: bytes) -> "Taken":
        """WireError if it is no such state."""
        sender, round, message = self._codec.decode(frame)
        if not all(torch.isfinite(part.values).all() for part in message.values()):
            raise WireError("The state's numbers are not all finite.")
        tensors = {name: message[name].values if name in message else empty for name, empty in self._like.items()}
        return Taken(sender, round, tensors)


class Taken(NamedTuple):
    sender: int
    round: int
    tensors: dict[str, Tensor]


def _spec(tensor: Tensor) -> PartSpec:
    assert tensor.dtype in (torch.float32, torch.float64), f"states hold no {tensor.dtype}"
    return PartSpec(tensor.shape[-1], values="float64" if tensor.dtype == torch.float64 else "float32")
