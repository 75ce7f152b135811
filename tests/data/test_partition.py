import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.data.partition import PARTITIONS, ByClient, Dirichlet, Iid, LabelCuts, LabelShards, Partition, Skew

ALL = [
    *(Iid(), LabelShards(), LabelShards(3), LabelCuts(), LabelCuts(3)),
    *(Dirichlet(), Dirichlet(5.0), Skew(0.0), Skew(0.7), Skew(1.0), ByClient()),
]
LABELS = np.repeat(np.arange(10), 60)[np.random.Generator(np.random.PCG64(0)).permutation(600)]
CLIENTS = np.arange(600) % 37


def split(partition: Partition, nodes: int, seed: int = 0, labels=LABELS, clients=CLIENTS) -> list[np.ndarray]:
    return partition.split(labels, clients, len(labels), nodes, seed)


def label_shares(parts: list[np.ndarray], labels=LABELS) -> np.ndarray:
    """(nodes, classes): which part of a node's data has which label."""
    counts = np.array([[np.count_nonzero(labels[part] == label) for label in np.unique(labels)] for part in parts])
    return counts / counts.sum(axis=1, keepdims=True)


@given(
    partition=st.sampled_from(ALL),
    labels=st.lists(st.integers(-3, 8), min_size=1, max_size=120),
    num_clients=st.integers(1, 40),
    nodes=st.integers(1, 12),
    seed=st.integers(0, 2**64 - 1),
)
@settings(deadline=None, max_examples=300)
def test_every_sample_is_placed_exactly_once_or_the_split_is_refused(partition, labels, num_clients, nodes, seed):
    labels = np.array(labels)
    clients = np.arange(len(labels)) % num_clients
    try:
        parts = partition.split(labels, clients, len(labels), nodes, seed)
    except ValueError as error:
        assert re.search(r"cannot share|cannot be cut|without data", str(error))  # noqa: PT017
        return
    assert len(parts) == nodes
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) > 0
        assert (np.diff(part) > 0).all()


@pytest.mark.parametrize("partition", ALL, ids=str)
def test_the_seed_decides_the_split(partition):
    one, again, other = split(partition, 8, 1), split(partition, 8, 1), split(partition, 8, 2)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("partition", ALL, ids=str)
def test_one_node_holds_everything(partition):
    assert split(partition, 1)[0].tolist() == list(range(600))


@pytest.mark.parametrize("partition", [Iid(), Skew(0.0), Skew(0.33), Skew(1.0)], ids=str)
@pytest.mark.parametrize("nodes", [2, 7, 96, 600])
def test_sizes_differ_by_one_sample_at_most(partition, nodes):
    sizes = [len(part) for part in split(partition, nodes)]
    assert max(sizes) - min(sizes) <= 1


def test_labels_and_clients_are_not_needed_for_iid():
    assert sum(len(part) for part in Iid().split(None, None, 10, 3, 0)) == 10


@pytest.mark.parametrize("per_node", [1, 2, 5])
def test_a_node_of_label_shards_has_few_labels(per_node):
    # Shards of 30, 15 and 6 samples, which divide a label's 60; those of 13 nodes lie across borders.
    shares = label_shares(split(LabelShards(per_node), 20))
    assert (np.count_nonzero(shares, axis=1) <= per_node).all()
    uneven = label_shares(split(LabelShards(per_node), 13))
    assert (np.count_nonzero(uneven, axis=1) <= 2 * per_node).all()
    assert np.count_nonzero(uneven) <= 13 * per_node + 9  # every border between labels cuts one shard at most


def test_shards_are_dealt_at_random():
    firsts = {tuple(np.flatnonzero(label_shares(split(LabelShards(2), 20, seed))[0])) for seed in range(20)}
    assert len(firsts) > 10


def test_cuts_out_of_what_is_left_have_more_labels_than_equal_shards():
    def labels_a_node(partition):
        return np.mean([np.count_nonzero(label_shares(split(partition, 16, seed)), axis=1) for seed in range(20)])

    # Shards of 18 or 19 of a label's 60 have 1.3 labels. A cut from a whole order has as many; the last has what is
    # left over at up to 32 places.
    assert labels_a_node(LabelShards(1)) < 1.6 < 2.0 < labels_a_node(LabelCuts(1))


def test_a_cut_takes_neighbours_of_what_is_left():
    left = list(range(100))
    for part in split(LabelCuts(1), 4, labels=np.arange(100), clients=None):
        stretches = [set((left[i:] + left[:i])[:25]) for i in range(len(left))]  # the first follows the last
        assert set(part) in stretches
        left = [sample for sample in left if sample not in part]


def test_a_small_alpha_is_more_skewed_than_a_large_one():
    def largest(alpha):
        shares = [label_shares(split(Dirichlet(alpha), 8, seed)).max(axis=1) for seed in range(5)]
        return np.mean(shares)

    assert largest(0.05) > largest(0.5) + 0.1 > largest(5.0) + 0.2
    np.testing.assert_allclose(label_shares(split(Dirichlet(1e6), 8)), 0.1, atol=0.02)


def test_dirichlet_proportions_have_the_variance_of_the_distribution():
    # The share of a class on a node has mean 1/n and variance (1/n)(1 - 1/n) / (n alpha + 1).
    labels = np.repeat(np.arange(200), 500)
    parts = split(Dirichlet(0.8), 5, labels=labels, clients=None)
    shares = np.array([np.bincount(labels[part], minlength=200) for part in parts]) / 500
    assert shares.var() == pytest.approx(0.2 * 0.8 / (5 * 0.8 + 1), rel=0.15)


def test_without_skew_every_node_has_the_mix_of_the_whole():
    labels = np.repeat(np.arange(4), 5000)
    for partition in (Skew(0.0), Iid()):
        shares = label_shares(split(partition, 10, labels=labels, clients=None), labels)
        np.testing.assert_allclose(shares, 0.25, atol=0.05)


def test_full_skew_is_contiguous_in_the_labels():
    parts = split(Skew(1.0), 5)
    for node, part in enumerate(parts):
        assert sorted(LABELS[part].tolist()) == [2 * node] * 60 + [2 * node + 1] * 60


def test_partial_skew_sorts_that_fraction_of_every_class():
    labels = np.repeat(np.arange(4), 1000)
    shares = label_shares(split(Skew(0.8), 4, labels=labels, clients=None), labels)
    np.testing.assert_allclose(np.diag(shares), 0.8 + 0.2 / 4, atol=0.02)


def test_a_clients_data_stays_whole_and_nodes_are_of_like_size():
    clients = np.repeat([f"writer {i}" for i in range(40)], np.arange(1, 41))
    parts = ByClient().split(None, clients, len(clients), 7, 3)
    owners = [set(clients[part].tolist()) for part in parts]
    assert sum(map(len, owners)) == 40
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 3


def test_the_largest_client_goes_first_onto_the_emptiest_node():
    clients = np.repeat([5, 6, 7, 8, 9], [8, 7, 6, 5, 4])
    parts = ByClient().split(None, clients, 30, 2, 0)  # 8 | 7, then 6 to the 7, 5 to the 8, 4 to the 13 of node 0
    assert [set(clients[part].tolist()) for part in parts] == [{5, 8, 9}, {6, 7}]


@pytest.mark.parametrize(
    ("partition", "labels", "clients", "nodes", "sentence"),
    [
        (Iid(), LABELS[:5], None, 8,
         "8 nodes cannot share 5 samples: some would have none; take at most 5 nodes, or more data"),
        (Iid(), LABELS[:5], None, 0, "nodes must be at least 1, 0 was given"),
        (LabelShards(), None, None, 2,
         "the partition label-shards needs a label for every sample, and this task has none; take iid"),
        (Dirichlet(), None, None, 2,
         "the partition dirichlet needs a label for every sample, and this task has none; take iid"),
        (Skew(0.5), None, None, 2,
         "the partition skew needs a label for every sample, and this task has none; take iid"),
        (LabelCuts(), None, None, 2,
         "the partition label-cuts needs a label for every sample, and this task has none; take iid"),
        (LabelShards(3), LABELS[:5], None, 2,
         "5 samples cannot be cut into 6 shards, 3 for each of 2 nodes; take per_node at most 2, or fewer nodes"),
        (ByClient(), LABELS[:5], None, 2,
         "the partition by-client needs a client for every sample, and this task has none; take iid"),
        (ByClient(), LABELS[:5], np.array([3, 3, 1, 1, 1]), 3,
         "3 nodes cannot share 2 clients whole; take at most 2 nodes, or more data"),
        (ByClient(), LABELS[:5], np.zeros(5), 3,
         "3 nodes cannot share 1 client whole; take at most 1 node, or more data"),
    ],
)  # fmt: skip
def test_a_split_that_cannot_be_is_refused_in_a_sentence(partition, labels, clients, nodes, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        partition.split(labels, clients, 5, nodes, 0)


def test_a_dirichlet_split_that_leaves_a_node_empty_is_refused_in_a_sentence():
    sentence = r"^alpha 0\.01 left node \d+ of 60 without data in the last of 100 draws, and some node in each; take a "
    with pytest.raises(ValueError, match=sentence + "larger alpha or fewer nodes$"):
        split(Dirichlet(0.01), 60)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LabelShards(0), "per_node must be at least 1, 0 was given"),
        (lambda: Dirichlet(0.0), "alpha must be a number above 0, 0.0 was given"),
        (lambda: Dirichlet(math.inf), "alpha must be a number above 0, inf was given"),
        (lambda: Skew(1.1), "fraction must be between 0 and 1, 1.1 was given"),
        (lambda: Skew(math.nan), "fraction must be between 0 and 1, nan was given"),
    ],
)
def test_a_setting_out_of_range_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make()


@pytest.mark.parametrize("partition", ALL, ids=str)
def test_of_a_large_data_set_every_node_gets_samples_of_its_own(partition):
    labels, clients = np.arange(200_000) % 62, np.arange(200_000) % 3500
    shards = partition.split(labels, clients, 200_000, 384, 0)
    assert len(shards) == 384
    assert all(map(len, shards))
    assert max(np.bincount(np.concatenate(shards))) == 1


def test_every_named_partition_is_a_dataclass_with_a_one_line_description():
    ours = {kind for kind in Partition.__subclasses__() if kind.__module__ == Partition.__module__}
    assert set(PARTITIONS.values()) == {*ours, LabelCuts}
    for name, kind in PARTITIONS.items():
        assert name == re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()
        assert dataclasses.is_dataclass(kind)
        assert kind.__doc__.splitlines()[0].endswith(".")
