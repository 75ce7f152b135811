"""The wire format: real bytes, near the entropy, safe to receive. docs/wire-format.md gives it byte by byte."""

from gossamer.wire.codec import Codec, Sizes
from gossamer.wire.endpoint import Endpoint
from gossamer.wire.frame import WireError
from gossamer.wire.precompile import precompile
from gossamer.wire.reference import elias_fpzip_bytes, six_bytes

__all__ = [
    "Codec",
    "Endpoint",
    "Sizes",
    "WireError",
    "elias_fpzip_bytes",
    "precompile",
    "six_bytes",
]
