"""Each kernel of index coding against its twin in plain Python, on inputs that Hypothesis makes."""

import numpy as np
import wire_twins as twins
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gossamer.wire import bits, indices
from gossamer.wire.bits import GAMMA, PADDING
from gossamer.wire.indices import MAX_RICE

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
def test_positions_are_where_the_ones_are(mask):
    np.testing.assert_array_equal(bits.positions_of(mask), np.flatnonzero(mask))


def positions_in(mask):
    return np.flatnonzero(mask).astype(np.uint32)


def gap_coding(positions, r):
    """The bits of a list of gaps, as the twins write it."""
    return twins.gamma_coding(positions) if r == GAMMA else twins.rice_coding(positions, r)


@few
@given(masks())
def test_the_shortest_coding_of_gaps_is_planned_and_its_size_known(mask):
    positions = positions_in(mask)
    r, num_bits = indices.plan_gaps(positions)
    sizes = {r: len(gap_coding(positions.tolist(), r)) for r in (GAMMA, *range(MAX_RICE + 1))}
    assert num_bits == sizes[r] == min(sizes.values())
    assert r == min(sizes, key=lambda r: (sizes[r], r)), "of equals the first is taken"


@few
@given(masks())
def test_the_shortest_index_coding_is_planned(mask):
    plan, positions = indices.plan(mask), np.flatnonzero(mask).tolist()
    shortest = min(len(gap_coding(positions, r)) for r in (GAMMA, *range(MAX_RICE + 1)))
    count_bytes = max(1, -(-len(positions).bit_length() // 7))
    by_blocks = -(-len(twins.blocks_coding(mask)[0]) // 8)
    if len(positions) == mask.size:
        assert plan == indices.EVERYTHING
    else:
        assert plan.num_bytes == min(count_bytes + -(-shortest // 8), by_blocks)
        assert written(lambda out: indices.write(plan, mask.size, out, 0), 1 + plan.num_bytes)[0] == plan.tag


@few
@given(masks(), st.integers(GAMMA, 12))
def test_gaps_are_written_and_read_as_by_the_twins(mask, r):
    positions = positions_in(mask)
    coding = gap_coding(positions.tolist(), r)
    data = twins.to_bytes(coding)
    assert written(lambda out: indices.write_gaps(positions, r, out, 0), len(data)) == data
    found = np.empty_like(positions)
    assert indices.read_gaps(padded(data), 0, 8 * len(data), mask.size, r, found) == len(coding)
    np.testing.assert_array_equal(found, positions)
    if positions.size:
        assert indices.read_gaps(padded(data), 0, len(coding) - 1, mask.size, r, found) == -1, "over the end"
        assert indices.read_gaps(padded(data), 0, len(coding), positions[-1], r, found) == -1, "over the width"


@few
@given(st.lists(st.integers(0, 2**31 - 2), min_size=1, max_size=5, unique=True), st.integers(GAMMA, MAX_RICE))
def test_gaps_of_any_size_survive(positions, r):
    positions = np.array(sorted(positions), np.uint32)
    gaps = indices.list_gaps(positions, 0, 0, np.empty(positions.size + 1, np.uint32))[:-1]
    num_bits = indices.gamma_bits(gaps, 2**31) if r == GAMMA else indices.rice_bits(gaps, r)
    num_bytes = num_bits // 8 + 1
    assume(num_bytes < 10**6)
    out = np.zeros(num_bytes + PADDING, np.uint8)
    end = indices.write_gaps(positions, r, out, 0)
    found = np.empty_like(positions)
    assert indices.read_gaps(out, 0, 8 * end, 2**31 - 1, r, found) > 0
    np.testing.assert_array_equal(found, positions)


@few
@given(masks())
def test_blocks_are_planned_written_and_read_as_by_the_twin(mask):
    coding, twin_modes = twins.blocks_coding(mask)
    words, positions = bits.pack(mask), positions_in(mask)
    data = twins.to_bytes(coding)
    modes, num_bits = indices.plan_blocks(words, positions, mask.size)
    assert modes.tolist() == twin_modes
    assert num_bits == len(coding)
    assert written(lambda out: indices.write_blocks(words, modes, positions, mask.size, out, 0), len(data)) == data
    found = np.zeros_like(mask)
    again, bit = indices.read_blocks(padded(data), 0, 8 * len(data), found)
    assert bit == len(coding)
    np.testing.assert_array_equal(found, mask)
    np.testing.assert_array_equal(again, positions)
    assert indices.read_blocks(padded(data), 0, len(coding) - 1, np.zeros_like(mask))[1] == -1


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.integers(1, 1200), st.integers(0, 60), st.integers(GAMMA, 20))
def test_index_readers_make_of_any_bytes_what_the_twins_make(data, width, count, r):
    stream, limit = twins.to_bits(data), 8 * len(data)
    buffer = padded(data)
    buffer[len(data) :] = 0xA5  # what stands behind the end must not matter
    found = np.empty(min(count, width), np.uint32)
    twin = twins.read_gaps(stream, found.size, width, None if r == GAMMA else r)
    bit = indices.read_gaps(buffer, 0, limit, width, r, found)
    assert bit == (-1 if twin is None else twin[1])
    if twin is not None:
        assert found.tolist() == twin[0]
    marks = np.zeros(width, np.uint8)
    twin = twins.read_blocks(stream, width)
    assert indices.read_blocks(buffer, 0, limit, marks)[1] == (-1 if twin is None else twin[1])
    if twin is not None:
        assert marks.tolist() == twin[0]
