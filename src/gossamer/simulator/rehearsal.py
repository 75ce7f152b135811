"""A rehearsal: the first rounds of a real simulation, measured, and what they say of all rounds.

Messages depend on training, so a few rounds are really run, with the nodes, data and processes of the run itself: for
two seconds, and then until there are sixteen of them, unless that takes four times as long. Then comes an evaluation,
or a part of one, and then, from there, a few of the rounds that settle.

How many bytes a message has hardly changes in a run, unless the algorithm draws how much it sends. That draw is known
beforehand, for every node and exchange (`Algorithm.fraction`), so that only the bytes per fraction are measured.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gossamer.core import Round, Streams
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.accounting import KINDS
from gossamer.simulator.simulation import Simulation

LEAST_ROUNDS = 2
WANTED_ROUNDS = 16  # after which messages have about the size that they keep
PATIENCE = 4  # times the seconds that were given, for so many
SETTLING_ROUNDS = 4  # that are rehearsed, at most
LONG_SECONDS = 0.2  # of a part of an evaluation, from which the whole is not run
MOST_EXCHANGES = 2000  # that are looked at one by one; of more, as many, evenly spread
Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """A round that was run."""

    round: int
    metrics: dict[str, Any]
    message_bytes: Floats  # (n, 3): header, indices, values of each node's message in the round's last exchange
    seconds: float  # without evaluation


@dataclass(frozen=True)
class Rehearsal:
    """What was measured."""

    training: Sequence[Sample]
    settling: Sequence[Sample]
    evaluation_seconds: float
    start_seconds: float  # to load the data, compile what is not yet, and start the workers
    memory_bytes: int | None  # of all processes together; None where the system does not say


def rehearse(simulation: Simulation, seconds: float, began: float) -> Rehearsal:
    """Run the first rounds for so long; the simulation cannot be used any more. It was made since `began`."""
    experiment = simulation.experiment
    first = _step(simulation)
    start_seconds = time.perf_counter() - began - first.metrics["seconds"]
    training, started = [first], time.perf_counter()
    while simulation.round < experiment.training_rounds:
        taken, number = time.perf_counter() - started, len(training)
        if number >= LEAST_ROUNDS and taken > (seconds if number >= WANTED_ROUNDS else PATIENCE * seconds):
            break
        training.append(_step(simulation))
    evaluation = _seconds_of_evaluation(simulation)
    simulation.round = max(simulation.round, experiment.training_rounds)  # a round needs nothing of those left out
    last, settling = min(experiment.rounds, simulation.round + SETTLING_ROUNDS), []
    while simulation.round < last:
        settling.append(_step(simulation))
    saving = sum(tensor.nbytes for tensor in simulation.save().values())  # a checkpoint is put together in memory
    training, settling = ([_without(evaluation, sample) for sample in samples] for samples in (training, settling))
    resident = resident_bytes()
    return Rehearsal(training, settling, evaluation, start_seconds, resident + saving if resident else None)


def _step(simulation: Simulation) -> Sample:
    round, metrics = simulation.round, simulation.step()
    return Sample(round, metrics, simulation.message_bytes().astype(np.float64), metrics["seconds"])


def _without(evaluation_seconds: float, sample: Sample) -> Sample:
    evaluated = "test_loss" in sample.metrics
    return sample._replace(seconds=max(0.0, sample.seconds - evaluation_seconds)) if evaluated else sample


def _seconds_of_evaluation(simulation: Simulation) -> float:
    """Found from a part of it, unless it is short."""
    taken = 0.0
    for most in (1, None):
        started = time.perf_counter()
        share = simulation.evaluate_some(most)
        taken = time.perf_counter() - started
        if taken > LONG_SECONDS:
            return taken / share
    return taken


def last_third(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those that are most like the rest of the run."""
    return samples[2 * len(samples) // 3 :]


def num_bytes(
    experiment: Experiment, num_parameters: int, samples: Sequence[Sample], rounds: range
) -> dict[str, float]:
    """By kind, of these rounds, if messages are as in the samples."""
    if not samples or not rounds:
        return {}
    model = _Sizes(experiment, num_parameters, samples)
    exchanges = range(rounds.start * experiment.exchanges, rounds.stop * experiment.exchanges)
    step = -(-len(exchanges) // MOST_EXCHANGES)
    told = model.of(exchanges[::step]) * (len(exchanges) / len(exchanges[::step]))
    rehearsed = [s.round * experiment.exchanges + i for s in samples for i in range(experiment.exchanges)]
    known = model.of(rehearsed)
    counted = np.array([sum(s.metrics[f"bytes_{kind}"] for s in samples) for kind in KINDS])
    found = dict(zip(KINDS, (told * counted / np.maximum(known, 1)).tolist(), strict=True))
    resent = [s.metrics["bytes_resync"] for s in samples if "bytes_resync" in s.metrics]
    return found | ({"resync": float(np.mean(resent)) * len(rounds)} if resent else {})


class _Sizes:
    """The bytes of messages by the fraction that their senders draw."""

    def __init__(self, experiment: Experiment, num_parameters: int, samples: Sequence[Sample]):
        self._experiment, self._num_parameters, self._delivery = experiment, num_parameters, experiment.delivery
        last = experiment.exchanges - 1
        drawn = [self._fractions(sample.round * experiment.exchanges + last) for sample in samples]
        fractions, sizes = np.concatenate(drawn), np.concatenate([sample.message_bytes for sample in samples])
        self._known, which = np.unique(fractions, return_inverse=True)
        counts = np.bincount(which)
        self._sizes = np.stack([np.bincount(which, column) / counts for column in sizes.T])  # (3, fractions)
        self._copies: dict[int, Floats] = {}

    def of(self, exchanges: Sequence[int]) -> Floats:
        """(3,): the bytes of these exchanges, over all links."""
        total = np.zeros(3)
        for exchange in exchanges:
            fractions = self._fractions(exchange)
            sizes = np.stack([np.interp(fractions, self._known, column) for column in self._sizes])
            total += sizes @ self._num_copies(exchange)
        return total

    def _fractions(self, exchange: int) -> Floats:
        """(n,): of its values, what each node sends; 1 where that is not drawn."""
        experiment = self._experiment
        round, index = divmod(exchange, experiment.exchanges)
        streams = Streams(experiment.seed, range(experiment.nodes), exchange)
        settling = round >= experiment.training_rounds
        now = Round(round, 0.0, streams, experiment.rounds, exchange=index, settling=settling)
        drawn = experiment.algorithm.fraction(now, self._num_parameters)
        return np.ones(experiment.nodes) if drawn is None else drawn[:, 0].double().numpy()

    def _num_copies(self, exchange: int) -> Floats:
        """(n,): to how many others each node sends."""
        period = self._experiment.topology.period(self._experiment.nodes, self._experiment.seed)
        key = exchange % period if period and self._delivery.complete else exchange
        if key not in self._copies:
            sent = self._delivery.sent(key)
            self._copies[key] = np.bincount(sent.senders, minlength=self._experiment.nodes).astype(np.float64)
        return self._copies[key]


def resident_bytes(pid: int | None = None) -> int:
    """Of this process, or another, and those that it started, pages that they share counted once; 0 where the system
    does not say, that is, elsewhere than on Linux."""
    return sum(map(_proportional, _tree(pid or os.getpid())))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _proportional(pid: int) -> int:
    """Bytes of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
