"""The nouns. Read this file first; everything else is an instance of it.

Gossamer trains one model on many nodes that only ever talk to their neighbours. An algorithm is written once, over
the *block* of B nodes that the running process hosts: every tensor is (B, D) or (B, 1), one row a node, D parameters.
In a simulation B is the number of nodes, on a rank of a cluster a share of it, on a real device 1; the text of the
algorithm is the same and cannot tell which.

**The rule of rows.** Rows never meet in algorithm code: reduce over the last axis, never over the node axis. Nodes
meet in one place, the `Inbox`, which gives weighted sums over the messages of a node's in-neighbours. From this rule
alone follow the simulator's worker processes, the cluster and the real peers, all with bit-identical models.

A round, for every node at once:

    for each local step:  state = algorithm.local_step(state, gradient at algorithm.model(state), round)
    message, state = algorithm.send(state, round)          # what every out-neighbour will see
    state = algorithm.receive(state, inbox, round)         # the messages of this round, own included

A complete algorithm, decentralized SGD with full sharing:

    class State(NamedTuple):
        x: Tensor  # model (B, D)

    @dataclass(frozen=True)
    class Gossip(Algorithm):
        requires = frozenset({"symmetric"})
        parts = {"x": PartSpec()}

        def init(self, x0):
            return State(x0)

        def model(self, state):
            return state.x

        def local_step(self, state, gradient, round):
            return State(state.x - round.learning_rate * gradient)

        def send(self, state, round):
            return {"x": Part(state.x)}, state

        def receive(self, state, inbox, round):
            return State(inbox.sum("x"))

Elsewhere: a *topology* says who sends to whom in a round and with what weight (topologies.py), a *partition* which
node holds which samples (partition.py), a *task* is model, data, loss and metric (tasks/), a *codec* turns a message
into bytes and back without loss (wire/), an *engine* carries messages between blocks (engines/), and an *experiment*
is one typed value that names all of them (experiment.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.kernels.selection import pick, pick_or_zero
from gossamer.rng import Streams


class Quantized(NamedTuple):
    """The integers behind a part's values: value = level * scale of its bucket, exactly, in float32."""

    levels: Tensor  # (B, width) int16; zero where nothing was sent
    scales: Tensor  # (B, number of buckets) float32
    bucket: int  # so many consecutive sent entries share a scale; 0: one scale a row


class Part(NamedTuple):
    """One named part of a message, for every node of a block. What it holds is exactly what every receiver sees."""

    values: Tensor  # (B, width); zero where nothing was sent
    sent: Tensor | None = None  # (B, width) bool, which entries travel; None: all of them
    quantized: Quantized | None = None  # the integers that travel instead, if the values came from some


def chosen(values: Tensor, sent: Tensor) -> Part:
    """The part that shares only the entries marked in `sent`."""
    return Part(picked(sent, values), sent)


def picked(marks: Tensor, yes: Tensor, no: Tensor | None = None) -> Tensor:
    """(B, width): `yes` where marked, elsewhere `no`, or 0. What torch.where does, in a tenth of the time."""
    arrays = [tensor.contiguous().numpy() for tensor in (marks, yes, no) if tensor is not None]
    assert len({array.shape for array in arrays}) == 1, "marks and what is picked are rows of the same width"
    return torch.from_numpy(pick_or_zero(*arrays) if no is None else pick(*arrays))


Message = dict[str, Part]


def row_of(message: Message, row: int) -> Message:
    """The message of one node of the block, (1, width)."""

    def cut(part: Part) -> Part:
        at, integers = slice(row, row + 1), part.quantized
        quantized = integers and Quantized(integers.levels[at], integers.scales[at], integers.bucket)
        return Part(part.values[at], None if part.sent is None else part.sent[at], quantized)

    return {name: cut(part) for name, part in message.items()}


@dataclass(frozen=True)
class PartSpec:
    """How a part travels. Both ends know it, so neither names nor shapes are on the wire."""

    width: int | None = None  # numbers a node; None: one a parameter
    indexed: bool = False  # the sender chooses entries, and their indices travel
    drawn: Callable[[Streams, int], Tensor] | None = None  # both ends draw (B, width) `sent` from the sender's stream
    like: str | None = None  # the entries are those of an earlier part, of this name and the same width
    is_mass: bool = False  # these are push-sum weights, whose sum over nodes is conserved
    values: str = "float32"  # or "float64", "bfloat16", "float16", "int1" .. "int8": how a value travels
    bucket: int = 0  # for integers: entries a scale; 0: one scale
    running: bool = False  # receivers keep the sum of all that a node has sent; the inbox gives these sums


def _no_loss(models: Tensor) -> Tensor:
    raise NotImplementedError("there are no data here to try a model on")


class Round(NamedTuple):
    """What an algorithm knows of the round it is in."""

    number: int  # 0, 1, 2, ...
    learning_rate: float
    rng: Streams  # random streams of the block's nodes in this round
    total: int = 1  # rounds of the run
    local_steps: int = 1  # of every round
    loss: Callable[[Tensor], Tensor] = _no_loss  # (B, D) -> (B, 1): of these models on the nodes' next minibatches
    layer_sizes: tuple[int, ...] = ()  # parameters of each of the model's tensors, in their order in the flat vector


class Inbox(Protocol):
    """The messages that reached the block's nodes in this round, each node's own included.

    The values of a *running* part are sums: of all that the sender has sent from the first round to this message.
    Who missed some of it is told again, at a cost in bytes that is counted (wire/catching_up.py).

    w_ij is the weight of sender j at receiver i. Sums run over senders in ascending order in every engine, so that
    they are the same to the last bit.
    """

    def sum(self, part: str) -> Tensor:
        """(B, width): sum over j of w_ij * values_j."""

    def coverage(self, part: str) -> Tensor:
        """(B, width), or (B, 1) if everything is sent: sum over j of w_ij * sent_j, the weight that arrived."""

    def own(self, part: str) -> Tensor:
        """(B, width): the values that the node itself sent."""

    def edges(self, part: str) -> Iterator[tuple[int, int, float, Part]]:
        """(row, sender, w_ij, one-row part) of every message, for rules that are not linear in their neighbours."""


def partial_average(own: Tensor, inbox: Inbox, part: str) -> Tensor:
    """Weighted average in which what a neighbour did not send counts as one's own.

    own + sum_j w_ij * sent_j * (values_j - own), for weights that sum to 1 over the senders.
    """
    return own + inbox.sum(part) - inbox.coverage(part) * own


Samples = NDArray[np.int64]  # indices into a data set
State = Any  # a NamedTuple of the algorithm's own, of (B, D) and (B, 1) tensors and of other such states


class Algorithm:
    """A decentralized learning algorithm: a frozen dataclass whose fields are its hyper-parameters.

    All methods are pure: they take a state and return a state. One that is made of others, as in "SGP is push-sum over
    D-PSGD", says so in `composition` and writes nothing else. An algorithm of your own needs no registration; give an
    instance to an `Experiment`.
    """

    steps_plainly: ClassVar[bool] = False  # True: the state's x is the model, a step x - learning_rate * gradient
    tries_models: ClassVar[bool] = False  # True: it asks for `round.loss`, so meets data elsewhere than in gradients

    @property
    def composition(self) -> "Algorithm":
        """What the algorithm is, in terms of others."""
        raise NotImplementedError(f"{type(self).__name__} must define this method, or `composition`")

    @property
    def _is_composed(self) -> bool:
        return type(self).composition is not Algorithm.composition

    @property
    def requires(self) -> frozenset[str]:
        """What must hold, checked before the first round: "symmetric" weights, "column_stochastic" weights, a "static"
        or a "changing" topology, "reliable" delivery, "one_local_step" a round. Usually a plain class attribute."""
        return self.composition.requires if self._is_composed else frozenset()

    @property
    def parts(self) -> Mapping[str, PartSpec]:
        """The parts of its messages, in the order in which they travel. Usually a plain class attribute."""
        return self.composition.parts

    @property
    def pools_data(self) -> bool:
        """Does one node hold all data, in the baseline that is not decentralized? Usually left out."""
        return self.composition.pools_data if self._is_composed else False

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "Algorithm":
        """The same algorithm with what depends on the graph (a `Mixing`) or the model set; ValueError if unfit."""
        return self.composition.prepare(mixing, layer_sizes) if self._is_composed else self

    def init(self, x0: Tensor) -> State:
        """The state of a block whose nodes start at the models x0, (B, D)."""
        return self.composition.init(x0)

    def model(self, state: State) -> Tensor:
        """(B, D): where gradients are taken, and what is evaluated."""
        return self.composition.model(state)

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        """One step of each node on its own data; gradient is (B, D)."""
        return self.composition.local_step(state, gradient, round)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        """What each node shares with its out-neighbours this round."""
        return self.composition.send(state, round)

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        """Take in what the in-neighbours shared."""
        return self.composition.receive(state, inbox, round)

    def weights(self, state: State) -> Tensor | None:
        """(B, ...): the push-sum weights, if it has any; their sum over all nodes is the number of nodes."""
        return self.composition.weights(state) if self._is_composed else None

    @property
    def averages(self) -> bool:
        """Does it have an averaging rate?"""
        own = type(self).averaging_rate is not Algorithm.averaging_rate
        return own or (self._is_composed and self.composition.averages)

    def averaging_rate(self, round: Round) -> float:
        """By how much an exchange moves a node towards the average, x + rate * (sum_j w_ij x_j - x): what `PushSum`
        must do to its weights. An algorithm that does not average in this form has none."""
        return self.composition.averaging_rate(round)


class Compressor(Protocol):
    """What is sent in place of (B, D) numbers: fewer of them, or coarser ones. Receivers see what it returns."""

    @property
    def spec(self) -> PartSpec:
        """How what it returns travels."""

    def __call__(self, x: Tensor, round: Round) -> Part: ...


class Transform(Protocol):
    """A linear, orthonormal map of each row: forward and inverse, both (B, D) -> (B, D)."""

    def forward(self, x: Tensor) -> Tensor: ...
    def inverse(self, x: Tensor) -> Tensor: ...


class Task(Protocol):
    """Model, data, loss and metric. It knows nothing of nodes: rows of models and lists of samples come in."""

    @property
    def metric(self) -> str:
        """What `evaluate` measures beside the loss, such as "accuracy"."""

    @property
    def layer_sizes(self) -> Sequence[int]:
        """The numbers of parameters of the model's tensors, in the order in which they stand in the flat vector."""

    @property
    def num_samples(self) -> int: ...

    @property
    def num_test_samples(self) -> int: ...

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Of every training sample, for partitions by label."""

    @property
    def clients(self) -> NDArray[np.int64] | None:
        """Who every training sample came from, for partitions by client."""

    def initial_model(self, seed: int) -> Tensor:
        """(D,): where every node starts."""

    @property
    def buffers(self) -> Tensor:
        """(K,): what a model carries beside its parameters at the start, such as the running statistics of batch
        normalization. Each node keeps its own, and shares them with nobody. Usually empty."""

    def gradient(
        self, models: Tensor, samples: Samples, seeds: Sequence[int], buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D) of each row's model on its own minibatch of training samples, (B, b).

        Whatever is random in it (dropout, augmentation) is drawn from the row's seed. `buffers`, (B, K), are changed.
        """

    def evaluate(self, model: Tensor, samples: Samples, buffers: Tensor) -> tuple[float, float]:
        """Loss and metric of one model (D,) with its buffers (K,) on these test samples."""
