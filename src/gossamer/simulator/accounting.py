"""What a round costs and where push-sum weights are: the simulator's accounts, kept by exchange."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.experiments.experiment import Experiment
from gossamer.graphs.delivery import Links
from gossamer.simulator.shared_state import SharedState, push_sum_part
from gossamer.wire import Codec
from gossamer.wire.resync import Resend

KINDS = ("header", "indices", "values")  # of bytes


class RoundBytes:
    """The bytes of a round, over its exchanges and all links. A message counts once for each of its receivers."""

    def __init__(self, experiment: Experiment, shared: SharedState):
        self._shared, self._delivery, self._compare = shared, experiment.delivery, experiment.wire.compare
        self._parts: Tensor | int = 0  # (number of parts, 3) bytes
        self._compared: Tensor | int = 0  # (number of encodings to compare with,)
        self._frames = self._resent = 0  # bytes of envelopes, and of what is resent
        self.full = 0  # what full sharing would have sent
        self._links: list[tuple[Links, Resend, Tensor]] = []

    def begin(self, exchange: int, sent: Links) -> None:
        """Before an exchange in which these messages are sent."""
        ledger = self._shared.resync_ledger(exchange)
        if ledger is not None:
            ledger.begin(sent.senders, sent.receivers)

    def add(self, exchange: int, sent: Links, arrives: NDArray[np.bool_]) -> None:
        """Count an exchange, whose messages lie in the shared state; whom they reach is recorded."""
        shared, n = self._shared, self._delivery.nodes
        resend = self._resend(exchange, sent, arrives)
        copies = torch.from_numpy(np.bincount(sent.senders, minlength=n))
        frames = torch.from_numpy(np.bincount(sent.senders[~resend.is_resync], minlength=n))
        self._parts = self._parts + (shared.num_bytes * frames[:, None, None]).sum(0)
        self._compared = self._compared + (shared.reference_bytes * copies[:, None]).sum(0)
        self._frames += Codec.frame_bytes * int(frames.sum()) if shared.messages else 0
        self._resent += int(resend.num_bytes.sum())
        self.full += int(((shared.full_bytes + Codec.frame_bytes) * copies).sum())
        message_bytes = shared.num_bytes.sum(1)
        message_bytes[:, 0] += Codec.frame_bytes
        self._links.append((sent, resend, message_bytes))

    def _resend(self, exchange: int, sent: Links, arrives: NDArray[np.bool_]) -> Resend:
        """What goes to receivers that missed some of a cumulative part."""
        ledger, frame_bytes = self._shared.resync_ledger(exchange), self._shared.frame_bytes
        if ledger is None:
            return Resend.nothing(len(arrives))
        resend = ledger.resend(sent.senders, sent.receivers, frame_bytes)
        reached = sent.where(arrives)
        ledger.record(np.where(self._delivery.up(exchange), frame_bytes, 0), reached.senders, reached.receivers)
        return resend

    @property
    def by_kind(self) -> dict[str, int]:
        assert isinstance(self._parts, Tensor)
        counts = dict(zip(KINDS, self._parts.sum(0).tolist(), strict=True))
        counts["header"] += self._frames
        return counts | {"resync": self._resent} if self._shared.resync_ledgers else counts

    def metrics(self) -> dict[str, Any]:
        assert isinstance(self._parts, Tensor)
        assert isinstance(self._compared, Tensor)
        parts = zip(self._shared.messages, self._parts.tolist(), strict=True)
        return {
            **{f"bytes_{kind}": num_bytes for kind, num_bytes in self.by_kind.items()},
            "bytes_total": sum(self.by_kind.values()),
            "parts": {name: dict(zip(KINDS, row, strict=True)) for name, row in parts},
            **dict(zip((f"bytes_{name}" for name in self._compare), self._compared.tolist(), strict=True)),
        }

    def per_message(self) -> NDArray[np.int64]:
        """(n, 3): header, indices and values of each node's message in the last exchange."""
        sizes: NDArray[np.int64] = self._links[-1][2].numpy()
        return sizes if self._shared.messages else np.zeros_like(sizes)

    def per_link(self) -> NDArray[np.int64]:
        """The bytes of the last exchange on each of its links; 0 if there are no messages."""
        sent, resend, message_bytes = self._links[-1]
        if not self._shared.messages:
            return np.zeros(len(sent.senders), np.int64)
        lengths: NDArray[np.int64] = message_bytes.sum(1).numpy()
        return np.where(resend.is_resync, 0, lengths[sent.senders]) + resend.num_bytes

    def by_link(self) -> list[dict[str, int]]:
        """The bytes of every exchange on every link."""
        lines = []
        for index, (sent, resend, message_bytes) in enumerate(self._links):
            rows, which = message_bytes.tolist(), {"exchange": index} if len(self._links) > 1 else {}
            columns = sent.receivers, sent.senders, resend.is_resync, resend.num_bytes
            for receiver, sender, is_resync, resent in zip(*(column.tolist() for column in columns), strict=True):
                line = {**which, "sender": sender, "receiver": receiver}
                line |= dict(zip(KINDS, (0, 0, 0) if is_resync else rows[sender], strict=True))
                lines.append(line | {"resync": resent} if self._shared.resync_ledgers else line)
        return lines


class MassAccount:
    """Where the push-sum weights of an algorithm with faults are: on nodes, on their way, or lost."""

    def __init__(self, experiment: Experiment, shared: SharedState):
        self._experiment, self._delivery, self._shared = experiment, experiment.delivery, shared
        self._kept = push_sum_part(experiment) is not None

    def lost(self, exchange: int) -> float:
        """In the messages of an exchange that never arrive."""
        return self._in(self._delivery.lost(exchange), exchange) if self._kept else 0.0

    def metrics(self, exchange: int, lost: float) -> dict[str, float]:
        """After an exchange, when so much was lost in the whole run."""
        if not self._kept:
            return {}
        return {
            "mass_on_nodes": self._shared.weights.sum().item(),
            "mass_in_flight": sum(self._in(links, exchange) for links in self._delivery.in_flight(exchange)),
            "mass_lost": lost,
        }

    def _in(self, links: Links, exchange: int) -> float:
        if not len(links.ages):
            return 0.0
        sent_at = exchange - links.ages
        rates = {
            at: self._experiment.averaging_rate(at // self._delivery.exchanges) for at in np.unique(sent_at).tolist()
        }
        shares = torch.from_numpy(links.weights * [rates[at] for at in sent_at.tolist()])
        return float(self._shared.masses[sent_at % self._delivery.kept, links.senders] @ shares)
