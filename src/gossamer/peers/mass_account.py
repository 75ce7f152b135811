"""Push-sum weight that a peer has sent, taken in and lost.

A peer knows its own part: its weight is 1 - sent + taken in. What all peers together have sent, and neither taken in
nor counted as lost, is on its way.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from gossamer.core import Message
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.delivery import Links, Sent
from gossamer.peers.counters import Counters

EXCHANGES_REMEMBERED = 64  # within which it is of interest that a message was lost


class MassAccount:
    """Of one peer. An algorithm that is not of the push-sum family has no weights to account for."""

    def __init__(self, experiment: Experiment, me: int, counters: Counters):
        names = [name for name, spec in experiment.algorithm.parts.items() if spec.push_sum_weight]
        self.part = names[0] if names else None
        self._experiment, self._delivery, self._me, self._counters = experiment, experiment.delivery, me, counters
        self._sent: dict[int, float] = {}  # weight in the message of each of the last exchanges, before it is divided

    def send(self, message: Message, exchange: int, receivers: Sequence[int]) -> None:
        """A message leaves for these."""
        if self.part is None:
            return
        self._sent[exchange] = self._in(message, exchange)
        self._sent.pop(exchange - EXCHANGES_REMEMBERED, None)
        self._counters.add(mass_sent=sum(self._share(receiver, exchange) for receiver in receivers))

    def lose(self, receiver: int, exchange: int) -> None:
        """A receiver did not take it."""
        if exchange in self._sent:
            self._counters.add(mass_lost=self._share(receiver, exchange))

    def receive(self, links: Links, messages: Mapping[Sent, Message], exchange: int) -> None:
        """Messages are taken in, with these weights; the peer's own among them."""
        if self.part is None:
            return
        taken = 0.0
        for sender, age, weight in zip(
            links.senders.tolist(), links.ages.tolist(), links.weights.tolist(), strict=True
        ):
            if sender != self._me:
                taken += weight * self._in(messages[sender, exchange - age], exchange)
        self._counters.add(mass_received=taken)

    def metrics(self, weights: Tensor | None) -> dict[str, float]:
        """So far, and the weights that are on this peer now."""
        if weights is None or self.part is None:
            return {}
        totals = self._counters.totals()
        moved = {name: totals[name] for name in ("mass_sent", "mass_received", "mass_lost")}
        return {"mass_on_node": weights.double().mean().item(), **moved}

    def _in(self, message: Message, exchange: int) -> float:
        """The weight that a message moves by the rate of an exchange."""
        assert self.part is not None
        rate = self._experiment.averaging_rate(exchange // self._experiment.exchanges)
        return rate * message[self.part].values.double().mean().item()

    def _share(self, receiver: int, exchange: int) -> float:
        return self._sent[exchange] * (self._delivery.mixing(exchange).weight(receiver, self._me) or 0.0)
