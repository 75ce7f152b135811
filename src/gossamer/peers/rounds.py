"""One node of an experiment on a real network: the rounds, and what to do when others are slow, away or gone."""

import time
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from gossamer.core import Message, row_of
from gossamer.core.inbox import Arrival, BlockInbox
from gossamer.core.state import map_tensors, tensors_of
from gossamer.core.task import MetricError
from gossamer.graphs.delivery import Sent
from gossamer.peers.config import Timeouts
from gossamer.peers.counters import Counters
from gossamer.peers.data import PeerData
from gossamer.peers.logs import Log
from gossamer.peers.mass_account import MassAccount
from gossamer.peers.progress import Progress
from gossamer.peers.state_transfer import StateTransfer, round_of_most
from gossamer.peers.transport import Arrived, Transport
from gossamer.peers.waits import WaitingNotice, Waits
from gossamer.runs.weights import model_digest
from gossamer.simulator.evaluation import chosen_test_samples, known, personal_shards, scores_of
from gossamer.training.block import Block, NodeError
from gossamer.training.privacy import Noise, secret
from gossamer.wire import WireError
from gossamer.wire.endpoint import check_values
from gossamer.wire.frame import Frame
from gossamer.wire.resync import has_cumulative

SUMS = "sums."  # before the names of cumulative parts in a state
VOTING_ROUNDS = 8
GROWTH_ROUNDS = 1000  # in which the limit of cumulative parts grows by as much as it was at first
FAR = 1000.0  # a number so many times larger than any of this peer's own is nothing that a neighbour can have learned


class Node:
    """A block of one row, and the calls that a round takes. It knows the network only as a `Transport`."""

    def __init__(
        self,
        inputs: PeerData,
        me: int,
        run_id: int,
        timeouts: Timeouts,
        counters: Counters,
        log: Log,
        noise: Noise = secret,
    ):
        """`noise` is for privacy: from the seed, anyone could draw it too, and take it away."""
        self.experiment, self.task, samples = inputs
        self.me, self.timeouts, self.counters, self.log = me, timeouts, counters, log
        self.round = 0  # rounds that are complete
        x0 = self.task.initial_model(self.experiment.seed)[None]
        self.block = Block(self.experiment, self.experiment.trainer_for(self.task), [me], [samples], x0, noise)
        self.delivery = self.experiment.delivery
        self.endpoint = self.experiment.endpoint(self.task, me, run_id)
        self.state_transfer = StateTransfer(self, run_id)
        algorithm = self.experiment.algorithm
        self.reliable = "reliable" in algorithm.requires
        late_rounds = 0 if self.reliable else timeouts.late_rounds
        since_last = self.delivery.channels if self.delivery.channels > 1 else 0  # a pair's last meeting is not too old
        self.late_exchanges = max(late_rounds * self.experiment.exchanges, since_last)
        if self.experiment.asynchronous:  # others count rounds of their own
            self.late_exchanges = max(self.late_exchanges, self.experiment.rounds * self.experiment.exchanges)
        # A neighbour that goes on from an earlier state has other sums than were heard; but no mass may count twice.
        self.hears_again = has_cumulative(algorithm.parts) and algorithm.on_missing == "keep_own"
        self.waits, self.progress = Waits(timeouts), Progress()
        self._test_samples = chosen_test_samples(self.experiment, self.task)
        personal = self.experiment.evaluation.personal
        self._personal = personal_shards(self.experiment, self.task, me, samples) if personal else []
        self.mass = MassAccount(self.experiment, me, counters)
        self._first_sizes: dict[str, float] = {}  # the largest number of each part in this peer's first message
        self._other_channels: dict[Sent, Message] = {}  # late messages, which are of use when their channel is

    # What a transport asks for, from its own threads.

    def check(self, delivery: bytes, sender: int, round: int) -> tuple[Frame, ...]:
        return self.endpoint.check(delivery, sender, round)

    def outcome(self, receiver: int, round: int, taken: bool) -> None:
        """What became of a message: a cumulative part must be resent, of push-sum weight account is kept."""
        if taken:
            self.endpoint.acknowledged(receiver, round)
        else:
            self.mass.lose(receiver, round)

    def restarted(self, receiver: int) -> None:
        """It has forgotten what it was sent before."""
        self.endpoint.forget(receiver)

    # Rounds.

    @property
    def exchange(self) -> int:
        """The first exchange of the next round. On the network, all is counted in exchanges."""
        return self.round * self.experiment.exchanges

    @property
    def trains(self) -> bool:
        """Has the next round local steps?"""
        return self.round < self.experiment.training_rounds

    @property
    def waits_for_nobody(self) -> bool:
        """Is this an asynchronous run that does not settle yet?"""
        return self.experiment.asynchronous and self.trains

    def neighbours(self, exchange: int) -> tuple[list[int], list[int]]:
        """To whom this node sends in an exchange, and from whom it hears."""
        if not self.experiment.algorithm.parts:
            return [], []
        return self.delivery.neighbours(exchange, self.me)

    def step(self, transport: Transport) -> dict[str, Any]:
        """Run the next round; its metrics."""
        started, trains = time.monotonic(), self.trains
        exchanges = range(self.exchange, self.exchange + self.experiment.exchanges)
        near = self.near(self.round) | {node for each in self.neighbours(exchanges.stop) for node in each}
        transport.watch(sorted(near))
        transport.begin(self.exchange)
        self.progress.enter("training" if trains else "settling")
        losses = self.block.train(self.round)
        if time.monotonic() - started > self.timeouts.deadline_seconds:
            self.state_transfer.absence.begin()  # the others have not waited for so long
        waited, missing = 0.0, 0
        for exchange in exchanges:
            seconds, without = self._exchange(exchange, transport)
            waited, missing = waited + seconds, missing + without
        self.round += 1
        self.state_transfer.offer()
        return {
            "round": self.round,
            **({"train_loss": losses.item()} if trains else {}),
            "waited_seconds": round(waited, 4),
            "missing": missing,
            "alive": sum(transport.alive(node) for node in near),
            "neighbours": len(near),
            **self.mass.metrics(self.block.algorithm.weights(self.block.state)),
            **self.evaluation(),
            "seconds": round(time.monotonic() - started, 4),
        }

    def _exchange(self, exchange: int, transport: Transport) -> tuple[float, int]:
        """Send and receive; how long it waited, and how many messages it had to do without."""
        receivers, senders = self.neighbours(exchange)
        self.progress.enter("exchanging" if self.trains else "settling", lambda: transport.awaited())
        if exchange != self.exchange:
            transport.begin(exchange)
        message = self.block.send(exchange)
        came: list[Arrived] = []
        own: Message = {}
        unsent: list[int] = []
        began = time.monotonic()
        if message:
            message = row_of(message, 0)
            outgoing = self.endpoint.send(message, exchange)
            own = outgoing.own
            self._note_sizes(own)
            if self.waits_for_nobody and self.delivery.on_missing == "lose_mass":
                unsent = [node for node in receivers if not transport.can_take(node)]  # and their share stays here
                receivers = [node for node in receivers if node not in unsent]
            self.mass.send(message, exchange, receivers)
            until = began + self.waits.deadline_seconds
            patience = began if self.waits_for_nobody else until  # what was not taken goes with the next one
            transport.publish(exchange, receivers, outgoing.bytes_for, patience)
            if self.waits_for_nobody:
                last = self.experiment.training_rounds * self.experiment.exchanges - 1
                came = transport.collect(last, [], until)  # whatever is there, of whatever round before they settle
            else:
                came = transport.collect(exchange, senders, until)
        waited = time.monotonic() - began
        missing = self._take_in(exchange, came, own, senders, transport, unsent)
        self.waits.add(waited, not missing)
        return waited, missing

    def evaluation(self) -> dict[str, float | None]:
        if not self.experiment.evaluates_after(self.round):
            return {}
        self.progress.enter("evaluating")
        model, buffers = self.block.models()[0], self.block.buffers[0]
        try:
            loss, score, *more = self.task.measure(model, self._test_samples, buffers)
        except MetricError as error:
            raise NodeError(f"in round {self.round}, {error}") from error
        if not (isfinite(loss) and isfinite(score)):
            raise NodeError(f"the test loss became {loss} in round {self.round}; a smaller learning rate would help")
        further = zip(self.task.more_metrics, map(known, more), strict=True)
        found: dict[str, float | None] = {"test_loss": loss, self.task.metric: score, **dict(further)}
        if self._personal:
            scores = torch.tensor(
                [self.task.evaluate(model, shard.samples, buffers) for shard in self._personal], dtype=torch.float64
            )
            found[f"{self.task.metric}_personal"] = scores_of(self._personal, scores, personal=True)[self.me][1]
        return found

    def _take_in(
        self,
        t: int,
        came: list[Arrived],
        own: Message,
        senders: list[int],
        transport: Transport,
        unsent: Sequence[int] = (),
    ) -> int:
        """The second half of an exchange, in which these were not sent to; how many messages it had to do without."""
        found: dict[Sent, Message] = {(self.me, t): own}
        for delivery in came:
            try:
                if self.delivery.mixing(delivery.round).weight(self.me, delivery.sender) is None:
                    raise WireError(f"Node {delivery.sender} does not send to this one in round {delivery.round}.")
                received = self.endpoint.receive(delivery.frames, self._limits())
                found[delivery.sender, delivery.round] = received.message
            except WireError as error:
                self.counters.add(bad_frames=1)
                self.log.rate_limited("bad frame", neighbour=transport.name_of(delivery.sender), reason=str(error))
        found = self._of_channel(t, found)
        others = [key for key in found if key != (self.me, t)]
        used, dropped = self.delivery.usable(others, t, self.late_exchanges)
        in_time = {sender for sender, sent in used if sent == t or self.waits_for_nobody}
        missing = len(set(senders) - in_time)
        late = sum(sent < t for _, sent in used)
        self.counters.add(missing=missing, late_used=late, late_dropped=len(dropped))
        if missing and self.reliable:
            raise NodeError(
                f"{missing} messages did not come in round {self.round + 1}, and this algorithm needs every one; "
                "start all peers again from an earlier state, or take an algorithm such as dpsgd, jwins or sparse-push"
            )
        links = self.delivery.arrivals_at(t, self.me, used, unsent)
        self.mass.receive(links, found, t)
        sent = zip(links.senders.tolist(), (t - links.ages).tolist(), links.weights.tolist(), strict=True)
        arrivals = [Arrival(j, weight, found[j, at], (j, at) == (self.me, t)) for j, at, weight in sent]
        self.block.receive(t, BlockInbox.of_arrivals([arrivals]))
        return missing

    def _of_channel(self, t: int, found: dict[Sent, Message]) -> dict[Sent, Message]:
        """The messages of this exchange's channel, those that came since it was used last among them."""
        channels, found = self.delivery.channels, self._other_channels | found
        others = {key: message for key, message in found.items() if (key[1] - t) % channels}
        newest = {(sender, sent % channels): sent for sender, sent in sorted(others)}  # of sums no other matters
        self._other_channels = {(sender, sent): others[sender, sent] for (sender, _), sent in newest.items()}
        return {key: message for key, message in found.items() if key not in others}

    def _note_sizes(self, own: Message) -> None:
        """Of this peer's first message. Liars have had a hand in those that follow."""
        if not self._first_sizes:
            model = max(1.0, largest(self.block.models()))
            self._first_sizes = {name: max(model, largest(part.values)) for name, part in own.items()}

    def _limits(self) -> dict[str, float]:
        """How large a neighbour's numbers may be: one message of 1e38 would end everybody's training. Sums grow with
        the rounds, so their limit does too."""
        parts, grown = self.experiment.algorithm.parts, 1 + self.round / GROWTH_ROUNDS
        sizes = self._first_sizes.items()
        return {name: FAR * size * (grown if parts[name].cumulative else 1.0) for name, size in sizes}

    def check_state(self, tensors: Mapping[str, Tensor]) -> None:
        """WireError if this can be no neighbour's state."""
        own = self.tensors()
        for name, tensor in tensors.items():
            if tensor.numel():
                check_values(name, tensor, FAR * max(1.0, largest(own[name])))
        weights = self.block.algorithm.weights(map_tensors(self.block.state, lambda name, _: tensors[name]))
        if weights is not None and not (weights > 0).all():
            raise WireError("The state has push-sum weights that are not above 0.")

    # Coming, being away, going.

    def wait_for_group(self, transport: Transport, others: list[int], leaving: Callable[[], bool]) -> None:
        """Wait for the others, so that all begin together; if most have begun, no longer than the rest may take."""
        transport.begin(self.exchange)
        transport.watch(others)
        self.progress.enter("starting", lambda: [node for node in others if not transport.answered(node)])
        begun = time.monotonic()
        until = begun + self.timeouts.start_seconds

        def absent() -> dict[str, str]:
            return {transport.name_of(n): transport.why_absent(n) for n in others if not transport.answered(n)}

        notice = WaitingNotice(self.log, absent)
        while time.monotonic() < until and not leaving():
            if all(transport.answered(node) for node in others):
                break
            notice.look(until)
            most = round_of_most(transport.round_of(node) or 0 for node in others)
            if most > self.exchange + self.experiment.exchanges:
                break
            if 2 * sum(transport.is_running(node) for node in others) > len(others):
                until = min(until, begun + self.timeouts.dead_seconds)
            else:
                begun = time.monotonic()
            time.sleep(0.05)
        self.log("begins", round=self.round, absent=list(absent()))
        self.state_transfer.absence.begin()
        transport.started = time.monotonic()

    def keep_pace(self, transport: Transport, leaving: Callable[[], bool]) -> None:
        """In an asynchronous run, begin to settle when most of the others do: a slow peer leaves out the rounds that it
        has not come to, a quick one waits."""
        settles_at = self.experiment.training_rounds
        if self.round > settles_at:
            return
        voters = self.voters(self.round)
        transport.watch(sorted(voters))

        def rounds() -> list[int]:  # one that was never heard has not begun
            return [self.round_of(node, transport) for node in voters if not transport.is_lost(node)]

        def most_settle() -> bool:
            known = rounds()
            enough = len(known) > 1 or self.experiment.nodes <= 2 or not voters  # a single one may be a liar
            return enough and (not known or round_of_most(known) >= settles_at)

        if self.round < settles_at and voters and most_settle():
            self.log("settles with the others", round=self.round)
            self.round = settles_at
        transport.begin(self.exchange)
        before, until = rounds(), time.monotonic() + self.timeouts.deadline_seconds
        if self.round == settles_at:
            slower = [node for node in voters if self.round_of(node, transport) < settles_at]
            self.progress.enter("settling", lambda: slower)
        while self.round == settles_at and not most_settle() and not leaving() and time.monotonic() < until:
            time.sleep(0.05)
            if (now := rounds()) != before:  # as long as any of them goes on
                before, until = now, time.monotonic() + self.timeouts.deadline_seconds

    def is_behind(self, transport: Transport) -> bool:
        if self.experiment.asynchronous:
            return False
        near = [node for node in self.near(self.round) if not transport.is_lost(node)]
        return round_of_most(self.round_of(node, transport) for node in near) > self.round

    def near(self, round: int) -> set[int]:
        """Whom this node sends to or hears from in a round."""
        first = round * self.experiment.exchanges
        exchanges = range(first, first + self.experiment.exchanges)
        return {node for exchange in exchanges for each in self.neighbours(exchange) for node in each}

    def voters(self, round: int) -> set[int]:
        """Whose word counts on where the group is: neighbours of this round and, where the graph changes, of the next,
        because a single one may be a liar."""
        rounds = range(round, round + (1 if self.experiment.topology.static else VOTING_ROUNDS))
        return {node for r in rounds for node in self.near(r)}

    def round_of(self, node: int, transport: Transport) -> int:
        """The round that another is in, as it says; one that was never heard has not begun."""
        return (transport.round_of(node) or 0) // self.experiment.exchanges

    def drain(self, transport: Transport, leaving: Callable[[], bool]) -> None:
        """Stay until the neighbours are done too: they may still need this one."""
        transport.begin(self.exchange)
        near = {node for each in self.neighbours(max(0, self.exchange - 1)) for node in each}
        until = time.monotonic() + self.timeouts.deadline_seconds

        def behind() -> list[int]:
            return [n for n in near if transport.alive(n) and (transport.round_of(n) or 0) < self.exchange]

        self.progress.enter("finishing", behind)
        while behind() and time.monotonic() < until and not leaving():
            time.sleep(0.05)

    # What is kept.

    def tensors(self) -> dict[str, Tensor]:
        """A copy of the node's state, without what it knows of others: they can send it again. Transports read it
        while the next steps are taken, some of them in place."""
        sums = {SUMS + name: tensor for name, tensor in self.endpoint.own_sums.items()}
        state = {name: tensor.clone() for name, tensor in tensors_of(self.block.state)}
        return {**state, "buffers": self.block.buffers.clone(), **sums}

    def restore(self, tensors: dict[str, Tensor], round: int) -> None:
        """Go on from a state by the end of so many rounds; whatever others had of it, they are sent the sums again."""
        self.block.state = map_tensors(self.block.state, lambda name, _: tensors[name])
        self.block.buffers = tensors["buffers"].clone()
        sums = {name.removeprefix(SUMS): t for name, t in tensors.items() if name.startswith(SUMS)}
        self.round = round
        self.endpoint.restart(self.exchange, sums)
        self._other_channels.clear()
        self.state_transfer.offer()

    def digest(self) -> str:
        """The sha256 of the model's numbers, as little-endian float32."""
        return model_digest(self.block.models()[0])


def largest(values: Tensor) -> float:
    """The largest absolute value."""
    return values.abs().max().item() if values.numel() else 0.0
