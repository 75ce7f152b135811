"""The nouns. Read this file first; everything else is an instance of it.

Gossamer trains one model on many nodes that only ever talk to their neighbours. An algorithm is written once, over
the *block* of B nodes that the running process hosts: every tensor is (B, D) or (B, 1), one row per node, D parameters.
In a simulation with one worker B is the number of nodes, with several workers a share of it, on a real device 1. The
code of the algorithm is the same and cannot tell which.

**The rule of rows.** Rows never meet in algorithm code: reduce over the last axis, never over the node axis. Nodes
meet in one place, the `Inbox`, which gives weighted sums over the messages of a node's in-neighbours. From this rule
alone it follows that worker processes of the simulator and real peers have bit-identical models.

A round, for every node at once, with one exchange (there may be several, each with an inbox of its own):

    for each local step:  state = algorithm.local_step(state, gradient at algorithm.model(state), round)
    message, state = algorithm.send(state, round)          # what every out-neighbour will see
    state = algorithm.receive(state, inbox, round)         # the messages of this round, own included

A complete algorithm, decentralized SGD with full sharing; local steps are plain SGD, unless it defines others:

    class State(NamedTuple):
        x: Tensor  # model (B, D)

    @dataclass(frozen=True)
    class Gossip(Algorithm):
        requires = frozenset({"symmetric"})
        parts = {"x": PartSpec()}

        def init(self, x0):
            return State(x0)

        def send(self, state, round):
            return {"x": Part(state.x)}, state

        def receive(self, state, inbox, round):
            return State(inbox.sum("x"))

Elsewhere: a *topology* says who sends to whom and with what weight, *delivery* what arrives (graphs/); a *partition*
says which node holds which samples, a *task* is model, data, loss and metric (data/); an *endpoint* turns messages into
bytes and back without loss (wire/); simulator and peers carry them (simulator/, peers/); and an *experiment* is one
typed value that names all of these (experiments/).
"""

from gossamer.core.algorithm import Algorithm, OnMissing, Round, State
from gossamer.core.inbox import Inbox, partial_average
from gossamer.core.message import Message, Part, PartSpec, Quantized, row_of, sparse_part, stack, where
from gossamer.core.rng import Streams
from gossamer.core.task import Samples, Task

__all__ = [
    "Algorithm",
    "Inbox",
    "Message",
    "OnMissing",
    "Part",
    "PartSpec",
    "Quantized",
    "Round",
    "Samples",
    "State",
    "Streams",
    "Task",
    "partial_average",
    "row_of",
    "sparse_part",
    "stack",
    "where",
]
