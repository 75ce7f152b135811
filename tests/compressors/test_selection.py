"""Which entries are sent: against a plain version of each choice."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.compressors import count, largest, random_entries
from gossamer.core.rng import Streams

numbers = st.floats(-1e3, 1e3, width=32)


@given(
    hnp.arrays(np.float32, st.integers(1, 60), elements=st.sampled_from([0.0, -0.0, 1, 2, -2, 3]) | numbers),
    st.floats(0, 1),
)
def test_the_largest_are_those_a_stable_sort_puts_first(scores: np.ndarray, fraction: float) -> None:
    sent = largest(torch.from_numpy(scores)[None], torch.tensor([[fraction]], dtype=torch.float64))
    expected = np.argsort(-np.abs(scores), kind="stable")[: count(fraction, scores.size)]
    assert np.flatnonzero(sent[0]).tolist() == sorted(expected.tolist())


def test_each_row_keeps_its_own_fraction() -> None:
    scores = torch.randn(3, 1000).abs()
    assert largest(scores, torch.tensor([[0.1], [0.5], [1.0]])).sum(1).tolist() == [100, 500, 1000]


@pytest.mark.parametrize("kept", [1, 900, 4000, 30_000, 99_999, 100_000])
def test_the_largest_of_many_that_are_alike_or_far_apart_are_found(kept: int) -> None:
    random = np.random.default_rng(0)
    far_apart = np.ldexp(random.standard_normal(100_000), random.integers(-140, 120, 100_000))  # some are subnormal
    alike = 1 + random.integers(0, 50, 100_000) * 2.0**-23  # in the last bits only
    few = random.choice([0.0, -0.0, 1e-30, np.inf], 100_000, p=[0.5, 0.3, 0.1, 0.1])
    rows = np.stack([far_apart, alike, few]).astype(np.float32)
    sent = largest(torch.from_numpy(rows), torch.full((3, 1), kept / 100_000, dtype=torch.float64))
    for row, marks in zip(rows, sent.numpy(), strict=True):
        expected = np.argsort(-np.abs(row), kind="stable")[:kept]
        np.testing.assert_array_equal(np.flatnonzero(marks), np.sort(expected))


def test_random_entries_are_as_many_as_asked_and_each_as_likely() -> None:
    masks = torch.cat([random_entries(Streams(0, range(100), t), 0.3, 50) for t in range(20)])
    assert (masks.sum(1) == 15).all()
    assert (masks.float().mean(0) - 0.3).abs().max() < 5 * (0.3 * 0.7 / 2000) ** 0.5
