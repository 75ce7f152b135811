"""Adaptive coding of marks and levels: kernels against their twins, damaged streams, and how short it is."""

import numpy as np
import pytest
import torch
import wire_twins as twins
from hypothesis import given, settings
from hypothesis import strategies as st
from test_wire_kernels import masks, padded, written

from gossamer.core import Part, PartSpec, Quantized
from gossamer.wire import Codec, adaptive, arithmetic, indices, quantized
from gossamer.wire.arithmetic import NOTHING

few = settings(max_examples=60, deadline=None)


@st.composite
def some_levels(draw):
    """Levels other than 0, small ones or any, and their bits."""
    num_bits, count = draw(st.integers(1, 8)), draw(st.integers(0, 400))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = (-1, 1) if num_bits == 1 else (-(2 ** (num_bits - 1)), 2 ** (num_bits - 1) - 1)
    sizes = random.geometric(draw(st.sampled_from([0.02, 0.3, 0.9])), count)
    signs = np.where(random.random(count) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])), 1, -1)
    return np.clip(sizes * signs, low, high).astype(np.int16), num_bits


@few
@given(masks())
def test_marks_are_counted_written_and_read_as_by_the_twin(mask):
    coder = twins.Encoder()
    twins.adaptive_marks(coder, mask.size, mask)
    data = coder.finish()
    assert adaptive.code_marks(mask, NOTHING, 0) == len(data)
    assert written(lambda out: adaptive.code_marks(mask, out, 0), len(data)) == data
    found = np.full_like(mask, 7)
    assert adaptive.read_marks(padded(data), 0, len(data), found) == len(data)
    np.testing.assert_array_equal(found, mask)
    assert adaptive.read_marks(padded(data), 0, len(data) - 1, found) == len(data), "over the end"


@few
@given(some_levels())
def test_levels_are_counted_written_and_read_as_by_the_twin(given_levels):
    levels, num_bits = given_levels
    coder = twins.Encoder()
    twins.adaptive_levels(coder, levels.size, num_bits, levels)
    data = coder.finish()
    assert adaptive.code_levels(levels, num_bits, NOTHING, 0) == len(data)
    assert written(lambda out: adaptive.code_levels(levels, num_bits, out, 0), len(data)) == data
    found = np.zeros_like(levels)
    assert adaptive.read_levels(padded(data), 0, len(data), num_bits, found) == len(data)
    np.testing.assert_array_equal(found, levels)
    assert adaptive.read_levels(padded(data), 0, len(data) - 1, num_bits, found) == len(data), "over the end"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 900), st.integers(1, 8))
def test_readers_make_of_any_bytes_what_the_twins_make(data, width, num_bits):
    buffer = padded(data)
    buffer[len(data) :] = 0xA5  # what stands behind the end must not matter
    marks, levels = np.zeros(width, np.uint8), np.zeros(width, np.int16)
    for read, twin, found in (
        (lambda: adaptive.read_marks(buffer, 0, len(data), marks), twins.adaptive_marks, marks),
        (lambda: adaptive.read_levels(buffer, 0, len(data), num_bits, levels), twins.adaptive_levels, levels),
    ):
        coder = twins.Decoder(data)
        try:
            expected = twin(coder, width) if found is marks else twin(coder, width, num_bits)
        except (IndexError, ValueError):
            assert read() == len(data) + 1
            continue
        behind = coder.at - 2
        assert read() == behind
        if behind <= len(data):
            assert found.tolist() == expected


def test_a_carry_runs_through_bytes_that_are_full():
    random, far = np.random.default_rng(0), 0
    for _ in range(400):
        coder, out, low, span, at = twins.Encoder(), np.zeros(400, np.uint8), 0, arithmetic.FULL, 0
        for p, yes in zip(random.choice([1, 2**15, 2**16 - 1], 200), random.random(200) < 0.5, strict=True):
            before = out[:at].copy()
            low, span, at = arithmetic.encode(bool(yes), p, low, span, out, at)
            far += np.count_nonzero(out[: before.size] != before) > 1
            coder.decide(int(p), yes)
        assert out[: arithmetic.finish(low, out, at)].tobytes() == coder.finish()
    assert far > 0, "no carry went further than one byte"


def independent(share, width=90_000, seed=0):
    """A message of levels that know nothing of each other."""
    random = np.random.default_rng(seed)
    sent = random.random((1, width)) < share
    levels = random.geometric(0.9, sent.shape) * random.choice([-1, 1], sent.shape) * sent
    return message_of(torch.from_numpy(levels.astype(np.int16)))


def message_of(levels):
    return {"x": Part(levels * 0.5, levels != 0, Quantized(levels, torch.tensor([[0.5]]), 0))}


@pytest.mark.parametrize("share", [0.002, 0.005, 0.01, 0.02, 0.05, 0.2])
def test_independent_levels_take_their_entropy_and_three_percent(share):
    message = independent(share)
    levels = message["x"].quantized.levels
    counts = levels.unique(return_counts=True)[1]
    entropy_bytes = (counts * -(counts / levels.numel()).log2()).sum().item() / 8
    sizes = Codec({"x": PartSpec(sparse=True, values="int8")}, levels.shape[1], seed=0).num_bytes(message)["x"]
    assert sizes.total[0] - 6 <= 1.03 * entropy_bytes  # two tags and the scale


def test_entries_in_clusters_and_signs_in_runs_take_less_than_independent_ones():
    message = independent(0.05)
    levels = message["x"].quantized.levels
    codec = Codec({"x": PartSpec(sparse=True, values="int8")}, levels.shape[1], seed=0)
    alone = codec.num_bytes(message)["x"]
    stretches = torch.arange(levels.shape[1]) // 500 % 2  # 0.1 in every other one
    sent = torch.rand(levels.shape, generator=torch.Generator().manual_seed(0)) < 0.1 * stretches
    signs = 1 - 2 * (torch.arange(levels.shape[1])[None] // 250 % 2)
    clustered = codec.num_bytes(message_of((sent * signs).to(torch.int16)))["x"]
    assert abs(int(sent.sum()) - int((levels != 0).sum())) < 300
    assert clustered.indices[0] < 0.9 * alone.indices[0]
    assert clustered.values[0] < 0.45 * alone.values[0]


def test_it_is_used_for_few_entries_of_few_levels_only():
    def tags(spec, levels):
        frame = Codec({"x": spec}, levels.shape[1], seed=0).encode(message_of(levels), 0, 0)
        plan = quantized.LevelCoder(int(spec.values[3:]), 0, spec.sparse)
        positions = np.flatnonzero(levels[0].numpy()).astype(np.uint32)
        rows = plan.rows(message_of(levels)["x"])
        return frame[28], plan.plan(rows, 0, positions).levels is not None

    levels = independent(0.05)["x"].quantized.levels
    signs = levels.sign()
    assert tags(PartSpec(sparse=True, values="int8"), levels) == (indices.TAG_ADAPTIVE, True)
    assert tags(PartSpec(sparse=True, values="int1"), signs)[0] != indices.TAG_ADAPTIVE
    many = independent(0.3)["x"].quantized.levels
    assert tags(PartSpec(sparse=True, values="int8"), many)[0] != indices.TAG_ADAPTIVE
    assert not tags(PartSpec(sparse=True, values="int8"), many)[1]


def test_entries_that_are_sent_as_zero_stay_sent():
    levels = independent(0.05)["x"].quantized.levels
    sent = levels != 0
    levels = torch.where(levels > 1, 0, levels)
    message = {"x": Part(levels * 0.5, sent, Quantized(levels, torch.tensor([[0.5]]), 0))}
    codec = Codec({"x": PartSpec(sparse=True, values="int8")}, levels.shape[1], seed=0)
    found = codec.decode(codec.encode(message, 0, 0))[2]["x"]
    assert torch.equal(found.sent, sent)
    assert torch.equal(found.quantized.levels, levels)
