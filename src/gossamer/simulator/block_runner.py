"""A block's place in the simulator: it takes stages from the parent and leaves its results on a shared board.

What a block keeps beside its state on the board (orders of samples, compiled parts) can be computed anew from the
experiment, so that a stage may be run by any process, whoever ran the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer import wire
from gossamer.core import Message, Part, PartSpec, State, Task, row_of, sparse_part
from gossamer.core.inbox import BlockInbox, Edges
from gossamer.core.state import rows_of, settle
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.faults import Network
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.resync_ledger import ResyncLedger
from gossamer.simulator.shared_state import SharedState
from gossamer.simulator.worker_pool import WorkPlan
from gossamer.training.block import Block
from gossamer.wire.resync import resync_parts

FULL_SHARING = {"x": PartSpec()}
NOTHING = torch.empty(0)
REFERENCES = {"elias-fpzip": wire.elias_fpzip_bytes, "six-bytes": wire.six_bytes}


def codec_for(experiment: Experiment, task: Task, resync: bool = False) -> wire.Codec:
    """The codec that every node of an experiment uses, for frames or for resync frames."""
    parts = experiment.algorithm.parts
    return wire.Codec(resync_parts(parts) if resync else parts, sum(task.layer_sizes), experiment.seed)


class Codecs:
    """Those that the blocks of an experiment share."""

    def __init__(self, experiment: Experiment, task: Task):
        self.messages = codec_for(experiment, task)
        self.resync = codec_for(experiment, task, resync=True)
        self.full = wire.Codec(FULL_SHARING, sum(task.layer_sizes), experiment.seed)


class BlockRunners:
    """All blocks, of which a worker runs those it is given, and the evaluation."""

    def __init__(self, prepared: PreparedExperiment, plan: WorkPlan, board: SharedState):
        self._prepared, self._plan, self._board = prepared, plan, board
        experiment, task, codecs = prepared.experiment, prepared.task, Codecs(prepared.experiment, prepared.task)
        x0 = task.initial_model(experiment.seed)
        self._algorithm = experiment.optimizer.wrap(experiment.algorithm)
        self._blocks = []
        for nodes in (nodes for blocks in plan.blocks for nodes in blocks):
            shards = [prepared.shards[i] for i in nodes]
            block = Block(experiment, task, nodes, shards, x0.expand(len(nodes), -1))
            self._blocks.append(BlockRunner(block, board, codecs))

    def run(self, stage: str, round: int, item: int) -> None:
        if stage == "evaluate":
            for number in self._plan.evaluation_shards(item):
                self._evaluate(number)
        else:
            self._blocks[item].run(stage, round)

    def _evaluate(self, number: int) -> None:
        """A shard, whoever's node it is of."""
        board, task, (row, samples) = self._board, self._prepared.task, self._prepared.evaluation_shards[number]
        if row < self._prepared.experiment.nodes:
            model, buffers = self._algorithm.model(rows_of(board.state, slice(row, row + 1)))[0], board.buffers[row]
        else:
            model, buffers = torch.tensor_split(board.mean, [len(board.mean) - board.buffers.shape[1]])
        board.scores[number] = torch.tensor(task.evaluate(model, samples, buffers), dtype=torch.float64)


@dataclass
class BlockRunner:
    """A block and its place on the board, where its state is whenever no stage is under way."""

    block: Block
    board: SharedState
    codecs: Codecs

    def __post_init__(self) -> None:
        self.experiment = self.block.experiment
        self.rows = slice(self.nodes[0], self.nodes[-1] + 1)
        self.network = network_of(self.experiment)
        self.home: State = rows_of(self.board.state, self.rows)
        self.block.state, self.block.buffers = self.home, self.board.buffers[self.rows]

    @property
    def nodes(self) -> Sequence[int]:
        return self.block.nodes

    def run(self, stage: str, round: int) -> None:
        stages = {"outgoing": self.outgoing, "incoming": self.incoming}
        stages[stage](round)
        self.block.state = settle(self.block.state, self.home)

    def outgoing(self, round: int) -> None:
        up = self._up(round)
        message, self.board.losses[self.rows] = self.block.outgoing(round, up)
        self._count(message)
        encoded = self.experiment.wire.mode == "encode" and message
        rows, before = self._places(round), self._places(round - 1)
        for name, part in (self._through_bytes(message, round) if encoded else message).items():
            spec, target = self.experiment.algorithm.parts[name], self.board.messages[name]
            values = part.values if part.sent is None else sparse_part(part.values, part.sent).values
            if spec.cumulative:
                values = target.values[before] + torch.where(up, values, 0)
            target.values[rows] = values  # and nothing travels that is not marked
            if target.sent is not None:
                assert part.sent is not None, f"part {name} is indexed or drawn, and says not what was sent"
                target.sent[rows] = part.sent
        if self.board.told is not None:
            self._count_resync(message, round, self.board.told)

    def incoming(self, round: int) -> None:
        own = [self.network.slot(round, node) for node in self.nodes]
        inbox = BlockInbox(self.board.messages, edges_of(self.network, round, self.rows), own)
        self.block.incoming(round, inbox, self._up(round))
        weights = self.block.algorithm.weights(self.block.state)
        if weights is not None:
            self.board.weights[self.rows] = weights.double().mean(-1)

    def _places(self, round: int) -> slice:
        """Where the messages of a round lie on the board."""
        first = int(self.network.slot(round, self.nodes[0]))
        return slice(first, first + len(self.nodes))

    def _up(self, round: int) -> Tensor:
        return torch.from_numpy(self.experiment.faults.up(self.experiment.nodes, round)[self.rows])[:, None]

    def _count(self, message: Message) -> None:
        for place, sizes in enumerate(self.codecs.messages.num_bytes(message).values()):
            self.board.num_bytes[self.rows, place] = torch.from_numpy(np.stack(sizes, axis=1))
        full = self.codecs.full.num_bytes({"x": Part(self.block.before_send)})["x"]
        self.board.full_bytes[self.rows] = torch.from_numpy(full.total)
        self.block.before_send = NOTHING  # let go of it
        for column, name in enumerate(self.experiment.wire.compare):
            num_bytes = REFERENCES[name](self.experiment.algorithm.parts, message)
            self.board.reference_bytes[self.rows, column] = torch.tensor(num_bytes)

    def _count_resync(self, message: Message, round: int, told: ResyncLedger) -> None:
        """The size of the resync frame of each node that has to send one."""
        sums = {
            name: Part(self.board.messages[name].values[self._places(round)]) if spec.cumulative else message[name]
            for name, spec in self.experiment.algorithm.parts.items()
        }
        sent = self.network.sent(round)
        mine = sent.where((sent.senders >= self.rows.start) & (sent.senders < self.rows.stop))
        for node in np.unique(mine.senders[told.need_resync(mine, self.board.frame_bytes)]).tolist():
            one = row_of(sums, node - self.rows.start)
            num_bytes = sum(int(sizes.total[0]) for sizes in self.codecs.resync.num_bytes(one).values())
            told.resync_bytes[node] = self.codecs.messages.frame_bytes + num_bytes
            if self.experiment.wire.mode == "encode":
                frame = self.codecs.resync.encode(one, node, round)
                assert len(frame) == told.resync_bytes[node], "a resync frame is not as long as was counted"
                decoded = self.codecs.resync.decode(frame)[2]
                assert all(torch.equal(decoded[name].values, part.values) for name, part in one.items())

    def _through_bytes(self, message: Message, round: int) -> Message:
        """The message as it is on the other side: encoded and decoded, row by row."""
        decoded = []
        for row, (node, counted) in enumerate(zip(self.nodes, self.board.frame_bytes[self.rows], strict=True)):
            frame = self.codecs.messages.encode(row_of(message, row), node, round)
            assert len(frame) == counted, f"{len(frame)} bytes were encoded and {counted} counted"
            decoded.append(self.codecs.messages.decode(frame)[2])

        def joined(name: str) -> Part:
            sent = [m[name].sent for m in decoded]
            marks = None if sent[0] is None else torch.cat([s for s in sent if s is not None])
            return Part(torch.cat([m[name].values for m in decoded]), marks)

        return {name: joined(name) for name in message}


def network_of(experiment: Experiment) -> Network:
    keeps_mass = experiment.algorithm.on_missing == "lose_mass"
    return Network(experiment.topology, experiment.faults, experiment.nodes, experiment.seed, keeps_mass)


def edges_of(network: Network, round: int, rows: slice) -> Edges:
    """The messages that reach a run of nodes, where they lie on the board."""
    links = network.arrivals(round)
    here = slice(*np.searchsorted(links.receivers, [rows.start, rows.stop]))
    indptr = np.searchsorted(links.receivers[here], np.arange(rows.start, rows.stop + 1))
    senders = links.senders[here]
    return Edges(indptr, network.slot(round - links.ages[here], senders), senders, links.weights[here])
