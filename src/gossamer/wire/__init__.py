"""The wire format: real bytes, near the entropy, safe to receive. docs/wire-format.md gives it byte by byte."""

from gossamer.wire.codec import Codec, Sizes
from gossamer.wire.frame import WireError
from gossamer.wire.precompile import precompile
from gossamer.wire.reference import elias_fpzip_bytes, six_bytes
from gossamer.wire.resync import Listener, Speaker

__all__ = [
    "Codec",
    "Listener",
    "Sizes",
    "Speaker",
    "WireError",
    "elias_fpzip_bytes",
    "precompile",
    "six_bytes",
]
