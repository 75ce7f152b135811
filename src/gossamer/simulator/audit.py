"""How much a neighbour learns of who is in a node's data: membership inference from nothing but messages.

The run is repeated, which gives the same messages to the last bit, and of each node that is audited a neighbour keeps
what it was last sent of every entry, or the sums of a cumulative part. Of these it makes a model (`neighbours_view`),
as of the last round with training. It then guesses which of some samples the node has trained on:

- *Loss attack* (Yeom et al., CSF 2018): the smaller the loss of a sample, the likelier.
- *Likelihood-ratio attack* (Carlini et al., "Membership inference attacks from first principles", S&P 2022, online, one
  variance for all samples): shadow models are trained on random halves of the samples, as the node trains, and tell how
  likely the confidence in a sample is with it and without it.

Members are the node's training samples, the others are test samples of the same labels in the same numbers, so that
what the node's data look like gives nothing away. An AUC of 0.5 is a coin's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.algorithms import LocalOnly
from gossamer.core import Samples, Task
from gossamer.core.rng import permutation, philox
from gossamer.data import partition
from gossamer.data.supervised import Supervised
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError, Wire, named
from gossamer.graphs.clock import Clock
from gossamer.graphs.mixing_matrix import MixingMatrix
from gossamer.graphs.topologies import Ring
from gossamer.runs.run import Run
from gossamer.runs.weights import model_digest
from gossamer.simulator.simulation import Simulation

Floats = NDArray[np.float64]
OnRound = Callable[[dict[str, Any]], None]
BATCH = 256  # samples that go through a model at a time
LEAST_LOSS = 1e-6  # for confidences that are 1 to the last bit


@dataclass(frozen=True)
class Attack:
    """How well members were told from others; means over the nodes."""

    auc: float  # how often a member is ranked before another sample: 0.5 by chance, 1 always
    true_positives_at_1_percent: float  # share of members found when one other sample in a hundred is taken for one


@dataclass(frozen=True)
class Audit:
    """What neighbours could tell of the data of some nodes."""

    nodes: tuple[int, ...]  # that were audited
    neighbours: tuple[int, ...]  # who attacked each of them
    samples: int  # members among the candidates, over all nodes, and as many others
    loss: Attack
    likelihood_ratio: Attack | None  # None: without shadow models
    auc_by_node: dict[int, dict[str, float]]
    epsilon: float | None = None  # of each node, if the run had differential privacy
    delta: float | None = None


class Candidates(NamedTuple):
    """The samples whose membership is guessed: members first, then as many others."""

    inputs: Tensor
    targets: Tensor
    num_members: int

    @property
    def are_members(self) -> NDArray[np.bool_]:
        return np.arange(len(self.targets)) < self.num_members


@dataclass(frozen=True)
class Halves(partition.Partition):
    """Every node has a random half of the samples, and every sample is on half of the nodes."""

    def place(self, data: partition.Samples, nodes: int, bits: np.random.Philox) -> Iterable[Samples]:
        ranks = np.stack([permutation(bits, nodes) for _ in range(data.number)])  # (samples, nodes)
        return [np.flatnonzero(ranks[:, node] < nodes // 2) for node in range(nodes)]


def audit(
    run: Run,
    nodes: int = 4,
    shadows: int = 16,
    workers: int | None = None,
    on_round: OnRound | None = None,
    on_shadow_round: Callable[[int], OnRound] | None = None,  # of the first, second, ... node
) -> Audit:
    """Attack so many nodes of a complete run, evenly chosen, each from its first neighbour.

    It takes as long as the run, and for each node as `shadows` nodes that train alone; 0 shadows: only the loss attack.
    """
    experiment = auditable(run, nodes, shadows)
    views, shards, task, neighbours = _repeat(experiment, run, nodes, workers, on_round)
    assert isinstance(task, Supervised)
    found: dict[int, dict[str, Attack]] = {}
    num_members = 0
    for place, (node, (view, buffers)) in enumerate(views.items()):
        candidates = _candidates(task, shards[node], experiment.seed, node)
        num_members += candidates.num_members
        losses = _losses(task, view, buffers, candidates)
        found[node] = {"loss": _attack(-losses, candidates.are_members)}
        if shadows:
            told = None if on_shadow_round is None else on_shadow_round(place)
            trained = _shadows(experiment, task, candidates, shadows, workers, told)
            scores = _likelihood_ratios(losses, *trained, task.loss is nn.functional.cross_entropy)
            found[node]["likelihood_ratio"] = _attack(scores, candidates.are_members)
    spent = experiment.privacy.spent(experiment.training_rounds)
    return Audit(
        nodes=tuple(found),
        neighbours=tuple(neighbours[node] for node in found),
        samples=num_members,
        loss=_mean([each["loss"] for each in found.values()]),
        likelihood_ratio=_mean([each["likelihood_ratio"] for each in found.values()]) if shadows else None,
        auc_by_node={node: {name: attack.auc for name, attack in each.items()} for node, each in found.items()},
        epsilon=spent.get("epsilon"),
        delta=spent.get("delta"),
    )


def auditable(run: Run, nodes: int, shadows: int) -> Experiment:
    """The run's experiment; ExperimentError if it cannot be audited."""
    experiment = run.experiment
    if experiment is None:
        raise ExperimentError(
            f"{run.directory} is of an experiment with classes of your own; open it with "
            "gossamer.open_run(directory, experiment), and give that to gossamer.audit"
        )
    if run.peer is not None:
        raise ExperimentError(f"{run.directory} is a peer's, who has its own messages only; audit a simulated run")
    run.check_rounds("an audit, which repeats them,")
    if shadows < 0 or shadows % 2:
        raise ExperimentError(f"shadows must be an even number, or 0, {shadows} was given")
    if not 1 <= nodes <= experiment.nodes:
        raise ExperimentError(f"nodes must be from 1 to {experiment.nodes}, {nodes} was given")
    if experiment.faults.any or experiment.asynchronous:
        raise ExperimentError("the audit is of neighbours that hear everything; take a run without faults")
    if experiment.exchanges != 1 or not experiment.topology.static or experiment.algorithm.cross_gradients:
        raise ExperimentError("the audit is of neighbours that stay the same, one exchange per round; take such a run")
    return replace(experiment, evaluation=replace(experiment.evaluation, every=experiment.rounds), wire=Wire())


def _repeat(
    experiment: Experiment, run: Run, nodes: int, workers: int | None, on_round: OnRound | None
) -> tuple[dict[int, tuple[Tensor, Tensor]], Any, Task, dict[int, int]]:
    """Model and buffers that a neighbour of each audited node has in the end, the shards, the task, the neighbours."""
    chosen = sorted({round(place) for place in np.linspace(0, experiment.nodes - 1, nodes)})
    with Simulation(experiment, workers) as simulation:
        task, prepared = simulation.task, simulation.experiment
        if not (isinstance(task, Supervised) and all(isinstance(data, tuple) for data in (task.train, task.test))):
            raise ExperimentError(f"task: the audit needs data that are tensors; {named(experiment.task)} has others")
        mixing = prepared.topology.at(prepared.nodes, prepared.seed, 0)
        x0 = task.initial_model(prepared.seed)[None]
        last: dict[int, dict[str, Tensor]] = {node: {} for node in chosen}  # what was last sent of every entry
        heard = {node: _first_neighbour(mixing, node) for node in chosen}
        views: dict[int, tuple[Tensor, Tensor]] = {}
        while simulation.round < prepared.rounds:
            metrics = simulation.step()
            if simulation.round <= prepared.training_rounds:
                for node in chosen:
                    _note(last[node], simulation, node)
            if simulation.round == prepared.training_rounds:
                buffers = simulation.save().get("buffers", torch.empty(prepared.nodes, 0))
                for node in chosen:
                    view = prepared.algorithm.neighbours_view(last[node], x0)
                    if view is None or heard[node] < 0:
                        raise ExperimentError(
                            f"algorithm: the audit cannot read the messages of {named(experiment.algorithm)}; "
                            "take a run of dpsgd, jwins, choco, silk, deep-squeeze or their push-sum forms"
                        )
                    views[node] = view[0].clone(), buffers[heard[node]].clone()  # which are not sent
            if on_round is not None:
                on_round(metrics)
        if run.models_sha256 not in (None, model_digest(simulation.models())):
            raise ExperimentError(
                f"{run.document['name']} repeated gave other models, so its messages are not known; "
                "repeat the run with this version of Gossamer and of torch, then audit that"
            )
        return views, simulation.shards, task, heard


def _first_neighbour(mixing: MixingMatrix, node: int) -> int:
    """Who hears from a node; -1: nobody."""
    return next((j for j in range(mixing.nodes) if j != node and mixing.weight(j, node)), -1)


def _note(last: dict[str, Tensor], simulation: Simulation, node: int) -> None:
    """Take in what a node sent in the last exchange."""
    for name, part in simulation.messages().items():
        values = part.values[node : node + 1]
        if part.sent is not None:
            before = last.get(name, torch.full_like(values, torch.nan))
            values = torch.where(part.sent[node : node + 1], values, before)
        last[name] = values.clone()


def _candidates(task: Supervised, shard: Samples, seed: int, node: int) -> Candidates:
    """A node's samples, and as many test samples of the same labels; of labels with too few of these, fewer of both."""
    bits = philox(seed, "audit", node=node)
    shard = shard[permutation(bits, len(shard))]
    others = permutation(bits, task.num_test_samples)
    if task.labels is not None and task.test_labels is not None:
        kept_in, kept_out = [], []
        for label in np.unique(task.labels[shard]):
            own, other = shard[task.labels[shard] == label], others[task.test_labels[others] == label]
            number = min(len(own), len(other))
            kept_in.append(own[:number])
            kept_out.append(other[:number])
        shard, others = np.concatenate(kept_in), np.concatenate(kept_out)
    number = min(len(shard), len(others))
    if number < 2:
        raise ExperimentError(f"node {node} has too few samples of labels that test data have, too; take more data")
    assert isinstance(task.train, tuple)
    assert isinstance(task.test, tuple)
    chosen = torch.from_numpy(shard[:number]), torch.from_numpy(others[:number])
    inputs, targets = (torch.cat([a[chosen[0]], b[chosen[1]]]) for a, b in zip(task.train, task.test, strict=True))
    return Candidates(inputs, targets, number)


def _losses(task: Supervised, model: Tensor, buffers: Tensor, candidates: Candidates) -> Floats:
    """Of each candidate, under this model (D,) with these buffers (K,)."""
    module = task.module_with(model, buffers)
    found: list[Tensor] = []
    with torch.no_grad():
        for start in range(0, len(candidates.targets), BATCH):
            rows = slice(start, start + BATCH)
            inputs, targets = candidates.inputs[rows], candidates.targets[rows]
            outputs = module(inputs if task.prepare is None else task.prepare(inputs))
            found += [task.loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(targets))]
    losses: Floats = np.nan_to_num(torch.stack(found).double().numpy(), nan=1e30, posinf=1e30)
    return losses


def _shadows(
    experiment: Experiment,
    task: Supervised,
    candidates: Candidates,
    number: int,
    workers: int | None,
    on_round: OnRound | None,
) -> tuple[Floats, NDArray[np.bool_]]:
    """(shadows, candidates) losses of models that were each trained on half of the candidates, and on which."""
    alone = replace(
        experiment,
        task=task.with_data((candidates.inputs, candidates.targets), None),
        nodes=number,
        rounds=experiment.training_rounds,
        settle=0,
        partition=Halves(),
        topology=Ring(),
        algorithm=LocalOnly(),
        evaluation=Evaluation(every=experiment.rounds, samples=1, nodes=0),
        clock=Clock(),
    )
    with Simulation(alone, workers) as simulation:
        while simulation.round < alone.rounds:
            metrics = simulation.step()
            if on_round is not None:
                on_round(metrics)
        models, buffers = simulation.models(), simulation.save().get("buffers", torch.empty(number, 0))
        losses = np.stack([_losses(task, model, kept, candidates) for model, kept in zip(models, buffers, strict=True)])
        inside = np.zeros(losses.shape, dtype=bool)
        for row, shard in enumerate(simulation.shards):
            inside[row, shard] = True
    return losses, inside


def _likelihood_ratios(losses: Floats, shadows: Floats, inside: NDArray[np.bool_], is_cross_entropy: bool) -> Floats:
    """How much likelier each candidate's confidence is if it was trained on: the logarithm of the ratio."""
    confidence = _logits if is_cross_entropy else np.negative
    observed, known = confidence(losses), confidence(shadows)
    means, variances = [], []
    for where in (inside, ~inside):
        mean = (known * where).sum(0) / where.sum(0)
        means.append(mean)
        variances.append(((known - mean) ** 2)[where].mean() + 1e-12)  # too few shadows for one of each sample
    (with_it, without), (var_with, var_without) = means, variances
    ratios: Floats = (observed - without) ** 2 / var_without - (observed - with_it) ** 2 / var_with
    return ratios


def _logits(losses: Floats) -> Floats:
    """log(p / (1 - p)) of p = exp(-loss), the probability of the right class, which is nearly normal."""
    losses = np.maximum(losses, LEAST_LOSS)
    logits: Floats = -losses - np.log(-np.expm1(-losses))
    return logits


def _attack(scores: Floats, members: NDArray[np.bool_]) -> Attack:
    """Of scores that are larger the likelier a sample is taken for a member; ties count half."""
    inside, outside = scores[members], np.sort(scores[~members])
    below = np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")
    allowed = int(0.01 * len(outside))
    threshold = outside[len(outside) - 1 - allowed]
    return Attack(float(below.mean() / 2 / len(outside)), float((inside > threshold).mean()))


def _mean(attacks: list[Attack]) -> Attack:
    columns = [(attack.auc, attack.true_positives_at_1_percent) for attack in attacks]
    return Attack(*(float(value) for value in np.mean(columns, axis=0)))
