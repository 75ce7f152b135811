"""Each kernel of value coding against its twin in plain Python, on inputs that Hypothesis makes."""

import numpy as np
import pytest
import wire_twins as twins
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_wire_kernels import few, masks, padded, seeds, written

from gossamer.wire.kernels import bits, code_lengths, floats, huffman, symbols
from gossamer.wire.kernels import levels as kernels
from gossamer.wire.kernels import simd as lanes
from gossamer.wire.kernels.bits import PADDING


@st.composite
def histograms(draw):
    """Counts of 256 symbols: none, one, a few, flat ones and ones that fall off steeply."""
    counts = np.zeros(256, np.int64)
    chosen = draw(st.lists(st.integers(0, 255), unique=True, max_size=256))
    base = draw(st.sampled_from([1.0, 1.05, 1.3, 1.62, 2.0]))
    largest = draw(st.integers(1, 10**6))
    for i, symbol in enumerate(chosen):
        counts[symbol] = max(1, int(largest / base**i))
    return counts


def _spread_out(numbers):
    """Counts of 256 symbols, these among them at either end and evenly between."""
    counts = np.zeros(256, np.int64)
    counts[np.linspace(0, 255, len(numbers)).astype(int)] = numbers
    return counts


def _fibonacci(number):
    found = [1, 1]
    while len(found) < number:
        found.append(found[-1] + found[-2])
    return _spread_out(found)


# Huffman's own tree of these is deeper than a code may be long, the first but by a little.
DEEP = [_fibonacci(14), _fibonacci(20), _fibonacci(40), _spread_out([min(2**i, 2**31) for i in range(256)])]
DEEP += [_spread_out([1] * 255 + [2**31 - 1])]


def deep(*more):
    """Each of them as an example, with what else the test takes."""

    def given_too(test):
        for counts in DEEP:
            test = example(counts, *more)(test)
        return test

    return given_too


@few
@given(histograms(), st.booleans())
@deep(False)
def test_huffman_codes_and_tables_are_those_of_the_twin(counts, of_numbers):
    lengths, num_bytes = huffman.code_histogram(counts, of_numbers)
    assert lengths.tolist() == (twins.number_lengths if of_numbers else twins.code_lengths)(counts)
    assert num_bytes == twins.coded_size(counts, lengths.tolist())
    table = twins.table_coding(counts, lengths.tolist())
    assert written(lambda out: huffman.write_table(counts, lengths, out, 0), len(table)) == table
    found = np.empty(256, np.uint8)
    at, lone = huffman.read_table(padded(table), 0, len(table), found)
    assert at == len(table)
    assert found.tolist() == lengths.tolist()
    assert (lone >= 0) == (np.count_nonzero(counts) <= 1)
    assert huffman.read_table(padded(table), 0, len(table) - 1, found) == (-1, -1)


@few
@given(histograms())
@deep()
def test_codes_are_a_full_set_and_as_short_as_huffman_s_where_those_are_short_enough(counts):
    lengths = np.empty(256, np.uint8)
    code_lengths.code_lengths(counts, lengths)
    if np.count_nonzero(counts) < 2:
        assert not lengths.any()
        return
    assert sum(2.0 ** -int(length) for length in lengths if length) == 1
    assert lengths.max() <= 12
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log2(shares)).sum()
    assert entropy <= (lengths * counts).sum() / counts.sum() <= entropy + 1


@few
@given(histograms(), st.integers(1, 40))
def test_averages_are_those_of_the_twin(counts, divisor):
    counts = -(-counts // (divisor * 1000))
    if np.count_nonzero(counts) > 1:
        low, high = np.flatnonzero(counts)[[0, -1]]
        assert code_lengths.averages(counts, low, high).tolist() == twins.averages(counts)


@few
@given(histograms(), st.integers(0, 200), seeds)
def test_symbols_are_coded_and_read_as_by_the_twin(counts, count, seed):
    if np.count_nonzero(counts) < 2:
        counts[[3, 200]] += 1
    lengths, _ = huffman.code_histogram(counts, False)
    found = np.random.default_rng(seed).choice(np.flatnonzero(counts), count).astype(np.uint8)
    coding = twins.symbols_coding(found.tolist(), lengths.tolist())
    data = twins.to_bytes(coding)
    assert written(lambda out: huffman.write_symbols(found, lengths, out, 0), len(data)) == data
    again = np.empty_like(found)
    assert huffman.read_symbols(padded(data), 0, len(data), lengths, again) == len(data)
    np.testing.assert_array_equal(again, found)
    if data:
        assert huffman.read_symbols(padded(data), 0, len(data) - 1, lengths, again) == -1


@settings(max_examples=20, deadline=None)
@given(histograms(), st.integers(huffman.WORTH_SEVERAL - 1, huffman.WORTH_SEVERAL + 100), seeds)
def test_many_symbols_are_read_several_at_a_time_to_the_last_one(counts, count, seed):
    if np.count_nonzero(counts) < 2:
        counts[[3, 200]] += 1
    lengths, _ = huffman.code_histogram(counts, False)
    found = np.random.default_rng(seed).choice(256, count, p=counts / counts.sum()).astype(np.uint8)
    out = np.zeros(2 * count + PADDING, np.uint8)
    end = huffman.write_symbols(found, lengths, out, 0)
    again = np.zeros(count + 8, np.uint8)  # nothing may be written behind the last one
    assert huffman.read_symbols(out, 0, end, lengths, again[:count]) == end
    np.testing.assert_array_equal(again[:count], found)
    assert not again[count:].any()
    for cut in (end - 1, end // 2, 0):
        assert huffman.read_symbols(out, 0, cut, lengths, again[:count]) == -1


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40))
def test_no_table_is_taken_whose_codes_are_not_a_full_set(data):
    lengths = np.empty(256, np.uint8)
    at, lone = huffman.read_table(padded(data), 0, len(data), lengths)
    assert at <= len(data)
    if at >= 0 and lone < 0:
        assert sum(2.0 ** -int(length) for length in lengths if length) == 1


@pytest.mark.parametrize(
    ("low", "high", "runs"),
    [
        (2, 4, [(0, 1), (1, 2)]),  # the lowest symbol has no code,
        (3, 5, [(1, 2), (0, 1)]),  # or the highest
        (3, 4, [(1, 3)]),  # too many symbols
        (254, 255, [(1, 600)]),
        (3, 5, [(1, 3)]),  # more codes than there is room for
        (3, 4, [(2, 2)]),  # fewer
        (0, 1, [(13, 2)]),  # longer than allowed
    ],
)
def test_a_table_that_could_not_have_been_written_is_refused(low, high, runs):
    told = [bit for length, run in runs for bit in [1, *twins.number_bits(length, 4), *twins.gamma(run - 1)]]
    data = bytes([low, high]) + twins.to_bytes(told)
    assert huffman.read_table(padded(data), 0, len(data), np.empty(256, np.uint8)) == (-1, -1)


@pytest.mark.parametrize("data", [b"", b"\x05", b"\x05\x04"])
def test_a_table_without_a_range_of_symbols_is_refused(data):
    assert huffman.read_table(padded(data), 0, len(data), np.empty(256, np.uint8)) == (-1, -1)


@few
@given(masks(), seeds, st.sampled_from([16, 32]))
def test_floats_split_into_symbols_and_rests(mask, seed, num_bits):
    numbers = np.random.default_rng(seed).integers(0, 2**num_bits, mask.size, dtype=np.uint32)
    sent = numbers[mask == 1]
    expected = [twins.float_symbol(int(word), num_bits) for word in sent]
    found = symbols.symbols_of(numbers, bits.pack(mask), num_bits - 9, int(mask.sum()))
    assert found.tolist() == expected
    rests = b"".join(twins.float_rest(int(word), num_bits) for word in sent)
    out = np.zeros(len(rests) + PADDING, np.uint8)
    assert floats.write_rests(numbers, np.flatnonzero(mask), num_bits, out, 0) == len(rests)
    assert out[: len(rests)].tobytes() == rests
    again = np.zeros_like(out)
    assert floats.write_rests(sent, None, num_bits, again, 0) == len(rests)
    np.testing.assert_array_equal(again[: len(rests)], out[: len(rests)])
    joined, placed = np.empty_like(sent), np.zeros_like(numbers)
    floats.join_floats(found, out, 0, num_bits, None, joined)
    np.testing.assert_array_equal(joined, sent)
    floats.join_floats(found, out, 0, num_bits, np.flatnonzero(mask), placed)
    np.testing.assert_array_equal(placed, numbers * mask)


@few
@given(masks(), seeds, st.sampled_from([np.uint16, np.uint32]), st.integers(0, 8))
def test_symbols_are_taken_in_each_way_from_under_a_mask(mask, seed, dtype, shift):
    numbers = np.random.default_rng(seed).integers(0, 2**16, mask.size, dtype=dtype)
    expected = (numbers[mask == 1] >> shift & 255).astype(np.uint8)
    words, count = bits.pack(mask), expected.size
    ways = [lambda *given: symbols._take_few(*given[:3], count, given[3])]
    for take in [symbols._take_many, *ways] if lanes.COMPILES else ways:
        found = np.full(count + 65, 7, np.uint8)
        take(numbers, words, shift, found)
        np.testing.assert_array_equal(found[:count], expected)
        assert found[-1] == 7, "wrote over the end"


@few
@given(
    st.integers(0, 5000), st.integers(0, 255), st.sampled_from([1, 3, 15, 16, 17, 100, 256]), st.integers(0, 40), seeds
)
def test_symbols_are_counted_wherever_most_of_them_are(count, low, width, num_others, seed):
    random = np.random.default_rng(seed)
    found = ((low + random.integers(0, width, count)) % 256).astype(np.uint8)
    found[random.integers(0, max(count, 1), num_others if count else 0)] = random.integers(0, 256)
    counts = np.empty(256, np.int64)
    symbols.count_symbols(found, counts)
    np.testing.assert_array_equal(counts, np.bincount(found, minlength=256))


@few
@given(masks(), seeds, st.integers(1, 8))
def test_levels_group_into_symbols(mask, seed, num_bits):
    random = np.random.default_rng(seed)
    top = 1 << (num_bits - 1)
    levels = random.integers(-top, top, mask.size) if num_bits > 1 else random.choice([-1, 1], mask.size)
    levels = levels.astype(np.int16)
    sent = levels[mask == 1]
    expected = twins.level_symbols(sent, num_bits)
    found = np.zeros(len(expected), np.uint8)
    assert kernels.pack_levels(levels, bits.pack(mask), num_bits, found)
    assert found.tolist() == expected
    counts = np.empty(256, np.int64)
    symbols.count_symbols(found, counts)
    np.testing.assert_array_equal(counts, np.bincount(found, minlength=256))
    again = np.empty_like(sent)
    assert kernels.unpack_levels(found, num_bits, again)
    np.testing.assert_array_equal(again, sent)
    width = num_bits * (8 // num_bits)
    stream = [bit for symbol in expected for bit in twins.number_bits(symbol, width)]
    out = np.zeros(len(stream) // 8 + 1 + PADDING, np.uint8)
    kernels.write_raw(found, width, out, 0)
    assert twins.to_bits(out)[: len(stream)] == stream
    raw = np.empty_like(found)
    out[-(-sent.size * num_bits // 8) :] = 255
    kernels.read_raw(out, 0, width, sent.size * num_bits, raw)
    np.testing.assert_array_equal(raw, found)


@few
@given(masks(), seeds, st.integers(1, 8), st.integers(0, 3))
def test_the_size_of_levels_is_that_of_their_plan(mask, seed, num_bits, too_many):
    """A level that is not sent may be of any size; then the plan is asked."""
    random = np.random.default_rng(seed)
    top = 1 << (num_bits - 1)
    levels = random.integers(-top, top, mask.size) if num_bits > 1 else random.choice([-1, 1], mask.size)
    levels = levels.astype(np.int16)
    words, count = bits.pack(mask), int(mask.sum())
    num_bytes, *_ = kernels.plan_levels(levels, words, num_bits, count)
    assert kernels.level_bytes(levels, words, num_bits, count) == num_bytes
    far = random.permutation(mask.size)[:too_many]
    levels[far] = random.choice([-32768, -top - 1, top + (num_bits == 1), 32767], far.size)
    *_, fits = kernels.plan_levels(levels, words, num_bits, count)
    asked = far.size if num_bits > 4 else not fits
    assert kernels.level_bytes(levels, words, num_bits, count) == (-1 if asked else num_bytes)


@pytest.mark.parametrize(("num_bits", "level"), [(1, 0), (1, 2), (1, -3), (2, 2), (4, -9), (8, 128), (8, -129)])
def test_levels_of_too_many_bits_are_seen(num_bits, level):
    levels = np.array([1, level, 1], np.int16)
    assert not kernels.pack_levels(levels, np.array([7], np.uint64), num_bits, np.zeros(3, np.uint8))


@few
@given(st.integers(0, 300), st.integers(1, 100), seeds)
def test_levels_times_scales(count, bucket, seed):
    random = np.random.default_rng(seed)
    levels = random.integers(-128, 128, count).astype(np.int16)
    scales = random.standard_normal(-(-count // bucket)).astype(np.float32)
    numbers = np.empty(count, np.float32)
    kernels.scale_levels(levels, scales, bucket, numbers)
    np.testing.assert_array_equal(numbers, levels.astype(np.float32) * scales.repeat(bucket)[:count])


def test_the_plans_of_values_are_their_histograms_and_sizes():
    random = np.random.default_rng(1)
    mask = np.array([0xF0F0F0F0F0F0F0F0, 0xFFFFFFFFFFFFFFFF], np.uint64)
    numbers = random.standard_normal(128).astype(np.float32).view(np.uint32)
    num_bytes, found, counts, lengths = floats.plan_floats(numbers, mask, 32, 96)
    coded_lengths, coded_bytes = huffman.code_histogram(counts, False)
    assert found.size == 96
    assert counts.sum() == 96
    assert num_bytes == coded_bytes + 3 * 96
    assert lengths.tolist() == coded_lengths.tolist()
    levels = random.integers(-8, 8, 128).astype(np.int16)
    num_bytes, found, counts, lengths, fits = kernels.plan_levels(levels, mask, 4, 96)
    assert fits
    assert found.size == counts.sum() == 48
    assert num_bytes == huffman.code_histogram(counts, False)[1]
