"""A plan: what a run would take, before it runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gossamer.core import Task
from gossamer.core.state import tensors_of
from gossamer.data import Supervised
from gossamer.experiments.experiment import Experiment, ExperimentError, named
from gossamer.graphs.facts import GraphFacts, facts
from gossamer.models.norms import RangeBatchNorm
from gossamer.simulator.allocator import free_bytes
from gossamer.simulator.prepared import PreparedExperiment
from gossamer.simulator.rehearsal import Rehearsal, Sample, last_third, num_bytes, rehearse
from gossamer.simulator.simulation import Simulation

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, RangeBatchNorm)
SKEWED = 0.3  # mean distance of a node's labels from all labels (total variation) from which batch norm suffers
FAR = 2.0  # times the rule's averaging rate
LONG_HOURS = 24.0
CROWDED = 0.8  # of the memory that is free


@dataclass(frozen=True)
class Plan:
    """What a run would take on this machine now. Bytes are over all links of the whole run."""

    name: str
    algorithm: str
    task: str
    topology: str
    partition: str
    nodes: int
    rounds: int
    settle: int  # of the rounds
    parameters: int
    averaging_rate: float
    strategy: str  # how gradients are computed
    bytes_total: int
    bytes_values: int
    bytes_metadata: int  # frames, tags and indices
    bytes_resync: int  # to nodes that have missed messages
    bytes_per_round: int  # of those with training, on average
    memory_bytes: int | None  # of all processes together; None elsewhere than on Linux
    seconds: float  # of the rounds and evaluations
    seconds_training: float  # with their exchanges
    seconds_settling: float
    seconds_evaluation: float
    seconds_start: float  # before the first round
    rounds_rehearsed: int
    graph: GraphFacts
    labels: list[list[int]] | None  # of each node, samples by label
    clock_seconds: float | None  # with [clock]: virtual time of the run
    energy_joules_mean: float | None  # per node
    battery_share_mean: float | None
    warnings: list[str]


def plan(experiment: Experiment, workers: int | None = None, seconds: float = 2.0) -> Plan:
    """What an experiment would take: a few of its rounds are run, for about so many seconds or up to four
    times as long, and nothing is kept."""
    if not isinstance(experiment, Experiment):
        raise ExperimentError(f"plan takes an Experiment, {experiment!r} was given; recipes are in gs.recipes")
    experiment = experiment.with_digests()
    began = time.perf_counter()
    prepared = PreparedExperiment.of(experiment)
    _check_memory(prepared)
    with Simulation(experiment, workers, task=prepared.task) as simulation:
        graph = facts(simulation.experiment.topology, simulation.experiment.nodes, experiment.seed)
        rehearsal = rehearse(simulation, seconds, began)
        return _plan(experiment, simulation, rehearsal, graph)


def _plan(given: Experiment, simulation: Simulation, rehearsal: Rehearsal, graph: GraphFacts) -> Plan:
    experiment, task = simulation.experiment, simulation.task
    training, settling = last_third(rehearsal.training), rehearsal.settling
    trained, num_parameters = experiment.training_rounds, sum(task.layer_sizes)
    by_kind: dict[str, float] = {}
    phases = (training, range(trained)), (settling, range(trained, experiment.rounds))
    totals = [num_bytes(experiment, num_parameters, samples, rounds) for samples, rounds in phases]
    for of_phase in totals:
        for kind, size in of_phase.items():
            by_kind[kind] = by_kind.get(kind, 0.0) + size
    of_training = _typical(training) * trained
    of_settling = _typical(settling) * (experiment.rounds - trained)
    of_tests = rehearsal.evaluation_seconds * sum(map(experiment.evaluates_after, range(1, experiment.rounds + 1)))
    labels = _labels(task, simulation.shards, experiment.nodes)
    counts = trained, experiment.rounds - trained
    clock = {key: _extrapolated(key, rehearsal, *counts) for key in CLOCK_KEYS} if experiment.clock.on else {}
    found = Plan(
        name=given.name,
        algorithm=named(given.algorithm),
        task=named(given.task),
        topology=named(given.topology),
        partition=named(given.partition),
        nodes=experiment.nodes,
        rounds=experiment.rounds,
        settle=experiment.rounds - trained,
        parameters=num_parameters,
        averaging_rate=experiment.averaging_rate(0),
        strategy=rehearsal.training[0].metrics["strategy"],
        bytes_total=round(sum(by_kind.values())),
        bytes_values=round(by_kind["values"]),
        bytes_metadata=round(by_kind["header"] + by_kind["indices"]),
        bytes_resync=round(by_kind.get("resync", 0.0)),
        bytes_per_round=round(sum(totals[0].values()) / trained),
        memory_bytes=rehearsal.memory_bytes,
        seconds=of_training + of_settling + of_tests,
        seconds_training=of_training,
        seconds_settling=of_settling,
        seconds_evaluation=of_tests,
        seconds_start=rehearsal.start_seconds,
        rounds_rehearsed=len(rehearsal.training) + len(rehearsal.settling),
        graph=graph,
        labels=None if labels is None else labels.tolist(),
        clock_seconds=clock.get("clock_seconds"),
        energy_joules_mean=clock.get("energy_joules_mean"),
        battery_share_mean=clock.get("battery_share_mean"),
        warnings=[],
    )
    return replace(found, warnings=list(_warnings(given, experiment, task, labels, found)))


CLOCK_KEYS = ("clock_seconds", "energy_joules_mean", "battery_share_mean")


def _typical(samples: Sequence[Sample]) -> float:
    """Seconds of a round."""
    return float(np.median([sample.seconds for sample in samples])) if samples else 0.0


def _extrapolated(key: str, rehearsal: Rehearsal, trained: int, settled: int) -> float:
    """What a figure that adds up over the rounds comes to: the last third of the training rounds tells what one adds,
    and the settling rounds that follow them what each of those does."""
    training, settling = ([s.metrics[key] for s in of] for of in (rehearsal.training, rehearsal.settling))
    counted = max(len(last_third(training)), min(4, len(training)))  # what is sent may be drawn, so not too few
    before = training[-counted - 1] if len(training) > counted else 0.0
    total = (training[-1] - before) / counted * trained
    return float(total + ((settling[-1] - training[-1]) / len(settling) * settled if settling else 0.0))


def _labels(task: Task, shards: Sequence[NDArray[np.int64]], nodes: int) -> NDArray[np.int64] | None:
    """(n, labels): how many samples of each label a node has; None if there are no labels, or too many to show."""
    if task.labels is None or len(task.labels) == 0 or task.labels.min() < 0 or task.labels.max() >= 1000:
        return None
    number = int(task.labels.max()) + 1
    return np.stack([np.bincount(task.labels[shards[node]], minlength=number) for node in range(nodes)])


def _warnings(
    given: Experiment, experiment: Experiment, task: Task, labels: NDArray[np.int64] | None, found: Plan
) -> Iterator[str]:
    if not found.graph.strongly_connected:
        yield "the graph is not connected: some nodes never hear of each other; take another topology"
    norms = isinstance(task, Supervised) and any(isinstance(layer, BATCH_NORMS) for layer in task.module.modules())
    skew = 0.0 if labels is None else _skew(labels)
    if norms and skew > SKEWED:
        yield (
            f"batch normalization with labels that differ from node to node (by {skew:.0%} on average): "
            'the statistics of one node do not fit the models of others; take a model with norm = "group"'
        )
    rule = _rule(given, task)
    if rule is not None and not rule / FAR <= found.averaging_rate <= rule * FAR:
        yield (
            f"the averaging rate is {found.averaging_rate:.3g} and the rule says {rule:.3g}; "
            'take rate = "auto", unless you have tuned it'
        )
    if found.seconds_evaluation > found.seconds_training:
        times = found.seconds_evaluation / max(found.seconds_training, 1e-9)
        yield (
            f"testing takes {times:.1f} times as long as training; "
            'set evaluation.samples and nodes to "auto", or a larger evaluation.every'
        )
    free = free_bytes()
    needed = found.memory_bytes or 0
    if free is not None and needed > CROWDED * (free + needed):
        yield f"it takes {needed / 1e9:.1f} GB of memory, most of what is free; take --scratch or fewer nodes"
    if found.clock_seconds is not None and found.clock_seconds > LONG_HOURS * 3600:
        yield (
            f"on this network the run takes {found.clock_seconds / 3600:,.0f} hours; "
            "take an algorithm that sends less, such as lace, or fewer rounds"
        )
    if found.battery_share_mean is not None and found.battery_share_mean > 1:
        yield f"a node needs {found.battery_share_mean:.1f} times its battery of {experiment.clock.battery_wh:g} Wh"


def _skew(labels: NDArray[np.int64]) -> float:
    """The mean distance in total variation of the nodes' labels from all labels."""
    shares = labels / np.maximum(labels.sum(1, keepdims=True), 1)
    return float(np.abs(shares - labels.sum(0) / labels.sum()).sum(1).mean() / 2)


def _rule(given: Experiment, task: Task) -> float | None:
    """The averaging rate that "auto" would take, if the experiment has another than its algorithm's default."""
    algorithm = given.algorithm
    known: dict[str, object] = {f.name: f.default for f in fields(algorithm)} if is_dataclass(algorithm) else {}
    rate = getattr(algorithm, "rate", None)
    if "rate" not in known or isinstance(rate, str) or rate == known["rate"]:
        return None
    by_rule = replace(given, algorithm=replace(algorithm, rate="auto"))  # type: ignore[type-var]
    return by_rule.prepared(task).averaging_rate(0)


def _check_memory(prepared: PreparedExperiment) -> None:
    """ExperimentError if the nodes' states alone do not fit into what is free; before they are allocated."""
    free = free_bytes()
    if free is None:
        return
    experiment, task = prepared.experiment, prepared.task
    algorithm = experiment.optimizer.wrap(experiment.algorithm)
    state = algorithm.init(task.initial_model(experiment.seed)[None].clone())
    of_state = sum(tensor.nbytes for _, tensor in tensors_of(state))
    width = sum(task.layer_sizes)
    of_parts = sum(4 * (width if spec.width is None else spec.width) for spec in algorithm.parts.values())
    needed = experiment.nodes * (of_state + of_parts * experiment.delivery.kept)
    if needed > free:
        raise ExperimentError(
            f"the models and states of {experiment.nodes} nodes take {needed / 1e9:.1f} GB, "
            f"and {free / 1e9:.1f} GB are free; take fewer nodes or a smaller model, or run it with --scratch"
        )
