"""Each kernel of index coding against its twin in plain Python, on inputs that Hypothesis makes."""

import numpy as np
import wire_twins as twins
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.wire.kernels import bits
from gossamer.wire.kernels import block_rice as blocks
from gossamer.wire.kernels import elias_rice as gaps
from gossamer.wire.kernels import index_sizes as measure
from gossamer.wire.kernels.bits import PADDING

few = settings(max_examples=60, deadline=None)

widths = st.one_of(st.integers(1, 70), st.integers(505, 520), st.integers(1, 1600))
seeds = st.integers(0, 2**32 - 1)
shares = st.lists(st.sampled_from([0.0, 0.002, 0.02, 0.1, 0.3, 0.5, 0.7, 0.95, 1.0]), min_size=1, max_size=6)


@st.composite
def masks(draw):
    """Zeros and ones, of differing density along the way."""
    width = draw(widths)
    pieces = np.array(draw(shares))
    random = np.random.default_rng(draw(seeds))
    return (random.random(width) < pieces[np.arange(width) * pieces.size // width]).astype(np.uint8)


def padded(data):
    out = np.zeros(len(data) + PADDING, np.uint8)
    out[: len(data)] = np.frombuffer(bytes(data), np.uint8)
    return out


def written(write, num_bytes):
    """What a kernel writes into a buffer full of ones: bytes it did not write would show."""
    out = np.full(num_bytes + PADDING, 255, np.uint8)
    assert write(out) == num_bytes
    return out[:num_bytes].tobytes()


@few
@given(masks())
def test_masks_pack_to_bits_and_back_to_positions(mask):
    words = bits.pack(mask)
    assert words.view(np.uint8).tobytes()[: (mask.size + 7) // 8] == twins.to_bytes(mask)
    assert bits.ones_in_all(words) == mask.sum()
    np.testing.assert_array_equal(bits.positions_of(words, int(mask.sum())), np.flatnonzero(mask))
    places = np.full(mask.sum() + 9, 7, np.uint32)
    assert bits.places_of(words, places) == mask.sum()
    np.testing.assert_array_equal(places[:-9], np.flatnonzero(mask))
    assert places[-1] == 7, "wrote over the end"
    np.testing.assert_array_equal(bits.all_ones(mask.size), bits.pack(np.ones_like(mask)))


@few
@given(masks(), seeds)
def test_numbers_are_placed_at_positions_and_positions_marked(mask, seed):
    numbers = np.random.default_rng(seed).integers(0, 2**32, mask.size, dtype=np.uint32)
    positions = np.flatnonzero(mask)
    out, marks = np.zeros_like(numbers), np.zeros(mask.size, np.bool_)
    bits.place(numbers[positions], positions, out)
    np.testing.assert_array_equal(out, numbers * mask)
    bits.mark(positions, marks)
    np.testing.assert_array_equal(marks, mask == 1)


@few
@given(masks())
def test_the_sizes_of_all_index_codings_are_those_of_the_codings(mask):
    positions = np.flatnonzero(mask).tolist()
    modes = np.zeros(-(-mask.size // twins.BLOCK), np.uint8)
    rice_bits = np.zeros(measure.MAX_RICE + 1, np.int64)
    count, gamma_bits, block_bits = measure.measure(bits.pack(mask), mask.size, modes, rice_bits, measure.INSIDE)
    coded, twin_modes = twins.blocks_coding(mask)
    assert count == len(positions)
    assert gamma_bits == len(twins.gamma_coding(positions))
    assert rice_bits.tolist() == [len(twins.rice_coding(positions, r)) for r in range(measure.MAX_RICE + 1)]
    assert modes.tolist() == twin_modes
    assert block_bits == len(coded)


@few
@given(masks())
def test_the_shortest_index_coding_is_planned(mask):
    positions = np.flatnonzero(mask).tolist()
    tag, count, num_bytes, _ = measure.plan_indices(bits.pack(mask), mask.size, measure.INSIDE)
    with_count = [len(twins.gamma_coding(positions))]
    with_count += [len(twins.rice_coding(positions, r)) for r in range(measure.MAX_RICE + 1)]
    num_count_bytes = measure.varint_bytes(count)
    assert num_count_bytes == max(1, -(-count.bit_length() // 7))
    shortest = min(num_count_bytes + -(-min(with_count) // 8), -(-len(twins.blocks_coding(mask)[0]) // 8))
    assert num_bytes == (0 if tag == measure.TAG_ALL else shortest)
    assert (tag == measure.TAG_ALL) == (count == mask.size)


@few
@given(masks(), st.integers(0, 12))
def test_gaps_are_written_and_read_as_by_the_twins(mask, r):
    positions = np.flatnonzero(mask)
    for coding, write, read in (
        (twins.gamma_coding(positions.tolist()), gaps.write_gamma, gaps.read_gamma),
        (
            twins.rice_coding(positions.tolist(), r),
            lambda positions, out, at: gaps.write_rice(positions, r, out, at),
            lambda buffer, bit, limit, width, found: gaps.read_rice(buffer, bit, limit, width, r, found),
        ),
    ):
        data = twins.to_bytes(coding)
        assert written(lambda out, write=write: write(positions, out, 0), len(data)) == data
        found = np.empty_like(positions)
        assert read(padded(data), 0, 8 * len(data), mask.size, found) == len(coding)
        np.testing.assert_array_equal(found, positions)
        if positions.size:
            assert read(padded(data), 0, len(coding) - 1, mask.size, found) == -1, "read over the end"
            assert read(padded(data), 0, len(coding), int(positions[-1]), found) == -1, "read over the width"


@few
@given(st.lists(st.integers(0, 2**31 - 2), min_size=1, max_size=5, unique=True), st.integers(0, measure.MAX_RICE))
def test_gaps_of_any_size_survive(positions, r):
    positions = np.array(sorted(positions))
    rice_bytes = int(((np.diff(positions, prepend=-1) - 1) >> r).sum() // 8) + 32
    for write, read in ((gaps.write_gamma, gaps.read_gamma), (gaps.write_rice, gaps.read_rice)):
        if write is gaps.write_rice and rice_bytes > 10**6:
            continue
        out = np.zeros(max(rice_bytes, 200) if write is gaps.write_rice else 200, np.uint8)
        parameter = (r,) if write is gaps.write_rice else ()
        end = write(positions, *parameter, out, 0)
        found = np.empty_like(positions)
        assert read(out, 0, 8 * end, 2**31 - 1, *parameter, found) > 0
        np.testing.assert_array_equal(found, positions)


@few
@given(masks())
def test_blocks_are_written_and_read_as_by_the_twin(mask):
    coding, modes = twins.blocks_coding(mask)
    data = twins.to_bytes(coding)
    words = bits.pack(mask)
    modes = np.array(modes, np.uint8)
    assert written(lambda out: blocks.write_blocks(words, modes, mask.size, out, 0), len(data)) == data
    found = np.zeros_like(words)
    assert blocks.read_blocks(padded(data), 0, 8 * len(data), mask.size, found) == len(coding)
    np.testing.assert_array_equal(found, words)
    assert blocks.read_blocks(padded(data), 0, len(coding) - 1, mask.size, np.zeros_like(words)) == -1


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.integers(1, 1200), st.integers(0, 60), st.integers(0, 20))
def test_index_readers_make_of_any_bytes_what_the_twins_make(data, width, count, r):
    count = min(count, width)
    stream, limit = twins.to_bits(data), 8 * len(data)
    buffer = padded(data)
    buffer[len(data) :] = 0xA5  # what stands behind the end must not matter
    found = np.empty(count, np.int64)
    for twin, bit in (
        (twins.read_gaps(stream, count, width), gaps.read_gamma(buffer, 0, limit, width, found)),
        (twins.read_gaps(stream, count, width, r), gaps.read_rice(buffer, 0, limit, width, r, found)),
    ):
        assert bit == (-1 if twin is None else twin[1])
    if twin is not None:
        assert found.tolist() == twin[0]
    words = np.zeros(-(-width // 64), np.uint64)
    bit = blocks.read_blocks(buffer, 0, limit, width, words)
    twin = twins.read_blocks(stream, width)
    assert bit == (-1 if twin is None else twin[1])
    if twin is not None:
        assert twins.to_bits(words.view(np.uint8))[:width] == twin[0]
