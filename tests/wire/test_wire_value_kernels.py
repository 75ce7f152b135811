"""Each kernel of value coding against its twin in plain Python, on inputs that Hypothesis makes."""

import numpy as np
import pytest
import wire_twins as twins
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_wire_kernels import few, padded, seeds, written

from gossamer.wire import huffman
from gossamer.wire.frame import WireError
from gossamer.wire.quantized import LevelCoder
from gossamer.wire.values import FloatCoder, Rows


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
    huffman.code_lengths(counts, lengths)
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
        assert huffman.averages(counts, low, high).tolist() == twins.averages(counts)


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
@given(st.binary(max_size=3000), st.booleans())
def test_the_size_of_symbols_is_known_from_their_histogram(data, of_numbers):
    symbols = np.frombuffer(data, np.uint8).copy()
    num_bytes, counts, lengths = huffman.plan_symbols(symbols, of_numbers)
    np.testing.assert_array_equal(counts, np.bincount(symbols, minlength=256))
    coded = written(lambda out: huffman.write_coded(symbols, counts, lengths, out, 0), num_bytes)
    found, behind = huffman.read_coded(padded(coded), 0, num_bytes, symbols.size)
    assert behind == num_bytes
    np.testing.assert_array_equal(found, symbols)


def coding_of(coder, rows, row=0):
    """What a coder writes of a row."""
    plan = coder.plan(rows, row, None)
    return plan, written(lambda out: coder.write(plan, out, 0), plan.num_tags + plan.num_bytes)


@few
@given(st.integers(0, 400), seeds, st.sampled_from(["float32", "bfloat16", "float16"]), st.booleans())
def test_floats_are_written_and_read_as_by_the_twins(count, seed, kind, alike):
    coder, random = FloatCoder(kind), np.random.default_rng(seed)
    words = random.integers(0, 2**coder.num_bits, count, dtype=np.uint32)
    if alike:  # exponents that are worth coding
        words &= np.uint32(0xFFFFFFFF ^ 0x70 << (coder.num_bits - 9))
    plan, data = coding_of(coder, Rows(words[None]))
    if plan.coded is None:
        assert data == b"\0" + words.astype(f"<u{coder.num_bits // 8}").tobytes()
    else:
        symbols = [twins.float_symbol(int(word), coder.num_bits) for word in words]
        lengths = twins.code_lengths(np.bincount(symbols, minlength=256))
        rests = b"".join(twins.float_rest(int(word), coder.num_bits) for word in words)
        table = twins.table_coding(np.bincount(symbols, minlength=256), lengths)
        assert data == b"\1" + rests + table + twins.to_bytes(twins.symbols_coding(symbols, lengths))
    numbers, behind = coder.read_numbers(padded(data), 0, len(data), count)
    assert behind == len(data)
    expected = words if kind == "float32" else words << np.uint32(16)
    if kind == "float16":
        with np.errstate(invalid="ignore"):
            expected = words.astype(np.uint16).view(np.float16).astype(np.float32)
    assert numbers.tobytes() == expected.tobytes()


@few
@given(st.integers(0, 400), seeds, st.integers(1, 8), st.sampled_from([0, 1, 64]), st.booleans())
def test_levels_are_written_and_read_as_by_the_twins(count, seed, num_bits, bucket, alike):
    coder, random = LevelCoder(num_bits, bucket), np.random.default_rng(seed)
    top = 1 << (num_bits - 1)
    levels = random.integers(-top, top, count) if num_bits > 1 else random.choice([-1, 1], count)
    levels = np.where(random.random(count) < 0.9 * alike, -1, levels).astype(np.int16)
    num_scales = -(-count // bucket) if bucket else 1
    scales = random.standard_normal(num_scales).astype(np.float32)
    plan, data = coding_of(coder, Rows(levels[None], scales[None]))
    symbols = twins.level_symbols(levels, num_bits)
    scale_bytes = plan.scales.num_tags + plan.scales.num_bytes
    assert data[scale_bytes] == (plan.coded is not None)
    if plan.coded is None:
        group = 8 // num_bits
        stream = [bit for symbol in symbols for bit in twins.number_bits(symbol, num_bits * group)]
        assert data[scale_bytes + 1 :] == twins.to_bytes(stream[: count * num_bits])
    else:
        counts = np.bincount(symbols, minlength=256)
        lengths = (twins.number_lengths if num_bits > 4 else twins.code_lengths)(counts)
        codes = twins.to_bytes(twins.symbols_coding(symbols, lengths))
        assert data[scale_bytes + 1 :] == twins.table_coding(counts, lengths) + codes
    values, quantized, behind = coder.read(padded(data), 0, len(data), None, count)
    assert behind == len(data)
    np.testing.assert_array_equal(quantized.levels.numpy()[0], levels)
    np.testing.assert_array_equal(quantized.scales.numpy()[0], scales)
    each = scales.repeat(bucket)[:count] if bucket else scales
    np.testing.assert_array_equal(values.numpy()[0], levels.astype(np.float32) * each)


@pytest.mark.parametrize(("num_bits", "level"), [(1, 0), (1, 2), (1, -3), (2, 2), (4, -9), (8, 128), (8, -129)])
def test_levels_of_too_many_bits_are_refused_if_they_are_sent(num_bits, level):
    rows = Rows(np.array([[1, level, 1]], np.int16), np.ones((1, 1), np.float32))
    with pytest.raises(ValueError, match=f"do not fit in int{num_bits}"):
        LevelCoder(num_bits, 0).plan(rows, 0, None)
    assert LevelCoder(num_bits, 0).plan(rows, 0, np.array([0, 2])).numbers.size == 2


@pytest.mark.parametrize("num_bits", [1, 3, 5])
def test_symbols_with_more_in_them_than_their_digits_are_refused(num_bits):
    data = np.ones(1, np.float32).tobytes() + bytes([1, 255, 255])  # every symbol is 255
    with pytest.raises(WireError, match="quantized values"):
        LevelCoder(num_bits, 0).read(padded(data), 0, len(data), None, 1)
