"""Frames: what is refused when a message is encoded, and when bytes arrive that are not a message of this run."""

import re
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from test_wire import assert_same, refused

from gossamer.core import Part, PartSpec, Quantized, sparse_part
from gossamer.wire import Codec, WireError
from gossamer.wire import frame as frames


def _half(streams, width):
    return streams.uniform("entries", width) < 0.5


def test_messages_that_do_not_fit_the_parts_are_refused():
    x, marks = torch.zeros(1, 8), torch.ones(1, 8, dtype=torch.bool)
    refused({"y": Part(x)}, {"x": PartSpec()}, "parts")
    refused({"x": Part(torch.zeros(1, 7))}, {"x": PartSpec()}, "PartSpec says")
    refused({"x": Part(torch.zeros(2, 8))}, {"x": PartSpec()}, "one row")
    refused({"x": Part(x, marks)}, {"x": PartSpec()}, "everything is")
    refused({"x": Part(x)}, {"x": PartSpec(seeded=_half)}, "seeded")
    refused({"x": Part(x, marks[:, :5])}, {"x": PartSpec(sparse=True)}, "bool")
    refused({"x": Part(x, marks.int())}, {"x": PartSpec(sparse=True)}, "bool")
    refused({"x": Part(x), "y": Part(torch.zeros(2, 8))}, {"x": PartSpec(), "y": PartSpec()}, "number of rows")
    refused({"x": Part(x)}, {"x": PartSpec(values="int4")}, "no quantized")
    refused({"x": Part(x)}, {"x": PartSpec(values="int9")}, "int1 .. int8")
    refused({"x": Part(x)}, {"x": PartSpec(sparse=True, seeded=_half)}, "not two")
    refused({"x": Part(x)}, {"x": PartSpec(same_indices_as="x")}, "earlier")
    refused({"x": Part(x)}, {"x": PartSpec(same_indices_as="y"), "y": PartSpec()}, "earlier")
    refused({"x": Part(x)}, {"y": PartSpec(width=3), "x": PartSpec(same_indices_as="y")}, "earlier")
    refused({"x": Part(x)}, {"x": PartSpec(width=0)}, "wide")
    refused({"x": Part(x)}, {"x": PartSpec()}, "run_id", run_id=-1)
    with pytest.raises(ValueError, match="sender"):
        Codec({"x": PartSpec()}, 8, seed=0).encode({"x": Part(x)}, -1, 0)


@pytest.mark.parametrize(("kind", "number"), [("bfloat16", 0.1), ("float16", 1e6), ("float16", 1 / 3)])
def test_the_codec_does_not_round(kind, number):
    refused({"x": Part(torch.full((1, 8), number))}, {"x": PartSpec(values=kind)}, "rounded")


def test_numbers_of_another_type_are_refused():
    refused({"x": Part(torch.zeros(1, 8).double())}, {"x": PartSpec()}, "float32")
    refused({"x": Part(torch.zeros(1, 8))}, {"x": PartSpec(values="float64")}, "float64")


@pytest.mark.parametrize(("kind", "too_large"), [("int4", 8), ("int4", -9), ("int8", 128), ("int8", -129)])
def test_quantized_numbers_that_do_not_fit_are_refused(kind, too_large):
    def quantized(level=1, scale=1.0, bucket=4, shape=(1, 8), num_scales=2):
        levels = torch.full(shape, level, dtype=torch.int16)
        return {"x": Part(torch.zeros(1, 8), None, Quantized(levels, torch.full((1, num_scales), scale), bucket))}

    parts = {"x": PartSpec(values=kind, bucket=4)}
    Codec(parts, 8, seed=0).encode(quantized(), 0, 0)
    refused(quantized(level=too_large), parts, f"do not fit in {kind}")
    refused(quantized(scale=float("nan")), parts, "finite")
    refused(quantized(bucket=2), parts, "buckets")
    refused(quantized(shape=(1, 7)), parts, "shape")
    refused(quantized(num_scales=1), parts, "scales")


def small():
    codec = Codec({"x": PartSpec(sparse=True)}, 20, seed=0, run_id=1)
    sent = torch.arange(20)[None] % 3 == 0
    return codec, codec.encode({"x": sparse_part(torch.arange(20.0)[None], sent)}, 2, 3)


def sealed(frame, **changes):
    """The frame with some bytes changed, {offset: byte}, and its checksum right again."""
    changed = bytearray(frame)
    for offset, byte in changes.get("at", {}).items():
        changed[offset] = byte
    changed[-8:] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(changed[:-8])))
    return bytes(changed)


def test_a_frame_of_another_format_run_or_schema_is_refused():
    codec, frame = small()
    for data, match in (
        (b"", "0 bytes"),
        (frame[:35], "35 bytes"),
        (sealed(frame, at={0: 0}), "start"),
        (sealed(frame, at={2: 2}), r"format 2\.0"),
        (frame[:-1], "payload"),
        (frame + b"\0", "payload"),
        (sealed(frame, at={4: 9}), "run"),
        (sealed(frame, at={12: frame[12] ^ 1}), "parts"),
        (bytes([*frame[:-1], frame[-1] ^ 1]), "checksum"),
        (bytes([*frame[:30], frame[30] ^ 1, *frame[31:]]), "checksum"),
    ):
        with pytest.raises(WireError, match=match):
            codec.decode(data)
    assert codec.decode(frame)[:2] == (2, 3)


def test_a_newer_minor_version_is_read_and_what_it_adds_is_passed_over():
    codec, frame = small()
    longer = bytearray(frame[:-8] + b"new" + frame[-8:])
    longer[24:28] = struct.pack("<I", len(longer) - 36)
    with pytest.raises(WireError, match="3 bytes are left over"):
        codec.decode(sealed(longer))
    assert_same(codec.decode(sealed(longer, at={3: 1}))[2], codec.decode(frame)[2])


def test_both_ends_must_mean_the_same_by_a_frame():
    parts = {"x": PartSpec(sparse=True), "y": PartSpec(width=2)}
    schemas = {
        Codec(parts, 20, seed=0).schema,
        Codec(parts, 20, seed=1).schema,
        Codec(parts, 21, seed=0).schema,
        Codec({"y": parts["y"], "x": parts["x"]}, 20, seed=0).schema,
        Codec(parts | {"x": PartSpec()}, 20, seed=0).schema,
        Codec(parts | {"x": PartSpec(values="int2")}, 20, seed=0).schema,
        Codec(parts | {"x": PartSpec(values="int2", bucket=3)}, 20, seed=0).schema,
    }
    assert len(schemas) == 7
    assert Codec(parts, 20, seed=0, run_id=5).schema == Codec(parts, 20, seed=0).schema


def golden():
    """The messages whose frames docs/wire-format.md shows."""
    values = torch.tensor([[1.0, -2.5, 0.1]])
    weight = torch.tensor([[0.75]], dtype=torch.float64)
    yield (
        Codec({"x": PartSpec(), "u": PartSpec(width=1, values="float64")}, 3, seed=7, run_id=0x1122334455667788),
        {"x": Part(values), "u": Part(weight)},
    )
    levels = torch.zeros(1, 40, dtype=torch.int16)
    levels[0, [1, 2, 5, 11, 30]] = torch.tensor([1, -1, -1, 1, 1], dtype=torch.int16)
    yield (
        Codec({"x": PartSpec(sparse=True, values="int1")}, 40, seed=7, run_id=1),
        {"x": Part(levels * 0.5, levels != 0, Quantized(levels, torch.tensor([[0.5]]), 0))},
    )
    values = torch.tensor([[1.0, 1.5, -1.25, 2.0, -0.5, 1.75, 1.0, -1.0, 3.0, 0.75, 1.125, -1.5]])
    sent = torch.ones(1, 12, dtype=torch.bool)
    yield Codec({"x": PartSpec(sparse=True)}, 12, seed=7, run_id=1), {"x": Part(values, sent)}
    levels = torch.zeros(1, 200, dtype=torch.int16)
    levels[0, [100 + 3 * i + i % 2 for i in range(16)]] = 1
    levels[0, [100, 122, 142]] = -2
    yield (
        Codec({"x": PartSpec(sparse=True, values="int8")}, 200, seed=7, run_id=1),
        {"x": Part(levels * 0.5, levels != 0, Quantized(levels, torch.tensor([[0.5]]), 0))},
    )


def test_the_frames_in_the_documentation_are_what_is_written_and_read():
    text = Path(__file__).parents[2].joinpath("docs", "wire-format.md").read_text()
    lines = text.split("## Four frames")[1].splitlines()
    written = [bytes.fromhex(hexadecimal) for hexadecimal in documented(lines)]
    for frame, (codec, message) in zip(written, golden(), strict=True):
        assert codec.encode(message, sender=2, round=3) == frame
        assert_same(codec.decode(frame)[2], message)


def documented(lines):
    """The bytes in the indented lines, a frame for each group of lines; what stands far to the right explains them."""
    group = ""
    for line in [*lines, ""]:
        if line.startswith("    "):
            group += " " + re.split(" {3,}", line.strip())[0]
        elif group:
            yield group
            group = ""


def test_a_small_frame_cannot_make_a_large_allocation():
    codec = Codec({"x": PartSpec(sparse=True), "y": PartSpec(width=3)}, 100_000, seed=0)
    tags = [bytes([tag]) + b"\x9f\x8d\x06" + bytes(20) for tag in (1, 3, 32, 33, 50)]
    tags += [b"\x02" + bytes(20), b"\x02" + b"\xff" * 20, b"\x00\x00", b"\x00\x01", bytes(20), b"\xff" * 20]

    def decode_all():
        for payload in tags:
            out = frames.start_frame(len(payload), 0, codec.schema, 0, 0)
            out[frames.HEADER.size : frames.HEADER.size + len(payload)] = np.frombuffer(payload, np.uint8)
            with pytest.raises(WireError):
                codec.decode(frames.finish_frame(out, len(payload)))

    decode_all()  # compiles kernels, if they are not in the cache, which takes memory of its own
    tracemalloc.start()
    try:
        decode_all()
        assert tracemalloc.get_traced_memory()[1] < 4 * 4 * 100_000
    finally:
        tracemalloc.stop()
