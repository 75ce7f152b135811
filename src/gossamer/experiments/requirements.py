"""What must hold for an experiment to be run, checked before the first round. Every refusal names what would work."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, get_args

import torch

from gossamer.algorithms.composition import expand
from gossamer.core import OnMissing, Task
from gossamer.core.state import tensors_of
from gossamer.experiments.tables import ExperimentError, named, section
from gossamer.graphs.mixing_matrix import MixingMatrix
from gossamer.training.optimizer import SGD, LocalOptimizer
from gossamer.training.privacy import is_installed as can_account
from gossamer.training.schedules import Plateau

if TYPE_CHECKING:
    from gossamer.experiments.experiment import Experiment

REQUIREMENTS = {"symmetric", "column_stochastic", "static", "changing", "reliable", "one_local_step", "one_exchange"}
"""What an algorithm can require."""


def check(experiment: "Experiment", task: Task) -> list[MixingMatrix]:
    """ExperimentError if the experiment cannot be run; the mixing matrices of its topology's representative rounds."""
    _check_declarations(experiment)
    _check_graph(experiment)
    _check_rounds(experiment)
    if experiment.device.startswith("mps"):
        _check_precision(experiment)
    if experiment.privacy.on:
        _check_privacy(experiment, task)
    with section("topology"):
        rounds = experiment.topology.representative_rounds(experiment.nodes, experiment.seed)
        mixings = [experiment.topology.at(experiment.nodes, experiment.seed, round) for round in rounds]
    if "column_stochastic" in experiment.algorithm.requires and not all(m.column_stochastic for m in mixings):
        raise ExperimentError(
            f"topology: {named(experiment.algorithm)} needs column-stochastic weights, "
            f"which {named(experiment.topology)} does not have"
        )
    if "elias-fpzip" in experiment.wire.compare and find_spec("fpzip") is None:
        raise ExperimentError(
            "wire.compare: elias-fpzip needs the fpzip package; install gossamer[reference], or leave it out"
        )
    for key, given, most, what in (
        ("samples", experiment.evaluation.samples, task.num_test_samples, "test samples"),
        ("nodes", experiment.evaluation.nodes, experiment.nodes, "nodes"),
    ):
        if isinstance(given, int) and given > most:
            raise ExperimentError(f'evaluation.{key}: {given} was given, there are {most} {what}; take "all"')
    return mixings


def _check_declarations(experiment: "Experiment") -> None:
    """Does the algorithm, which may be of a user's own, declare what exists?"""
    algorithm, name = experiment.algorithm, named(experiment.algorithm)
    if unknown := set(algorithm.requires) - REQUIREMENTS:
        raise ExperimentError(
            f"algorithm: {name} requires {', '.join(sorted(map(repr, unknown)))}, which nothing checks; "
            f"an algorithm can require {', '.join(sorted(REQUIREMENTS))}"
        )
    if algorithm.on_missing not in get_args(OnMissing):
        known = " or ".join(f'"{value}"' for value in get_args(OnMissing))
        raise ExperimentError(f"algorithm: on_missing of {name} is {algorithm.on_missing!r}; it must be {known}")
    if algorithm.on_missing != "lose_mass" and any(spec.push_sum_weight for spec in algorithm.parts.values()):
        raise ExperimentError(
            f'algorithm: {name} sends push-sum weights, whose sum must not grow; declare on_missing = "lose_mass"'
        )


def _check_graph(experiment: "Experiment") -> None:
    name, topology, requires = named(experiment.algorithm), experiment.topology, experiment.algorithm.requires
    if "symmetric" in requires and topology.directed:
        raise ExperimentError(
            f"topology: {name} needs a symmetric graph and {named(topology)} is directed; "
            "take an undirected one such as ring, torus, random-regular or small-world"
        )
    if "static" in requires and not topology.static:
        raise ExperimentError(
            f"topology: {name} needs the same graph in every round and {named(topology)} changes; "
            "take the graph without a schedule"
        )
    if "changing" in requires and topology.static and experiment.nodes > 2:
        raise ExperimentError(
            f"topology: {name} needs a graph that changes and {named(topology)} does not; "
            "take matchings, pairs that meet in turn, or the schedule redrawn, with the graph as its graph"
        )


def _check_rounds(experiment: "Experiment") -> None:
    """Does the algorithm bear the faults, the number of rounds and what a round is?"""
    algorithm, name = experiment.algorithm, named(experiment.algorithm)
    if "reliable" in algorithm.requires and experiment.faults.any:
        raise ExperimentError(
            f"faults: {name} needs every message to arrive, because what it carries is not sent again; "
            "leave the faults out, or take an algorithm such as dpsgd, jwins or sparse-push"
        )
    _check_asynchrony(experiment)
    if algorithm.cross_gradients and not _is_plain(experiment.optimizer):
        raise ExperimentError(
            f"optimizer: {name} steps along several nodes' gradients, which only its own momentum follows; "
            "take sgd with a learning rate and a schedule per round alone, and set algorithm.momentum"
        )
    settling = experiment.rounds - experiment.training_rounds
    if experiment.training_rounds <= 0:
        what = "full_rounds" if algorithm.final_rounds > experiment.settle else "settle"
        raise ExperimentError(
            f"rounds: {experiment.rounds} was given, and the last {settling} only settle, so that none would train; "
            f"take more rounds, or a smaller {what}"
        )
    with section("faults"):
        experiment.faults.check(experiment.nodes)
    with section("clock"):
        experiment.clock.check(experiment.nodes)
    if "one_local_step" in algorithm.requires and experiment.local_steps != 1:
        raise ExperimentError(
            f"local_steps: {name} is defined for one local step per round, {experiment.local_steps} was given; take 1"
        )
    if "one_exchange" in algorithm.requires and experiment.exchanges != 1:
        raise ExperimentError(
            f"exchanges: {name} is defined for one exchange per round, {experiment.exchanges} was given; take 1"
        )


def _check_asynchrony(experiment: "Experiment") -> None:
    name = named(experiment.algorithm)
    if experiment.asynchronous and not experiment.algorithm.asynchronous:
        raise ExperimentError(
            f"asynchronous: {name} needs the messages of one round at a time; leave it out, or take lace, or push-sum "
            "such as sgp, sparse-push or jwins-push"
        )
    if experiment.faults.slow and not experiment.asynchronous:
        raise ExperimentError(
            "faults.slow: everyone waits for a slow node, so that only the time changes; "
            "leave it out, set asynchronous = true, or say how quick nodes are in [clock]"
        )
    if experiment.asynchronous and experiment.clock.on and (experiment.faults.slow or experiment.clock.steps):
        what = "faults.slow" if experiment.faults.slow else "clock.steps"
        raise ExperimentError(
            f"{what}: in an asynchronous run clock.step_seconds says how quick each node is; leave {what} out"
        )


def _check_precision(experiment: "Experiment") -> None:
    """Refuse states of double precision where the device has none."""
    state = experiment.optimizer.wrap(expand(experiment.algorithm)).init(torch.zeros(1, 2))
    if double := [name for name, tensor in tensors_of(state) if tensor.dtype == torch.float64]:
        raise ExperimentError(
            f"device: {named(experiment.algorithm)} keeps {', '.join(double)} in double precision, which "
            f'{experiment.device} does not have; take "cpu" or "cuda", or an algorithm such as dpsgd or jwins'
        )


def _is_plain(optimizer: LocalOptimizer) -> bool:
    """Is it SGD with a learning rate, and a schedule that follows the rounds, and no more?"""
    return optimizer == SGD(optimizer.learning_rate, schedule=optimizer.schedule) and not isinstance(
        optimizer.schedule, Plateau
    )


def _check_privacy(experiment: "Experiment", task: Task) -> None:
    """Refuse what would let a node's data out by another way than the noised change of its model."""
    algorithm, name = experiment.algorithm, named(experiment.algorithm)
    if not can_account():
        raise ExperimentError(
            "privacy: what is spent is counted by dp-accounting; install gossamer[privacy], or leave clip out"
        )
    if algorithm.pools_data:
        raise ExperimentError(
            f"privacy: {name} has one node hold all data, from which nothing protects it; take another"
        )
    if algorithm.tries_models:
        raise ExperimentError(
            f"privacy: {name} shares more or less by the loss on a node's data, which no noise protects; "
            "take another, such as jwins"
        )
    if algorithm.cross_gradients:
        raise ExperimentError(
            f"privacy: {name} answers neighbours with gradients of their models, which no noise protects; "
            "take another, such as jwins"
        )
    if isinstance(experiment.optimizer.schedule, Plateau):
        raise ExperimentError(
            "privacy: the schedule plateau follows the loss on a node's data, which no noise protects; "
            "take another, such as cosine"
        )
    if task.buffers.numel():
        raise ExperimentError(
            "privacy: the model keeps running statistics of a node's data, which no noise protects; "
            "take a model without batch normalization"
        )
