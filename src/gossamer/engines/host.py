"""A block's place in the simulator: it takes stages from the parent and leaves its results on a shared board."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer import wire
from gossamer.core import Algorithm, Message, Part, PartSpec, State, Task, chosen, row_of
from gossamer.engines.block import Block
from gossamer.engines.inbox import BlockInbox, Edges
from gossamer.engines.state import map_tensors, rows_of, settle, shared, tensors_of
from gossamer.engines.testing import Piece
from gossamer.engines.told import Told
from gossamer.experiment import Experiment
from gossamer.faults import Network
from gossamer.wire.catching_up import resync_parts

FULL_SHARING = {"x": PartSpec()}
NOTHING = torch.empty(0)
REFERENCES = {"elias-fpzip": wire.elias_fpzip_bytes, "six-bytes": wire.six_bytes}


def codec_for(experiment: Experiment, task: Task, resync: bool = False) -> wire.Codec:
    """The codec that every node of an experiment uses, for frames or for resync frames."""
    parts, coding = experiment.algorithm.parts, experiment.wire.index_coding
    parts = resync_parts(parts) if resync else parts
    contexts = None
    if coding == "range":
        contexts = wire.wavelet_contexts(task.layer_sizes, max((spec.levels for spec in parts.values()), default=0))
    return wire.Codec(parts, sum(task.layer_sizes), experiment.seed, index_coding=coding, contexts=contexts)


@dataclass
class Board:
    """Memory that all blocks see: the messages of the round, and what is reported of each node."""

    messages: Message  # (n, width) rows, or (n * depth, width): those of a round lie at (round mod depth) * n;
    # of a running part the sum of all so far
    state: State  # (n, ...): where blocks keep theirs
    buffers: Tensor  # (n, K): those of the tasks' models, where blocks keep them
    models: Tensor  # (n, D), as of the last evaluation; a part of the state, if that is what the models are
    losses: Tensor  # (n,) training loss of the round
    num_bytes: Tensor  # (n, number of parts, 3): header, indices, values of one message
    full_bytes: Tensor  # (n,): one message of full sharing
    reference_bytes: Tensor  # (n, number of encodings to compare with)
    mean: Tensor  # (D + K,): the mean of all nodes' models and of their buffers, as of the last evaluation
    scores: Tensor  # (pieces of tests, 2): test loss and metric
    weights: Tensor  # (n,): push-sum weight, the mean over coefficients if each has its own
    told: Told | None  # who has been told what, if messages can be missed

    @property
    def frame_bytes(self) -> NDArray[np.int64]:
        """(n,): the length of each node's frame of this round."""
        lengths: NDArray[np.int64] = wire.Codec.frame_bytes + self.num_bytes.sum((1, 2)).numpy()
        return lengths

    @classmethod
    def of(cls, experiment: Experiment, task: Task, num_pieces: int = 0, scratch: Path | None = None) -> "Board":
        """The board before the first round; what grows with the model is kept in files of the scratch directory."""
        n, d = experiment.nodes, sum(task.layer_sizes)
        num_rows = n * experiment.faults.depth  # messages that are late stay where they are until they arrive
        algorithm = experiment.optimizer.around(experiment.algorithm)

        large = partial(shared, scratch=scratch)

        def repeated(_: str, tensor: Tensor) -> Tensor:
            return large(n, *tensor.shape[1:], dtype=tensor.dtype).copy_(tensor)

        one = algorithm.init(task.initial_model(experiment.seed)[None].clone())  # and every node starts there
        state = map_tensors(one, repeated)
        messages = {}
        for name, spec in algorithm.parts.items():
            width = d if spec.width is None else spec.width
            values = large(num_rows, width, dtype=torch.float64 if spec.values == "float64" else torch.float32)
            marked = (spec.indexed or spec.drawn or spec.like) and not spec.running
            messages[name] = Part(values, large(num_rows, width, dtype=torch.bool) if marked else None)
        return cls(
            messages=messages,
            state=state,
            buffers=shared(n, len(task.buffers)).copy_(task.buffers),
            models=algorithm.model(state) if _keeps_models(algorithm, one) else large(n, d),
            losses=shared(n),
            num_bytes=shared(n, len(messages), 3, dtype=torch.int64),
            full_bytes=shared(n, dtype=torch.int64),
            reference_bytes=shared(n, len(experiment.wire.compare), dtype=torch.int64),
            mean=shared(d + len(task.buffers)),
            scores=shared(num_pieces, 2, dtype=torch.float64),
            weights=shared(n, dtype=torch.float64),
            told=Told.of(experiment, d),
        )


def _keeps_models(algorithm: Algorithm, state: State) -> bool:
    """Are the models themselves a part of the state?"""
    models = algorithm.model(state)
    return any(tensor.data_ptr() == models.data_ptr() for _, tensor in tensors_of(state))


class Codecs:
    """Those that the blocks of an experiment share."""

    def __init__(self, experiment: Experiment, task: Task):
        self.messages = codec_for(experiment, task)
        self.resync = codec_for(experiment, task, resync=True)
        self.full = wire.Codec(FULL_SHARING, sum(task.layer_sizes), experiment.seed)


@dataclass
class Hosts:
    """The blocks of a worker, one after the other, and its share of the tests."""

    blocks: Sequence["BlockHost"]
    tests: Sequence[tuple[int, Piece]]  # with their places on the board

    @property
    def nodes(self) -> Sequence[int]:
        return range(self.blocks[0].nodes[0], self.blocks[-1].nodes[-1] + 1)

    def run(self, stage: str, round: int) -> None:
        if stage == "test":
            self.test()
            return
        for block in self.blocks:
            block.run(stage, round)

    def test(self) -> None:
        """The models that lie on the board, whoever's nodes they are."""
        board, task = self.blocks[0].board, self.blocks[0].block.task
        for place, (row, samples) in self.tests:
            if row < len(board.models):
                model, buffers = board.models[row], board.buffers[row]
            else:
                model, buffers = torch.tensor_split(board.mean, [board.models.shape[1]])
            board.scores[place] = torch.tensor(task.evaluate(model, samples, buffers), dtype=torch.float64)


@dataclass
class BlockHost:
    """A block and its place on the board, where its state is whenever no stage is under way."""

    block: Block
    board: Board
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
        stages = {"outgoing": self.outgoing, "incoming": self.incoming, "show": self.show}
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
            values = part.values if part.sent is None else chosen(part.values, part.sent).values
            if spec.running:
                values = target.values[before] + torch.where(up, values, 0)
            target.values[rows] = values  # and nothing travels that is not marked
            if target.sent is not None:
                assert part.sent is not None, f"part {name} is indexed or drawn, and says not what was sent"
                target.sent[rows] = part.sent
        if self.board.told is not None:
            self._count_resync(message, round, self.board.told)

    def incoming(self, round: int) -> None:
        own = [self.network.place(round, node) for node in self.nodes]
        inbox = BlockInbox(self.board.messages, edges_of(self.network, round, self.rows), own)
        self.block.incoming(round, inbox, self._up(round))
        weights = self.block.algorithm.weights(self.block.state)
        if weights is not None:
            self.board.weights[self.rows] = weights.double().mean(-1)

    def show(self, round: int) -> None:
        """Lay the models where everybody sees them."""
        models, place = self.block.models(), self.board.models[self.rows]
        if models.data_ptr() != place.data_ptr():
            place.copy_(models)

    def _places(self, round: int) -> slice:
        """Where the messages of a round lie on the board."""
        first = int(self.network.place(round, self.nodes[0]))
        return slice(first, first + len(self.nodes))

    def _up(self, round: int) -> Tensor:
        return torch.from_numpy(self.experiment.faults.up(self.experiment.nodes, round)[self.rows])[:, None]

    def _count(self, message: Message) -> None:
        sizes = [list(parts.values()) for parts in self.codecs.messages.num_bytes(message)]
        self.board.num_bytes[self.rows] = torch.tensor(sizes, dtype=torch.int64).view(len(self.nodes), -1, 3)
        full = self.codecs.full.num_bytes({"x": Part(self.block.before_send)})
        self.board.full_bytes[self.rows] = torch.tensor([parts["x"].total for parts in full])
        self.block.before_send = NOTHING  # let go of it
        for column, name in enumerate(self.experiment.wire.compare):
            num_bytes = REFERENCES[name](self.experiment.algorithm.parts, message)
            self.board.reference_bytes[self.rows, column] = torch.tensor(num_bytes)

    def _count_resync(self, message: Message, round: int, told: Told) -> None:
        """The size of the resync frame of each node that has to send one."""
        sums = {
            name: Part(self.board.messages[name].values[self._places(round)]) if spec.running else message[name]
            for name, spec in self.experiment.algorithm.parts.items()
        }
        sent = self.network.sent(round)
        mine = sent.where((sent.senders >= self.rows.start) & (sent.senders < self.rows.stop))
        for node in np.unique(mine.senders[told.need_resync(mine, self.board.frame_bytes)]).tolist():
            one = row_of(sums, node - self.rows.start)
            num_bytes = sum(sizes.total for sizes in self.codecs.resync.num_bytes(one)[0].values())
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
    keeps_mass = "symmetric" not in experiment.algorithm.requires
    return Network(experiment.topology, experiment.faults, experiment.nodes, experiment.seed, keeps_mass)


def edges_of(network: Network, round: int, rows: slice) -> Edges:
    """The messages that reach a run of nodes, where they lie on the board."""
    links = network.arrivals(round)
    here = slice(*np.searchsorted(links.receivers, [rows.start, rows.stop]))
    indptr = np.searchsorted(links.receivers[here], np.arange(rows.start, rows.stop + 1))
    senders = links.senders[here]
    return Edges(indptr, network.place(round - links.ages[here], senders), senders, links.weights[here])
