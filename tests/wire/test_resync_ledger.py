"""The ledger of links tells what a table of all pairs of nodes would."""

import numpy as np
import pytest
import torch

from gossamer.wire.resync import ResyncLedger, needs_resync

NODES, PLAIN = 30, 400


class Table:
    """Up to where each receiver (row) was reached by each sender (column)."""

    def __init__(self) -> None:
        self.sent, self.reached = np.zeros(NODES, np.int64), np.zeros((NODES, NODES), np.int64)

    def missed(self, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
        return self.sent[senders] - self.reached[receivers, senders]


def links_of_exchange(random: np.random.Generator, changing: bool) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers, by receiver and sender: of a ring, or of a new random graph."""
    pairs = {(i, (i + 1) % NODES) for i in range(NODES)}
    if changing:
        pairs = {(i, j) for i, j in random.integers(0, NODES, (2 * NODES, 2)).tolist() if i != j}
    receivers, senders = np.array(sorted(pairs)).T
    return senders, receivers


@pytest.mark.parametrize("changing", [False, True])
def test_the_ledger_tells_what_a_table_of_all_pairs_would(changing: bool) -> None:
    random, table, ledger = np.random.default_rng(0), Table(), ResyncLedger.of(NODES, PLAIN, torch.zeros)
    resyncs = 0
    for exchange in range(200):
        senders, receivers = links_of_exchange(random, changing)
        frame_bytes = random.integers(1, 60, NODES)
        ledger.begin(senders, receivers)
        ledger.resync_bytes[:] = 1000 + torch.arange(NODES)
        missed = table.missed(senders, receivers)
        is_resync = needs_resync(missed, frame_bytes[senders], PLAIN)
        resyncs += int(is_resync.sum())
        found = ledger.resend(senders, receivers, frame_bytes)
        assert found.is_resync.tolist() == is_resync.tolist()
        assert found.num_bytes.tolist() == np.where(is_resync, 1000 + senders, missed).tolist()
        everyone = np.arange(NODES)
        assert np.flatnonzero(ledger.need_resync(everyone, frame_bytes)).tolist() == sorted({*senders[is_resync]})
        arrives = random.random(len(senders)) < 0.3
        up = np.where(random.random(NODES) < 0.9, frame_bytes, 0)
        table.sent += up
        table.reached[receivers[arrives], senders[arrives]] = table.sent[senders[arrives]]
        ledger.record(up, senders[arrives], receivers[arrives])
        if exchange == 100:  # as a checkpoint has it
            saved = {name: tensor.clone() for name, tensor in ledger.saved(2).items()}
            ledger = ResyncLedger.of(NODES, PLAIN, torch.zeros)
            ledger.restore(saved, 2)
    assert resyncs > 20
    assert len(ledger.links) < (NODES * NODES / 2 if changing else NODES + 1), "what is of no use is forgotten"
