"""A block: the nodes that one process hosts, with their data and state. It does no input or output."""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from gossamer.core import Inbox, Message, Round, Samples, State, Task
from gossamer.core.rng import Streams, words
from gossamer.core.state import map_tensors, tensors_of
from gossamer.data import Supervised
from gossamer.experiments.experiment import Experiment
from gossamer.training.minibatches import Batches
from gossamer.training.privacy import Noise, seeded


class NodeError(Exception):
    """Something went wrong in a node's own computation; the message names round, node and stage."""


class Block:
    """The hosted nodes. An engine calls `outgoing`, carries the messages, and calls `incoming`."""

    def __init__(
        self,
        experiment: Experiment,
        task: Task,
        nodes: Sequence[int],
        shards: Sequence[Samples],
        x0: Tensor,
        noise: Noise = seeded,
    ):
        """The nodes with these numbers, ascending; shards and x0 are theirs, one a node. `noise` is for privacy."""
        self.experiment = experiment
        self.task = task
        self.nodes = nodes
        self._noise = noise
        self.algorithm = experiment.optimizer.wrap(experiment.algorithm)
        self.state: State = self.algorithm.init(x0.clone())  # steps may be taken in place
        self.before_send = x0
        self.buffers = task.buffers.repeat(len(nodes), 1)
        self._batches = Batches(shards, experiment.batch_size, experiment.seed, nodes)

    def outgoing(self, number: int, up: Tensor | None = None) -> tuple[Message, Tensor]:
        """Take the local steps of a round; the message of each node, and its mean loss over the steps, (B,).

        `up`, (B, 1) bool, tells which nodes take part; the state of the others stays as it is.
        """
        round, before, buffers = self._round(number), self.state, self.buffers.clone()
        losses = self._take_private_steps(round, up) if self.experiment.privacy.on else self._take_steps(round, up)
        self.before_send = self.algorithm.model(self.state)  # what full sharing would send
        message, self.state = self.algorithm.send(self.state, round)
        self._hold(before, up)
        if up is not None:
            self.buffers[:] = torch.where(up, self.buffers, buffers)
        return message, losses

    def _take_steps(self, round: Round, up: Tensor | None) -> Tensor:
        if self._descends:
            self.state = self._with_model_of_its_own(up)
        return self._repeat(lambda step: self._step(step, round), round.number, up)

    def _take_private_steps(self, round: Round, up: Tensor | None) -> Tensor:
        """Steps on a copy of the model, of whose change the algorithm sees what privacy.py allows, as one gradient."""
        start = self.models()
        model = start.clone()

        def step(number: int) -> Tensor:
            samples, seeds = self._minibatches(round.number, number), self._seeds(round.number, number)
            losses, gradient = self.task.gradient(model, samples, seeds, self.buffers)
            model.sub_(round.learning_rate * gradient)
            return losses

        losses = self._repeat(step, round.number, up)
        change = self.experiment.privacy.protect(model - start, self._noise(round, model.shape[-1]))
        rate = round.learning_rate
        self.state = self.algorithm.local_step(self.state, -change / rate if rate else torch.zeros_like(change), round)
        return losses

    def _repeat(self, take: Callable[[int], Tensor], number: int, up: Tensor | None) -> Tensor:
        """The local steps of a round; their mean losses, (B,)."""
        losses = torch.zeros(len(self.nodes))
        for step in range(self.experiment.local_steps):
            try:
                loss = take(step)
            except Exception as error:
                error.add_note(
                    f"in round {number + 1}, local step {step + 1}, of nodes {self.nodes[0]} to {self.nodes[-1]}"
                )
                raise
            self._check_finite(loss, number, up)
            losses += loss / self.experiment.local_steps
        return losses

    def _step(self, step: int, round: Round) -> Tensor:
        """One local step; the losses (B,)."""
        samples, seeds = self._minibatches(round.number, step), self._seeds(round.number, step)
        if self._descends:
            assert isinstance(self.task, Supervised)
            return self.task.descend(self.state.x, samples, seeds, round.learning_rate)
        losses, gradient = self.task.gradient(self.models(), samples, seeds, self.buffers)
        self.state = self.algorithm.local_step(self.state, gradient, round)
        return losses

    @cached_property
    def _descends(self) -> bool:
        """Are steps taken in place? That saves a pass through all gradients; with a minibatch that touches few
        parameters, nearly everything."""
        plainly = self.algorithm.takes_plain_sgd_steps
        return plainly and isinstance(self.task, Supervised) and self.task.descends

    def _with_model_of_its_own(self, up: Tensor | None) -> State:
        """The state with an x that may be changed in place, because nothing else refers to it."""
        x = self.state.x
        places = [tensor.data_ptr() for _, tensor in tensors_of(self.state)]
        only_here = places.count(x.data_ptr()) == 1 and (up is None or bool(up.all()))
        return self.state if only_here else self.state._replace(x=x.clone())

    def incoming(self, number: int, inbox: Inbox, up: Tensor | None = None) -> None:
        """Take in the round's messages."""
        before = self.state
        self.state = self.algorithm.receive(self.state, inbox, self._round(number))
        self._hold(before, up)

    def _hold(self, before: State, up: Tensor | None) -> None:
        if up is not None and not up.all():
            old = dict(tensors_of(before))
            self.state = map_tensors(self.state, lambda name, new: torch.where(up, new, old[name]))

    def models(self) -> Tensor:
        """(B, D)."""
        return self.algorithm.model(self.state)

    def _round(self, number: int) -> Round:
        learning_rate = self.experiment.optimizer.learning_rate_at(number, self.experiment.rounds)
        rng = Streams(self.experiment.seed, self.nodes, number)

        def loss(models: Tensor) -> Tensor:
            samples, seeds = self._minibatches(number + 1, 0), self._seeds(number + 1, 0)
            return self.task.gradient(models, samples, seeds, self.buffers.clone())[0][:, None]

        rounds, local_steps = self.experiment.rounds, self.experiment.local_steps
        now = Round(number, learning_rate, rng, rounds, local_steps, layer_sizes=tuple(self.task.layer_sizes))
        return now if self.experiment.privacy.on else now._replace(loss=loss)

    def _minibatches(self, number: int, step: int) -> Samples:
        """(B, b): the nodes' samples in a local step of a round."""
        return self._batches.at(number * self.experiment.local_steps + step)

    def _seeds(self, number: int, step: int) -> list[int]:
        """The nodes' seeds for whatever is random in a local step of a round."""
        seeds: list[int] = (words(self.experiment.seed, "step", self.nodes, [number], 1, step)[:, 0] >> 1).tolist()
        return seeds

    def _check_finite(self, losses: Tensor, number: int, up: Tensor | None) -> None:
        wrong = ~losses.isfinite() if up is None else ~losses.isfinite() & up[:, 0]
        for row in wrong.nonzero()[:1, 0].tolist():
            raise NodeError(
                f"the training loss of node {self.nodes[row]} became {losses[row].item()} in round {number + 1}; "
                "a smaller optimizer.learning_rate would help"
            )
