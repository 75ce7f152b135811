"""The wire format: real bytes, near the entropy, safe to receive. docs/wire-format.md gives it byte by byte."""

from gossamer.wire.catching_up import Listener, Speaker
from gossamer.wire.codec import Codec, Sizes
from gossamer.wire.frame import WireError
from gossamer.wire.reference import elias_fpzip_bytes, six_bytes
from gossamer.wire.warm import warm

__all__ = [
    "Codec",
    "Listener",
    "Sizes",
    "Speaker",
    "WireError",
    "elias_fpzip_bytes",
    "six_bytes",
    "warm",
]
