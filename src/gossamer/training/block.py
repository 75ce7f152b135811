"""A block: the nodes that one process hosts, with their data and state. It does no input or output."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from gossamer.core import Algorithm, Inbox, Message, Round, Samples, State
from gossamer.core.rng import Streams, words
from gossamer.core.state import map_tensors, tensors_of
from gossamer.training.minibatches import Minibatches
from gossamer.training.optimizer import LocalOptimizer
from gossamer.training.privacy import Noise, Privacy, seeded
from gossamer.training.trainer import Trainer


class NodeError(Exception):
    """Something went wrong in a node's own computation; the message names round, node and stage."""


class Settings(Protocol):
    """What a block reads of an experiment."""

    @property
    def seed(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def training_rounds(self) -> int: ...
    @property
    def local_steps(self) -> int: ...
    @property
    def exchanges(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def algorithm(self) -> Algorithm: ...
    @property
    def optimizer(self) -> LocalOptimizer: ...
    @property
    def privacy(self) -> Privacy: ...


class Block:
    """The hosted nodes. In every round an engine calls `train`, and for each exchange `send` and `receive`."""

    def __init__(
        self,
        settings: Settings,
        trainer: Trainer,
        nodes: Sequence[int],
        shards: Sequence[Samples],
        x0: Tensor,
        noise: Noise = seeded,
        in_place: bool = False,
    ):
        """The nodes with these numbers, ascending; shards and x0 are theirs, one per node. `noise` is for privacy.

        With `in_place` steps may change the model where it lies. The engine then promises that nothing else refers to
        that memory: it moves every tensor of the state to a place of its own after `train`, `send` and `receive`.
        """
        self.settings = settings
        self.trainer = trainer
        self.nodes = nodes
        self._noise, self._in_place = noise, in_place
        self.algorithm = settings.optimizer.wrap(settings.algorithm)
        self.state: State = self.algorithm.init(x0.clone())
        self.buffers = trainer.task.buffers.repeat(len(nodes), 1)
        self._batches = Minibatches(shards, settings.batch_size, settings.seed, nodes)

    def train(self, round: int, up: Tensor | None = None) -> Tensor:
        """Take the local steps of a round; the mean loss of each node over them, (B,). Rounds that settle have none.

        `up`, (B, 1) bool, tells which nodes take part; the state of the others stays as it is.
        """
        if round >= self.settings.training_rounds:
            return torch.zeros(len(self.nodes))
        before, buffers = self.state, self.buffers.clone()
        with self._on(self.trainer.device), self.trainer.task.reading_ahead(self._upcoming(round)):
            losses = self._take_steps(self._round(round * self.settings.exchanges), up)
        self._hold(before, up)
        if up is not None:
            self.buffers[:] = torch.where(up, self.buffers, buffers)
        return losses

    @contextmanager
    def _on(self, device: str) -> Iterator[None]:
        """Have the state where steps are computed, and back where messages are made; if that is the CPU, it stays."""
        here = self.buffers
        self.state, self.buffers = map_tensors(self.state, lambda _, tensor: tensor.to(device)), here.to(device)
        yield
        self.state = map_tensors(self.state, lambda _, tensor: tensor.cpu())
        if self.buffers is not here:
            here.copy_(self.buffers.cpu())
            self.buffers = here

    def send(self, exchange: int, up: Tensor | None = None) -> Message:
        """The message of each node in an exchange, counted over the run."""
        before = self.state
        message, self.state = self.algorithm.send(self.state, self._round(exchange))
        self._check_parts(message)
        self._hold(before, up)
        return message

    def _take_steps(self, round: Round, up: Tensor | None) -> Tensor:
        if self.settings.privacy.on:
            return self._take_private_steps(round, up)
        if self.algorithm.takes_plain_sgd_steps and self.settings.optimizer.takes_gradients_as_they_are:
            return self._take_plain_steps(round, up)

        def step(now: Round, index: int) -> Tensor:
            losses, gradient = self._gradient(self.models(), now.number, index)
            self.state = self.algorithm.local_step(self.state, gradient, now._replace(step_loss=losses[:, None]))
            return losses

        return self._repeat(step, round, up)

    def _take_plain_steps(self, round: Round, up: Tensor | None) -> Tensor:
        """Steps of plain SGD, which a trainer takes in place: that saves a pass through all gradients and, with
        minibatches that touch few parameters, nearly everything."""
        stays = self._in_place and (up is None or bool(up.all()))
        x = self.state.x if stays else self.state.x.clone()

        def step(now: Round, index: int) -> Tensor:
            data = self._minibatches(now.number, index), self._seeds(now.number, index)
            return self.trainer.sgd_step_(x, *data, self.buffers, now.learning_rate)

        losses = self._repeat(step, round, up)
        self.state = self.state._replace(x=x)
        return losses

    def _take_private_steps(self, round: Round, up: Tensor | None) -> Tensor:
        """Steps on a copy of the model, of whose change the algorithm sees what privacy.py allows, as one gradient."""
        start = self.models()
        model = start.clone()

        def step(now: Round, index: int) -> Tensor:
            losses, gradient = self._gradient(model, now.number, index)
            model.sub_(now.learning_rate * gradient)
            return losses

        losses = self._repeat(step, round, up)
        noise = self._noise(round, model.shape[-1])
        change = self.settings.privacy.protect((model - start).cpu(), noise).to(model.device)
        rate = round.learning_rate
        self.state = self.algorithm.local_step(self.state, -change / rate if rate else torch.zeros_like(change), round)
        return losses

    def _gradient(self, models: Tensor, number: int, step: int) -> tuple[Tensor, Tensor]:
        """Losses (B,) and gradients (B, D) of a local step of a round: means over its minibatches, and clipped."""
        optimizer = self.settings.optimizer

        def of_minibatch(index: int) -> tuple[Tensor, Tensor]:
            samples, seeds = self._minibatches(number, index), self._seeds(number, index)
            return self.trainer.gradient(models, samples, seeds, self.buffers)

        losses, gradient = of_minibatch(step * optimizer.accumulate)
        for more in range(1, optimizer.accumulate):
            another = of_minibatch(step * optimizer.accumulate + more)
            losses, gradient = losses + another[0], gradient + another[1]
        if optimizer.accumulate > 1:
            losses, gradient = losses / optimizer.accumulate, gradient / optimizer.accumulate
        return losses, optimizer.clipped(gradient)

    def _repeat(self, take: Callable[[Round, int], Tensor], round: Round, up: Tensor | None) -> Tensor:
        """The local steps of a round, each with a learning rate of its own; their mean losses, (B,)."""
        losses, number = torch.zeros(len(self.nodes)), round.number
        rates = self.settings.optimizer.learning_rates(number, self.settings.rounds, self.settings.local_steps)
        for step, rate in enumerate(rates):
            try:
                loss = take(round._replace(learning_rate=rate), step).cpu()
            except Exception as error:
                error.add_note(
                    f"in round {number + 1}, local step {step + 1}, of nodes {self.nodes[0]} to {self.nodes[-1]}"
                )
                raise
            self._check_finite(loss, number, up)
            losses += loss / self.settings.local_steps
        return losses

    def receive(self, exchange: int, inbox: Inbox, up: Tensor | None = None) -> None:
        """Take in the messages of an exchange."""
        before = self.state
        self.state = self.algorithm.receive(self.state, inbox, self._round(exchange))
        self._hold(before, up)

    def _hold(self, before: State, up: Tensor | None) -> None:
        if up is not None and not up.all():
            old = dict(tensors_of(before))
            self.state = map_tensors(self.state, lambda name, new: torch.where(up, new, old[name]))

    def models(self) -> Tensor:
        """(B, D)."""
        return self.algorithm.model(self.state)

    def _round(self, exchange: int) -> Round:
        """What the algorithm knows in an exchange, and in the local steps before the first of a round."""
        settings = self.settings
        number, index = divmod(exchange, settings.exchanges)

        def on_data(models: Tensor, number: int) -> tuple[Tensor, Tensor]:
            """Losses (B, 1) and gradients (B, D) on a round's first minibatches; running statistics are left alone."""
            samples, seeds, device = self._minibatches(number, 0), self._seeds(number, 0), self.trainer.device
            buffers = self.buffers.to(device, copy=True)
            losses, gradients = self.trainer.gradient(models.to(device), samples, seeds, buffers)
            return losses[:, None], gradients

        def loss(models: Tensor) -> Tensor:
            return on_data(models, number + 1)[0].to(models.device)

        def gradient(models: Tensor) -> Tensor:
            return on_data(models, number)[1].to(models.device)

        now = Round(
            number,
            settings.optimizer.learning_rate_at(number, settings.rounds, settings.local_steps),
            Streams(settings.seed, self.nodes, exchange),
            settings.rounds,
            settings.local_steps,
            layer_sizes=tuple(self.trainer.task.layer_sizes),
            layer_shapes=tuple(self.trainer.task.layer_shapes),
            exchange=index,
            exchanges=settings.exchanges,
            settling=number >= settings.training_rounds,
        )
        return now if settings.privacy.on else now._replace(loss=loss, gradient=gradient)

    def _minibatches(self, number: int, step: int) -> Samples:
        """(B, b): the nodes' samples in a minibatch of a round, of which a local step may take several."""
        return self._batches.at(number * self.settings.local_steps * self.settings.optimizer.accumulate + step)

    def _upcoming(self, number: int) -> Iterator[Samples]:
        """The minibatches of a round, (b,), in the order in which its local steps take them."""
        for index in range(self.settings.local_steps * self.settings.optimizer.accumulate):
            yield from self._minibatches(number, index)

    def _seeds(self, number: int, step: int) -> list[int]:
        """The nodes' seeds for whatever is random in a minibatch of a round."""
        seeds: list[int] = (words(self.settings.seed, "step", self.nodes, [number], 1, step)[:, 0] >> 1).tolist()
        return seeds

    def _check_parts(self, message: Message) -> None:
        for name, spec in self.algorithm.parts.items():
            if name not in message:
                raise NodeError(f"send returned no part {name!r}, which parts declares")
            if (spec.sparse or spec.seeded or spec.same_indices_as) and message[name].sent is None:
                kind = "seeded" if spec.seeded else "sparse"
                raise NodeError(
                    f"part {name!r} is {kind}, and its Part has no `sent`; make it with gs.sparse_part(values, sent)"
                )

    def _check_finite(self, losses: Tensor, number: int, up: Tensor | None) -> None:
        wrong = ~losses.isfinite() if up is None else ~losses.isfinite() & up[:, 0]
        for row in wrong.nonzero()[:1, 0].tolist():
            raise NodeError(
                f"the training loss of node {self.nodes[row]} became {losses[row].item()} in round {number + 1}; "
                "a smaller optimizer.learning_rate would help"
            )
