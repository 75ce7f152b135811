"""An algorithm, and what it knows of the round it is in."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gossamer.core.inbox import Inbox
from gossamer.core.message import Message, PartSpec
from gossamer.core.rng import Streams

State = Any  # a NamedTuple of the algorithm's own, of (B, D) and (B, 1) tensors and of other such states
OnMissing = Literal["keep_own", "lose_mass"]


def _no_data(models: Tensor) -> Tensor:
    raise NotImplementedError("there are no data here to try a model on")


class Round(NamedTuple):
    """What an algorithm knows of the round it is in."""

    number: int  # 0, 1, 2, ...
    learning_rate: float
    rng: Streams  # random streams of the block's nodes in this round
    total: int = 1  # rounds of the run
    local_steps: int = 1  # of every round
    loss: Callable[[Tensor], Tensor] = _no_data  # (B, D) -> (B, 1): of these models on the nodes' next minibatches
    layer_sizes: tuple[int, ...] = ()  # parameters of each of the model's tensors, in their order in the flat vector
    exchange: int = 0  # which exchange of the round this is,
    exchanges: int = 1  # of so many
    settling: bool = False  # is this one of the last rounds, without local steps? Precision is worth its bytes then
    gradient: Callable[[Tensor], Tensor] = _no_data  # (B, D) -> (B, D): of these models on the nodes' minibatches of
    # this round's first local step
    step_loss: Tensor | None = None  # (B, 1): in a local step, of the minibatches whose gradient it takes
    layer_shapes: tuple[tuple[int, ...], ...] = ()  # of the same tensors as layer_sizes


class Algorithm:
    """A decentralized learning algorithm: a frozen dataclass whose fields are its hyper-parameters.

    All methods are pure: they take a state and return a state. Only `parts`, `init`, `send` and `receive` must be
    defined; a state whose model is called x gets plain SGD. The properties declare what engines must know, and are
    usually plain class attributes. An algorithm of your own needs no registration; give an instance to an `Experiment`.
    """

    @property
    def parts(self) -> Mapping[str, PartSpec]:
        """The parts of its messages, in the order in which they travel."""
        raise NotImplementedError(f"{type(self).__name__} must define parts")

    @property
    def requires(self) -> frozenset[str]:
        """What must hold, checked before the first round: "symmetric" weights, "column_stochastic" weights, a "static"
        or a "changing" topology, "reliable" delivery, "one_local_step" and "one_exchange" per round."""
        return frozenset()

    @property
    def on_missing(self) -> OnMissing:
        """What becomes of the weight of a message that does not come. "keep_own": the node's own value gets it, so that
        weights still sum to 1. "lose_mass": nothing gets it, as push-sum needs it."""
        return "keep_own"

    @property
    def final_rounds(self) -> int:
        """At least so many rounds at the end of the run settle, that is, exchange without training."""
        return 0

    @property
    def pools_data(self) -> bool:
        """Does one node hold all data, in the baseline that is not decentralized?"""
        return False

    @property
    def tries_models(self) -> bool:
        """Does it ask for `round.loss`, so that data have an influence beside gradients?"""
        return False

    @property
    def cross_gradients(self) -> bool:
        """Does it answer every neighbour's model with a gradient (`round.gradient`) that is for that one alone? Then a
        round has one exchange over the graph, and one more for each pairing of an edge colouring of its links."""
        return False

    @property
    def robust(self) -> bool:
        """Does it bound what a lying neighbour can do? A peer that was away then trusts no single neighbour, either."""
        return False

    @property
    def asynchronous(self) -> bool:
        """May nodes be in different rounds? Then nobody needs to wait for a slow one (`Experiment.asynchronous`)."""
        return False

    @property
    def averages(self) -> bool:
        """Is an exchange x + averaging_rate * (sum_j w_ij x_j - x), be it of compressed x? `PushSum` can wrap these."""
        return False

    @property
    def takes_plain_sgd_steps(self) -> bool:
        """Are `model` and `local_step` those of this class? Then a trainer may change the state's x in place."""
        return type(self).model is Algorithm.model and type(self).local_step is Algorithm.local_step

    def prepare(self, mixing: Any, layer_sizes: tuple[int, ...]) -> "Algorithm":
        """The same algorithm with what depends on the graph or the model set; ValueError if unfit."""
        return self

    def init(self, x0: Tensor) -> State:
        """The state of a block whose nodes start at the models x0, (B, D)."""
        raise NotImplementedError(f"{type(self).__name__} must define init")

    def model(self, state: State) -> Tensor:
        """(B, D): where gradients are taken, and what is evaluated. Unless defined, the state's x."""
        model: Tensor = state.x
        return model

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        """One step of each node on its own data; gradient is (B, D). Unless defined, plain SGD on the state's x."""
        return state._replace(x=state.x - round.learning_rate * gradient)

    def send(self, state: State, round: Round) -> tuple[Message, State]:
        """What each node shares with its out-neighbours in an exchange."""
        raise NotImplementedError(f"{type(self).__name__} must define send")

    def receive(self, state: State, inbox: Inbox, round: Round) -> State:
        """Take in what the in-neighbours shared."""
        raise NotImplementedError(f"{type(self).__name__} must define receive")

    def fraction(self, round: Round, num_parameters: int) -> Tensor | None:
        """(B, 1): how much of its values each node sends in an exchange, where that is drawn; None: where it is not."""
        return None

    def averaging_rate(self, round: Round) -> float:
        """By how much an exchange of this round moves a node towards the average."""
        return 1.0

    def neighbours_view(self, last: Mapping[str, Tensor], x0: Tensor) -> Tensor | None:
        """(B, D): the model that a neighbour makes of what it was last sent of every entry of each part, (B, width),
        where NaN stands for never, or of the sums of a cumulative part; for audits. x0 is the common start. None: it
        cannot be said. Unless defined, the part x."""
        x = last.get("x")
        return None if x is None or x.shape != x0.shape else torch.where(x.isnan(), x0, x)

    def weights(self, state: State) -> Tensor | None:
        """(B, ...): the push-sum weights, if it has any; their sum over all nodes is the number of nodes."""
        return None
