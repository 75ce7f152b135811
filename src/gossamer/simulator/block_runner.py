"""Runs the stages of a round for blocks: takes them from the parent and leaves the results in the shared state.

What a block keeps outside the shared state (orders of samples, compiled parts) can be computed anew from the
experiment, so that a stage may be run by any process, whoever ran the one before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer import wire
from gossamer.core import Message, Part, PartSpec, State, Task, row_of, sparse_part, stack
from gossamer.core.inbox import BlockInbox, Edges
from gossamer.core.state import rows_of, write_back
from gossamer.core.task import MetricError
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.delivery import Delivery
from gossamer.simulator.crossing import Crossing
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.ranks import Placement, Rows, rows_of_nodes
from gossamer.simulator.shared_state import SharedState, push_sum_part
from gossamer.simulator.worker_pool import WorkPlan
from gossamer.training.block import Block, NodeError
from gossamer.wire.resync import ResyncLedger, resync_parts

FULL_SHARING = {"x": PartSpec()}
REFERENCES = {"elias-fpzip": wire.elias_fpzip_bytes, "six-bytes": wire.six_bytes}


class Codecs:
    """Those that the blocks of an experiment share: to count the bytes that endpoints would send."""

    def __init__(self, experiment: Experiment, task: Task):
        parts, num_parameters, seed = experiment.algorithm.parts, sum(task.layer_sizes), experiment.seed
        self.messages = wire.Codec(parts, num_parameters, seed)
        self.resync = wire.Codec(resync_parts(parts), num_parameters, seed)
        self.full = wire.Codec(FULL_SHARING, num_parameters, seed)


class BlockRunners:
    """All blocks of a rank, of which a worker runs those it is given, and the evaluation."""

    def __init__(
        self, prepared: PreparedExperiment, plan: WorkPlan, shared: SharedState, placement: Placement | None = None
    ):
        self._prepared, self._plan, self._shared = prepared, plan, shared
        experiment, task, codecs = prepared.experiment, prepared.task, Codecs(prepared.experiment, prepared.task)
        placement = placement or Placement([np.arange(experiment.nodes)])
        x0 = task.initial_model(experiment.seed)
        delivery = experiment.delivery  # one for all blocks, which remembers the exchange that is under way
        self._algorithm = experiment.optimizer.wrap(experiment.algorithm)
        self._crossing = Crossing(experiment, delivery, placement, shared, codecs.messages)
        self._placement = placement
        self._tested = placement.items([shard.row for shard in prepared.evaluation_shards])[placement.rank]
        self._blocks = []
        for places in (places for blocks in plan.blocks for places in blocks):
            nodes = placement.hosted[places.start : places.stop].tolist()
            shards = [prepared.shards[i] for i in nodes]
            block = Block(experiment, prepared.trainer, nodes, shards, x0.expand(len(nodes), -1), in_place=True)
            at = slice(places.start, places.stop)
            self._blocks.append(BlockRunner(block, experiment, delivery, shared, codecs, self._crossing, at))

    def run(self, stage: str, round: int, item: int) -> None:
        if stage == "evaluate":
            for number in self._plan.evaluation_shards(item):
                self._evaluate(int(self._tested[number]), round)
        elif stage == "decode":
            self._crossing.read(round, item, self._plan.num_decodes)
        else:
            self._blocks[item].run(stage, round)

    def _evaluate(self, number: int, round: int) -> None:
        """A shard, whoever's node it is of."""
        shared, task, shard = self._shared, self._prepared.task, self._prepared.evaluation_shards[number]
        row, samples = shard.row, shard.samples
        if row < self._prepared.experiment.nodes:
            at = self._placement.position(row)
            model, buffers = self._algorithm.model(rows_of(shared.state, slice(at, at + 1)))[0], shared.buffers[at]
        else:
            model, buffers = torch.tensor_split(shared.mean, [len(shared.mean) - shared.buffers.shape[1]])
        try:
            scores = (task.evaluate if shard.personal else task.measure)(model, samples, buffers)
        except MetricError as error:
            who = "the mean model" if row == self._prepared.experiment.nodes else f"node {row}"
            raise NodeError(f"in round {round + 1}, in the test of {who}, {error}") from error
        shared.scores[number, : len(scores)] = torch.tensor(scores, dtype=torch.float64)


@dataclass
class BlockRunner:
    """A block, and its rows of the shared state, where its own state is whenever no stage is under way."""

    block: Block
    experiment: Experiment
    delivery: Delivery
    shared: SharedState
    codecs: Codecs
    crossing: Crossing
    places: slice  # of its nodes among those that the rank hosts

    def __post_init__(self) -> None:
        self.rows: Rows = rows_of_nodes(np.array(self.nodes))  # in tables of all nodes
        self.state_rows: State = rows_of(self.shared.state, self.places)
        self.block.state, self.block.buffers = self.state_rows, self.shared.buffers[self.places]

    @property
    def nodes(self) -> Sequence[int]:
        return self.block.nodes

    def run(self, stage: str, exchange: int) -> None:
        stages = {"outgoing": self.outgoing, "incoming": self.incoming}
        stages[stage](exchange)
        self.block.state = write_back(self.block.state, self.state_rows)

    def outgoing(self, exchange: int) -> None:
        """The first half of an exchange; before the first one of a round, the local steps."""
        up = self._up(exchange)
        round, index = divmod(exchange, self.experiment.exchanges)
        if index == 0:
            self.shared.losses[self.rows] = self.block.train(round, up)
        self._count_full_sharing()
        message = self.block.send(exchange, up)
        self._count(message)
        before, slots = self._sums(exchange - self.delivery.channels), self._slots(exchange)
        encoded = self.experiment.wire.mode == "encode" and message
        for name, part in (self._through_bytes(message, exchange) if encoded else message).items():
            spec, target = self.experiment.algorithm.parts[name], self.shared.messages[name]
            values = part.values if part.sent is None else sparse_part(part.values, part.sent).values
            if spec.cumulative:
                values = before[name] + torch.where(up, values, 0)
            target.values[slots] = values  # and nothing travels that is not marked
            if target.sent is not None:
                assert part.sent is not None, "a block's messages say what was sent"
                target.sent[slots] = part.sent
        if (weights := push_sum_part(self.experiment)) is not None:
            values = self.shared.messages[weights].values[slots]
            self.shared.masses[exchange % self.delivery.kept, self.rows] = values.double().mean(-1)
        self.crossing.write(exchange, self.nodes, message)
        ledger = self.shared.resync_ledger(exchange)
        if ledger is not None:
            self._count_resync(message, exchange, ledger, before)

    def incoming(self, exchange: int) -> None:
        """The second half of an exchange."""
        own = self.delivery.slot(exchange, np.array(self.nodes)).tolist()
        inbox = BlockInbox(self.shared.messages, edges_of(self.delivery, exchange, self.rows), own)
        self.block.receive(exchange, inbox, self._up(exchange))
        weights = self.block.algorithm.weights(self.block.state)
        if weights is not None:
            self.shared.weights[self.rows] = weights.double().mean(-1)

    def _slots(self, exchange: int) -> Rows:
        """Where the messages of an exchange lie in the shared state."""
        return rows_of_nodes(self.delivery.slot(exchange, np.array(self.nodes)))

    def _sums(self, exchange: int) -> dict[str, Tensor]:
        """Of the cumulative parts, (B, width) each, by the end of an exchange; to keep, if bytes are made of them."""
        parts, rows = self.experiment.algorithm.parts, self._slots(exchange)
        keep = self.experiment.wire.mode == "encode"
        found = {name: self.shared.messages[name].values[rows] for name, spec in parts.items() if spec.cumulative}
        return {name: values.clone() if keep else values for name, values in found.items()}

    def _up(self, exchange: int) -> Tensor:
        return torch.from_numpy(self.delivery.up(exchange)[self.rows])[:, None]

    def _count_full_sharing(self) -> None:
        full = self.codecs.full.num_bytes({"x": Part(self.block.models())})["x"]
        self.shared.full_bytes[self.rows] = torch.from_numpy(full.total)

    def _count(self, message: Message) -> None:
        for column, sizes in enumerate(self.codecs.messages.num_bytes(message).values()):
            self.shared.num_bytes[self.rows, column] = torch.from_numpy(np.stack(sizes, axis=1))
        for column, name in enumerate(self.experiment.wire.compare):
            num_bytes = REFERENCES[name](self.experiment.algorithm.parts, message)
            self.shared.reference_bytes[self.rows, column] = torch.tensor(num_bytes)

    def _count_resync(
        self, message: Message, exchange: int, ledger: ResyncLedger, before: Mapping[str, Tensor]
    ) -> None:
        """The size of the resync frame of each node that has to send one; `before` are the sums before the message."""
        sums = message | {name: Part(values) for name, values in self._sums(exchange).items()}
        nodes = np.array(self.nodes)
        for row in np.flatnonzero(ledger.need_resync(nodes, self.shared.frame_bytes[nodes])).tolist():
            node = self.nodes[row]
            sizes = self.codecs.resync.num_bytes(row_of(sums, row)).values()
            num_bytes = self.codecs.resync.frame_bytes + sum(int(size.total[0]) for size in sizes)
            ledger.resync_bytes[node] = num_bytes
            if self.experiment.wire.mode == "encode":
                known = {name: values[row : row + 1] for name, values in before.items()}
                received = self._carry(node, row_of(message, row), exchange, num_bytes, known)
                assert all(torch.equal(received[name].values, sums[name].values[row : row + 1]) for name in known)

    def _through_bytes(self, message: Message, exchange: int) -> Message:
        """The message as its receivers have it: of cumulative parts, what they gained."""
        counted = self.shared.frame_bytes
        rows = [(node, row_of(message, row)) for row, node in enumerate(self.nodes)]
        return stack([self._carry(node, one, exchange, int(counted[node]), {}) for node, one in rows])

    def _carry(self, node: int, message: Message, exchange: int, counted: int, known: Mapping[str, Tensor]) -> Message:
        """A node's message through the endpoints of two nodes; to one that missed everything if sums are `known`."""
        sender, receiver = (self.experiment.endpoint(self.block.trainer.task, number) for number in (node, node + 1))
        if known:
            sender.restart(exchange, {name: sums.repeat(1, self.delivery.channels) for name, sums in known.items()})
        delivery = sender.send(message, exchange).bytes_for(receiver.node)
        assert len(delivery) == counted, f"{len(delivery)} bytes were encoded and {counted} counted"
        return receiver.receive(receiver.check(delivery, node, exchange)).message


def edges_of(delivery: Delivery, exchange: int, rows: Rows) -> Edges:
    """The messages that reach some nodes, where they lie in the shared state."""
    links = delivery.arrivals(exchange)
    nodes = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    starts, ends = np.searchsorted(links.receivers, [nodes, nodes + 1])
    indptr = np.append(0, np.cumsum(ends - starts))
    here = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], ends - starts)
    senders = links.senders[here]
    return Edges(indptr, delivery.slot(exchange - links.ages[here], senders), senders, links.weights[here])
