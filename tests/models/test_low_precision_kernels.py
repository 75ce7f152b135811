"""Each kernel of eight-bit layers against its twin, and what rounding promises."""

import low_precision_twins as twins
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.models.low_precision import rounding

few = settings(max_examples=60, deadline=None)
floats = st.one_of(
    st.floats(-1e6, 1e6, width=32),
    st.sampled_from([0.0, -0.0, 1e-40, -1e-38, 1e30, -1e30, 0.5, 1.5, 255.0, 127.0]),
)
tables = hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=floats)


def affine(rows):
    numbers, levels = np.empty_like(rows), np.empty(rows.shape, np.uint8)
    scales, zeros = np.empty(len(rows), np.float32), np.empty(len(rows), np.uint8)
    rounding.quantize_affine(rows, levels, scales, zeros, numbers)
    return numbers, levels, scales, zeros


def symmetric(rows):
    numbers, scales = np.empty_like(rows), np.empty(len(rows), np.float32)
    rounding.quantize_symmetric(rows, scales, numbers)
    return numbers, scales


def stochastic(rows, key):
    numbers, scales = np.empty_like(rows), np.empty(len(rows), np.float32)
    rounding.quantize_stochastic(rows, np.uint32(key), scales, numbers)
    return numbers, scales


@few
@given(tables, st.integers(0, 2**32 - 1))
def test_rounding_is_its_twins_to_the_last_bit(rows, key):
    for found, twin in zip(affine(rows), twins.affine(rows), strict=True):
        np.testing.assert_array_equal(found, twin)
    for found, twin in zip(symmetric(rows), twins.symmetric(rows), strict=True):
        np.testing.assert_array_equal(found, twin)
    for found, twin in zip(stochastic(rows, key), twins.stochastic(rows, key), strict=True):
        np.testing.assert_array_equal(found, twin)


@few
@given(tables)
def test_levels_stand_for_numbers_within_half_a_step_and_zero_is_exact(rows):
    numbers, levels, scales, zeros = affine(rows)
    values = np.empty_like(rows)
    rounding.dequantize_affine(levels, scales, zeros, values)
    np.testing.assert_array_equal(values, scales[:, None] * (levels.astype(np.float32) - zeros[:, None]))
    np.testing.assert_array_equal(values, numbers * scales[:, None])
    assert (np.abs(values - rows) <= scales[:, None] * 0.5001 + 1e-30).all()
    assert (values[rows == 0] == 0).all()
    numbers, scales = symmetric(rows)
    assert (np.abs(numbers * scales[:, None] - rows) <= scales[:, None] * 0.5001 + 1e-30).all()


@few
@given(tables, st.integers(0, 2**32 - 1))
def test_a_rows_bits_depend_on_the_row_alone(rows, key):
    for whole, alone in zip(affine(rows), affine(rows[-1:].copy()), strict=True):
        np.testing.assert_array_equal(whole[-1:], alone)
    for whole, alone in zip(stochastic(rows, key), stochastic(rows[:1].copy(), key), strict=True):
        np.testing.assert_array_equal(whole[:1], alone)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_what_is_not_a_number_stays_none(bad):
    rows = np.array([[1, 2, bad, -3], [1, 2, 3, 4]], np.float32)
    for numbers in (affine(rows)[0], symmetric(rows)[0], stochastic(rows, 1)[0]):
        assert np.isnan(numbers[0]).any()
        assert np.isfinite(numbers[1]).all()


def test_random_rounding_is_right_on_average_and_differs_from_place_to_place():
    row = np.linspace(-1, 1, 101, dtype=np.float32)[None]
    tries = np.stack([stochastic(row, key)[0][0] for key in range(4000)])
    wanted = row[0] * 127
    # A number between two levels has a variance of at most 1/4: 5 deviations of the mean
    assert np.abs(tries.mean(0) - wanted).max() < 5 * 0.5 / np.sqrt(len(tries))
    assert set(np.unique(tries - np.floor(wanted))) <= {0, 1}
    inner = tries[:, [3, 50, 77]] - tries[:, [3, 50, 77]].mean(0)
    assert np.abs(np.corrcoef(inner[:, [0, 2]].T)[0, 1]) < 0.1
    several = stochastic(np.repeat(row, 3, 0), 7)[0]
    assert (several[0] != several[1]).any()
    assert (several[1] != several[2]).any()


@few
@given(tables)
def test_rescaling_is_multiplication_and_addition(rows):
    scales = np.linspace(0.1, 2, len(rows), dtype=np.float32)
    for channels in (1, rows.shape[1]):
        bias = np.linspace(-1, 1, channels, dtype=np.float32)
        sums = rows.reshape(len(rows), channels, -1).copy()
        wanted = sums * scales[:, None, None] + bias[:, None]
        rounding.rescale(sums, scales, bias)
        np.testing.assert_array_equal(sums, wanted)
