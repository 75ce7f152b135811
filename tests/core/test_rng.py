import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.core.rng import Streams, permutation, philox, words

numbers = st.integers(0, 2**63 - 1)


def test_the_stream_is_philox_4x64_10_as_published() -> None:
    """Known answer of the generator's authors for an all-zero counter and key (Random123, kat_vectors)."""
    expected = ["16554d9eca36314c", "db20fe9d672d0fdc", "d7e772cee186176b", "7e68b68aec7ba23b"]
    bits = np.random.Philox(key=0, counter=2**256 - 1)  # NumPy counts up before it draws
    assert [f"{word:016x}" for word in bits.random_raw(4)] == expected


def test_draws_do_not_change_from_version_to_version() -> None:
    assert philox(7, "cutoff", node=3, round=11).random_raw(2).tolist() == [3506170834700700904, 895270250413353696]


@given(numbers, numbers, numbers, numbers, st.text())
def test_a_stream_is_a_function_of_what_it_is_for(seed: int, node: int, round: int, step: int, purpose: str) -> None:
    first = philox(seed, purpose, node, round, step).random_raw(8)
    assert np.array_equal(first, philox(seed, purpose, node, round, step).random_raw(8))
    others = [
        philox(seed + 1, purpose, node, round, step),
        philox(seed, purpose + "x", node, round, step),
        philox(seed, purpose, node + 1, round, step),
        philox(seed, purpose, node, round + 1, step),
        philox(seed, purpose, node, round, step + 1),
    ]
    assert not any(np.intersect1d(first, other.random_raw(8)).size for other in others)


def test_a_node_draws_the_same_in_any_block() -> None:
    together = Streams(1, range(10), 5).uniform("cutoff", 3)
    alone = Streams(1, [7], 5).uniform("cutoff", 3)
    assert torch.equal(together[7:8], alone)
    assert Streams(1, [], 5).uniform("cutoff", 3).shape == (0, 3)


def test_uniform_numbers_are_uniform() -> None:
    numbers = Streams(1, range(100), 0).uniform("x", 1000)
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    counts = torch.histc(numbers, 20, 0, 1)  # 5,000 expected in each, with deviation 69
    assert (counts - 5000).abs().max() < 5 * 69


@given(st.integers(0, 200), numbers)
def test_a_permutation_holds_every_number_once(length: int, seed: int) -> None:
    assert sorted(permutation(philox(seed, "p"), length)) == list(range(length))


@given(
    key=st.tuples(st.integers(0, 2**63 - 1), st.text(max_size=5)),
    counters=st.lists(st.tuples(*[st.integers(0, 2**50)] * 3), max_size=5),
    width=st.integers(0, 30),
)
def test_many_streams_in_one_call_are_numpys_own(key: tuple, counters: list, width: int) -> None:
    seed, purpose = key
    for node, round, step in counters:
        expected = philox(seed, purpose, node, round, step).random_raw(width)
        assert np.array_equal(words(seed, purpose, [node], [round], width, step)[0], expected)
    nodes = [node for node, _, _ in counters]
    rows = words(seed, purpose, nodes, [7], width)
    assert rows.shape == (len(nodes), width)
    for row, node in zip(rows, nodes, strict=True):
        assert np.array_equal(row, philox(seed, purpose, node, 7).random_raw(width))
