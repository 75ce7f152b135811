"""An algorithm, and what it knows of the round it is in."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from gossamer.core.inbox import Inbox
from gossamer.core.message import Message, PartSpec
from gossamer.core.rng import Streams

State = Any  # a NamedTuple of the algorithm's own, of (B, D) and (B, 1) tensors and of other such states


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


class Algorithm:
    """A decentralized learning algorithm: a frozen dataclass whose fields are its hyper-parameters.

    All methods are pure: they take a state and return a state. One that is made of others, as in "SGP is push-sum over
    D-PSGD", says so in `composition` and writes nothing else. An algorithm of your own needs no registration; give an
    instance to an `Experiment`.
    """

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
        """The same algorithm with what depends on the graph or the model set; ValueError if unfit."""
        return self.composition.prepare(mixing, layer_sizes) if self._is_composed else self

    def init(self, x0: Tensor) -> State:
        """The state of a block whose nodes start at the models x0, (B, D)."""
        return self.composition.init(x0)

    def model(self, state: State) -> Tensor:
        """(B, D): where gradients are taken, and what is evaluated. Unless defined, the state's x."""
        model: Tensor = self.composition.model(state) if self._is_composed else state.x
        return model

    def local_step(self, state: State, gradient: Tensor, round: Round) -> State:
        """One step of each node on its own data; gradient is (B, D). Unless defined, plain SGD on the state's x."""
        if self._is_composed:
            return self.composition.local_step(state, gradient, round)
        return state._replace(x=state.x - round.learning_rate * gradient)

    @property
    def takes_plain_sgd_steps(self) -> bool:
        """Are `model` and `local_step` those of this class? Then a trainer may change the state's x in place."""
        own = type(self).model is not Algorithm.model or type(self).local_step is not Algorithm.local_step
        return not (own or self._is_composed)

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
