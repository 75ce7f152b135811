"""The wire format: index coding, value coding, messages and frames (docs/wire-format.md)."""

from gossamer.wire.codec import Codec, Sizes
from gossamer.wire.frame import WireError

__all__ = ["Codec", "Sizes", "WireError"]
