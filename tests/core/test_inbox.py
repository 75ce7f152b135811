"""The inbox and its kernels: each against a plain version of itself."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.core import Part, partial_average, sparse_part, where
from gossamer.core.inbox import BlockInbox, Edges, weighted_sums


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


def test_a_part_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"^there is no part 'y', only x$"):
        inbox(torch.ones(3, 2), None).sum("y")
