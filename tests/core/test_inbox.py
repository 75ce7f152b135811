"""Selection, cut-offs, mixing: each against a plain version of itself."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.algorithms.cutoff import PAPER_CUTOFF, cutoff_for_budget
from gossamer.compressors import count, largest, random_entries
from gossamer.core import Part, partial_average, sparse_part, where
from gossamer.core.inbox import BlockInbox, Edges, weighted_sums
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_picked_by_a_mask_is_what_torch_picks(dtype: torch.dtype) -> None:
    yes, no = torch.randn(2, 3, 1001, dtype=dtype)
    yes[0, :3] = torch.tensor([-0.0, torch.nan, torch.inf])
    marks = torch.rand(3, 1001) < 0.3
    marks[0, :3] = torch.tensor([True, False, False])
    torch.testing.assert_close(where(marks, yes, no), torch.where(marks, yes, no), rtol=0, atol=0)
    torch.testing.assert_close(where(marks, yes), torch.where(marks, yes, 0), rtol=0, atol=0)
    assert torch.signbit(where(marks, yes))[0, 0]
    torch.testing.assert_close(where(marks.T, yes.T), torch.where(marks.T, yes.T, 0), rtol=0, atol=0)


def test_random_entries_are_as_many_as_asked_and_each_as_likely() -> None:
    masks = torch.cat([random_entries(Streams(0, range(100), t), 0.3, 50) for t in range(20)])
    assert (masks.sum(1) == 15).all()
    assert (masks.float().mean(0) - 0.3).abs().max() < 5 * (0.3 * 0.7 / 2000) ** 0.5


def test_the_papers_cutoff_is_drawn_as_written() -> None:
    assert PAPER_CUTOFF.mean == pytest.approx(0.342857, abs=1e-6)
    draws = torch.cat([PAPER_CUTOFF.draw(Streams(0, range(100), t)) for t in range(70)])
    assert draws.shape == (7000, 1)
    for fraction in (0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 1.0):
        assert abs((draws - fraction).abs().lt(1e-6).sum().item() - 1000) < 5 * 30
    assert PAPER_CUTOFF.deterministic().draw(Streams(0, [0], 0)).item() == pytest.approx(PAPER_CUTOFF.mean)


@given(st.floats(0.01, 1), st.booleans(), st.integers(10_000, 10**7))
def test_a_cutoff_for_a_budget_costs_that_budget_with_indices_at_their_entropy(
    budget: float, randomize: bool, num_parameters: int
) -> None:
    cutoff = cutoff_for_budget(budget, num_parameters, randomize)
    assert sum(cutoff.probabilities) == pytest.approx(1)
    assert all(0 < f <= 1 for f in cutoff.fractions)
    cost = 0.0
    for f, p in zip(cutoff.fractions, cutoff.probabilities, strict=True):
        index_bits = 0 if f == 1 else -f * np.log2(f) - (1 - f) * np.log2(1 - f)
        cost += p * (f + index_bits / 26.5)
    frame = 8 * 40 / (26.5 * num_parameters)
    assert budget - frame - 1e-6 <= cost <= budget + 1e-6


@pytest.mark.parametrize(("budget", "everything", "else_"), [(0.2, 0.1, 0.10), (0.1, 0.05, 0.05)])
def test_cutoffs_for_a_budget_are_near_the_papers(budget: float, everything: float, else_: float) -> None:
    cutoff = cutoff_for_budget(budget, 90_000)
    assert cutoff.probabilities[1] == pytest.approx(everything)
    assert cutoff.fractions == (pytest.approx(else_, rel=0.2), 1.0)


def test_a_budget_that_is_too_small_for_anything_is_refused_with_one_that_is_not() -> None:
    for budget in (1e-4, 5e-324):
        with pytest.raises(ValueError, match=r"leaves no room for a single of 5000 parameters; take at least 0\.0052"):
            cutoff_for_budget(budget, 5000)
    cutoff_for_budget(0.0053, 5000)


@settings(deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 2100))
def test_weighted_sums_are_taken_in_order_and_rounded_once(data: st.DataObject, receivers: int, width: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    lists = [np.sort(rng.choice(6, rng.integers(0, 7), replace=False)) for _ in range(receivers)]
    indptr, positions = np.append(0, np.cumsum([len(each) for each in lists])), np.concatenate(lists).astype(np.int64)
    weights, messages = rng.standard_normal(positions.size), rng.standard_normal((6, width)).astype(np.float32)
    out = np.empty((receivers, width), np.float32)
    weighted_sums(indptr, positions, weights, messages, out)
    for i in range(receivers):
        expected = np.zeros(width)
        for e in range(indptr[i], indptr[i + 1]):
            expected = expected + weights[e] * messages[positions[e]].astype(np.float64)
        np.testing.assert_array_equal(out[i], expected.astype(np.float32))


def inbox(values: torch.Tensor, sent: torch.Tensor | None) -> BlockInbox:
    """Nodes 0 and 2 of three; each hears all, with weights 1/2, 1/4, 1/4."""
    three = np.arange(3)
    edges = Edges(np.array([0, 3, 6]), np.tile(three, 2), np.tile(three, 2), np.tile([0.5, 0.25, 0.25], 2))
    return BlockInbox({"x": Part(values, sent)}, edges, [0, 2])


def test_an_inbox_gives_sums_coverage_own_and_edges() -> None:
    sent = torch.tensor([[True, True], [True, False], [False, False]])
    part = sparse_part(torch.tensor([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]]), sent)
    box = inbox(part.values, part.sent)
    assert box.sum("x").tolist() == [[1.5, 1.0]] * 2
    assert box.coverage("x").tolist() == [[0.75, 0.5]] * 2
    assert box.own("x").tolist() == [[1.0, 2.0], [0.0, 0.0]]
    heard = [(row, sender, weight, p.values.tolist(), p.sent) for row, sender, weight, p in box.edges("x")]
    assert [h[:3] for h in heard] == [(r, s, w) for r in (0, 1) for s, w in enumerate((0.5, 0.25, 0.25))]
    assert heard[4][3] == [[4.0, 0.0]]
    own = torch.tensor([[1.0, 2.0], [16.0, 32.0]])
    assert partial_average(own, box, "x").tolist() == [[1.75, 2.0], [5.5, 17.0]]


def test_the_coverage_of_dense_messages_is_their_weight() -> None:
    box = inbox(torch.ones(3, 2), None)
    assert box.coverage("x").tolist() == [[1.0], [1.0]]
    assert next(iter(box.edges("x")))[3].sent is None
