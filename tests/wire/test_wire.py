"""Messages to frames and back: nothing lost, sizes known beforehand, nothing taken that is not a message of the run."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.core import Part, PartSpec, Quantized, sparse_part
from gossamer.core.rng import Streams
from gossamer.wire import Codec, elias_fpzip_bytes, six_bytes

KINDS = ["float32", "float64", "bfloat16", "float16", *(f"int{bits}" for bits in range(1, 9))]
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 65504.0]


def _half(streams, width):
    return streams.uniform("entries", width) < 0.5


def make_part(spec, width, rows, share, seed, streams=None):
    """A part as a compressor would make it."""
    random = np.random.default_rng(seed)
    sent = random.random((rows, width)) < (np.linspace(0, 2, width) * share if 0 < share < 1 else share)
    if not spec.sparse:
        sent = np.ones_like(sent)
    if spec.seeded is not None:
        sent = np.concatenate([spec.seeded(one, width).numpy() for one in streams])
    marks = torch.from_numpy(sent) if spec.sparse or spec.seeded is not None else None
    if spec.values.startswith("int"):
        bits = int(spec.values[3:])
        top = 1 << (bits - 1)
        if bits == 1:
            levels = random.choice([-1, 1], sent.shape)
        else:
            levels = np.clip(random.standard_normal(sent.shape) * top / 3, -top, top - 1)
        levels = torch.from_numpy((levels * sent).astype(np.int16))
        ranks = torch.from_numpy(sent.cumsum(1) - 1).clamp(min=0)
        num_buckets = -(-width // spec.bucket) if spec.bucket else 1
        scales = torch.from_numpy(random.random((rows, num_buckets), dtype=np.float32))
        each = scales.gather(1, ranks // spec.bucket if spec.bucket else torch.zeros_like(ranks))
        return Part(levels.float() * each, marks, Quantized(levels, scales, spec.bucket))
    values = random.standard_normal(sent.shape) * 10.0 ** random.integers(-3, 2)
    values.flat[: len(SPECIAL)] = SPECIAL[: values.size]
    values = torch.from_numpy(values if spec.values == "float64" else values.astype(np.float32))
    if spec.values in ("bfloat16", "float16"):
        values = values.to(getattr(torch, spec.values)).float()
    return Part(values, marks) if marks is None else sparse_part(values, marks)


def rounds(num_rows):
    """The streams of nodes 4, 5, ... in round 9, one at a time."""
    return [Streams(11, [4 + row], 9) for row in range(num_rows)]


def row_of(message, row):
    def cut(part):
        q = part.quantized
        return Part(
            part.values[row : row + 1],
            None if part.sent is None else part.sent[row : row + 1],
            None if q is None else Quantized(q.levels[row : row + 1], q.scales[row : row + 1], q.bucket),
        )

    return {name: cut(part) for name, part in message.items()}


def refused(message, parts, match, width=8, **options):
    with pytest.raises(ValueError, match=match):
        Codec(parts, width, seed=0, **options).encode(message, 0, 0)
    if all(len(part.values) == 1 for part in message.values()):  # sizes are known of any number of rows
        with pytest.raises(ValueError, match=match):
            Codec(parts, width, seed=0, **options).num_bytes(message)


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].values.dtype == b[name].values.dtype
        assert a[name].values.numpy().tobytes() == b[name].values.numpy().tobytes()
        assert (a[name].sent is None) == (b[name].sent is None)
        if a[name].sent is not None:
            assert torch.equal(a[name].sent, b[name].sent)
        if a[name].quantized is not None:
            given, found = a[name].quantized, b[name].quantized
            assert torch.equal(given.levels, found.levels)
            assert torch.equal(given.scales[:, : found.scales.shape[1]], found.scales)
            assert given.bucket == found.bucket


specs = st.builds(
    lambda way, values, bucket, width: PartSpec(
        width=width,
        sparse=way == "sparse",
        seeded=_half if way == "seeded" else None,
        values=values,
        bucket=bucket if values.startswith("int") else 0,
    ),
    st.sampled_from(["sparse", "sparse", "seeded", "dense"]),
    st.sampled_from(KINDS),
    st.sampled_from([0, 1, 16, 512]),
    st.sampled_from([None, None, 1, 2, 70]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(specs, min_size=1, max_size=3),
    st.sampled_from([1, 2, 63, 64, 65, 511, 512, 513, 1500]),
    st.sampled_from([0.0, 0.001, 0.05, 0.37, 0.9, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_every_message_survives_and_its_size_is_known_beforehand(parts, width, share, seed):
    parts = {f"part {i}": spec for i, spec in enumerate(parts)}
    codec = Codec(parts, width, seed=11, run_id=7)
    message = {
        name: make_part(spec, spec.width or width, 2, share, seed + i, rounds(2))
        for i, (name, spec) in enumerate(parts.items())
    }
    sizes = codec.num_bytes(message)
    for row in range(2):
        given_row = row_of(message, row)
        frame = codec.encode(given_row, sender=4 + row, round=9)
        assert len(frame) == codec.frame_bytes + sum(part.total[row] for part in sizes.values())
        sender, round, found = codec.decode(frame)
        assert (sender, round) == (4 + row, 9)
        assert_same(given_row, found)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 300), st.integers(0, 2**32 - 1), st.sampled_from([0, 7]))
def test_no_coding_is_longer_than_raw_numbers_and_a_byte(kind, count, seed, bucket):
    width = max(count, 1)
    spec = PartSpec(sparse=True, values=kind, bucket=bucket if kind.startswith("int") else 0)
    part = make_part(spec, width, 1, 0.999 if count else 0.0, seed)
    num_sent = int(part.sent.sum())
    sizes = Codec({"x": spec}, width, seed=0).num_bytes({"x": part})["x"]
    bits = int(kind[3:]) if kind.startswith("int") else {"float32": 32, "float64": 64}.get(kind, 16)
    num_scales = 0 if not kind.startswith("int") else -(-num_sent // bucket) if bucket else 1
    assert sizes.values <= -(-num_sent * bits // 8) + 4 * num_scales
    assert sizes.header == (3 if kind.startswith("int") and bucket else 2)


@pytest.mark.parametrize("num_sent", [0, 1, 999, 1000])
def test_nothing_one_all_but_one_and_all_can_be_sent(num_sent):
    sent = torch.zeros(1, 1000, dtype=torch.bool)
    sent[0, 500 - num_sent // 2 : 500 - num_sent // 2 + num_sent] = True
    message = {"x": sparse_part(torch.randn(1, 1000), sent)}
    codec = Codec({"x": PartSpec(sparse=True)}, 1000, seed=0)
    assert_same(codec.decode(codec.encode(message, 0, 0))[2], message)
    sizes = codec.num_bytes(message)["x"]
    assert sizes.indices <= (0 if num_sent == 1000 else 5)


def test_a_part_that_marks_everything_and_one_that_marks_nothing_are_the_same_on_the_wire():
    values = torch.randn(1, 50)
    codec = Codec({"x": PartSpec(sparse=True)}, 50, seed=0)
    frame = codec.encode({"x": Part(values)}, 0, 0)
    assert frame == codec.encode({"x": Part(values, torch.ones(1, 50, dtype=torch.bool))}, 0, 0)
    assert codec.decode(frame)[2]["x"].sent.all()


def test_seeded_entries_have_no_indices_and_follow_from_sender_and_round():
    spec = PartSpec(seeded=_half)
    codec = Codec({"x": spec}, 400, seed=11)
    part = make_part(spec, 400, 1, 1.0, 0, rounds(1))
    frame = codec.encode({"x": part}, sender=4, round=9)
    assert codec.num_bytes({"x": part})["x"].indices == 0
    assert_same(codec.decode(frame)[2], {"x": part})
    assert len(frame) < 36 + 4 * 250


def test_a_part_with_the_indices_of_another_sends_none_itself():
    parts = {
        "x": PartSpec(sparse=True),
        "y": PartSpec(same_indices_as="x", values="float64"),
        "z": PartSpec(same_indices_as="y"),
    }
    x = make_part(parts["x"], 300, 2, 0.2, 0)
    message = {
        "x": x,
        "y": sparse_part(torch.rand(2, 300).double(), x.sent),
        "z": sparse_part(torch.rand(2, 300), x.sent.clone()),
    }
    codec = Codec(parts, 300, seed=0)
    sizes = codec.num_bytes(message)
    assert (sizes["x"].indices > 0).all()
    assert not sizes["y"].indices.any()
    assert not sizes["z"].indices.any()
    for row in range(2):
        frame = codec.encode(row_of(message, row), 0, 0)
        assert len(frame) == codec.frame_bytes + sum(part.total[row] for part in sizes.values())
        assert_same(codec.decode(frame)[2], row_of(message, row))
    other = {**message, "y": sparse_part(message["y"].values, ~x.sent)}
    refused(row_of(other, 0), parts, "same entries", width=300)
    dense = {"x": Part(x.values[:1]), "y": Part(x.values[:1].double()), "z": Part(x.values[:1])}
    found = codec.decode(codec.encode(dense, 0, 0))[2]
    assert found["z"].sent.all()


def test_signs_and_one_scale_per_row_have_little_around_them():
    spec = PartSpec(values="int1")
    part = make_part(spec, 4800, 1, 1.0, 0)
    frame = Codec({"x": spec}, 4800, seed=0).encode({"x": part}, 0, 0)
    assert len(frame) <= 36 + 1 + 4 + 600


def test_six_bytes_per_entry_and_four_without_an_index():
    parts = {"x": PartSpec(sparse=True), "u": PartSpec(width=1)}
    sent = torch.tensor([[True] * 3 + [False] * 5, [True] * 8])
    message = {"x": sparse_part(torch.ones(2, 8), sent), "u": Part(torch.ones(2, 1))}
    assert six_bytes(parts, message) == [3 * 6 + 4, 8 * 6 + 4]


def test_the_reference_s_bytes_are_elias_gamma_of_differences_and_fpzip():
    fpzip = pytest.importorskip("fpzip")
    sent = torch.zeros(1, 100, dtype=torch.bool)
    sent[0, [3, 4, 6, 14]] = True  # differences 1, 2 and 8: 1 + 3 + 7 bits
    message = {"x": sparse_part(torch.arange(100.0)[None], sent)}
    values = np.array([3, 4, 6, 14], np.float32)
    expected = 16 + 2 + len(fpzip.compress(values, precision=0, order="C"))
    assert elias_fpzip_bytes({"x": PartSpec(sparse=True)}, message) == [expected]


@pytest.mark.parametrize(("kind", "most"), [("float32", 2.1), ("float16", 2.0), ("int8", 2.1)])
def test_reading_takes_little_more_memory_than_the_frame_and_what_is_read(kind: str, most: float) -> None:
    width = 200_000
    noise = np.random.default_rng(0)
    if kind == "int8":
        levels = torch.from_numpy(noise.integers(-127, 128, (1, width), np.int16))
        part = Part(levels.float(), None, Quantized(levels, torch.ones(1, 1), bucket=0))
    else:  # random bits, which no coding shortens
        numbers = np.frombuffer(noise.bytes(width * np.dtype(kind).itemsize), kind)
        numbers = numbers.copy() if kind == "float32" else np.nan_to_num(numbers).astype(np.float32)
        part = Part(torch.from_numpy(numbers)[None])
    codec = Codec({"x": PartSpec(width, values=kind)}, 1, 0, 0)
    frame = codec.encode({"x": part}, 0, 0)
    codec.decode(frame)
    tracemalloc.start()
    try:
        codec.decode(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most * 4 * width
