"""An experiment: one typed value that says everything about a run."""

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, get_type_hints

import msgspec
import numpy as np

from gossamer.algorithms import Dpsgd
from gossamer.core import Algorithm, Round, Samples, Streams, Task
from gossamer.data import Digits
from gossamer.data.partition import Iid, Partition, check_enough
from gossamer.experiments import auto, requirements
from gossamer.experiments.tables import ExperimentError, TaskSource, named, section, words
from gossamer.graphs.clock import Clock
from gossamer.graphs.delivery import Delivery
from gossamer.graphs.faults import Faults
from gossamer.graphs.matchings import GraphThenPairings
from gossamer.graphs.topologies import RandomRegular, Ring, Topology
from gossamer.training.optimizer import SGD, LocalOptimizer
from gossamer.training.privacy import Privacy
from gossamer.training.trainer import Trainer, trainer_for
from gossamer.wire.endpoint import Endpoint
from gossamer.wire.resync import num_channels

__all__ = ["Evaluation", "Experiment", "ExperimentError", "TaskSource", "Wire", "named", "section"]


@dataclass(frozen=True)
class Evaluation:
    """When and what to test. Testing all nodes on all samples can cost many times what training does.

    "auto" keeps it to about a tenth of the run, by counting: a training sample costs some three passes of one in a
    test, so a test may take 0.3 times the samples that the nodes train on between two tests. That goes to as many nodes
    as can have 1,000 test samples (or all, if there are fewer), but 4 at least; then to as many samples of those, but
    100 at least. The mean model counts as a node. Where little is trained, the least that is tested exceeds the tenth.
    """

    every: int = 10  # rounds; the last round is always evaluated
    samples: int | Literal["auto", "all"] = "auto"  # a seeded choice of so many test samples
    nodes: int | Literal["auto", "all"] = "auto"  # a seeded choice of so many nodes; 0: only the mean model
    mean_model: bool = True  # test the average of all nodes' models too
    validation: float = 0.0  # share of the training samples to hold out and test on instead: to choose settings by
    personal: bool = False  # test nodes on their own distribution too; and tell the worst tenth's metric on all samples

    def __post_init__(self) -> None:
        _check_types(self)
        _check(self.every >= 1, "every", "at least 1", self.every)
        words = '"auto" or "all"'
        _check(isinstance(self.samples, str) or self.samples >= 1, "samples", f"at least 1, {words}", self.samples)
        _check(0 <= self.validation < 1, "validation", "at least 0 and under 1", self.validation)
        _check(isinstance(self.nodes, str) or self.nodes >= 0, "nodes", f"at least 0, {words}", self.nodes)
        if self.nodes == 0 and not self.mean_model:
            raise ValueError("nodes = 0 leaves nothing to test without the mean model; set mean_model = true")
        if self.nodes == 0 and self.personal:
            raise ValueError("nodes = 0 leaves no node to test on its own distribution; set personal = false")

    def resolved(self, nodes: int, rounds: int, trained: int, num_samples: int) -> "Evaluation":
        """With numbers in place of words: for a run of so many nodes and rounds that trains on so many samples per
        round, all nodes together, and a task with so many test samples."""
        budget, mean = 3 * min(self.every, rounds) * trained // 10, int(self.mean_model)
        each = self.samples if isinstance(self.samples, int) else num_samples
        if self.samples == "auto":
            each = min(num_samples, 1000)
        tested = self.nodes if isinstance(self.nodes, int) else nodes
        if self.nodes == "auto":
            tested = min(nodes, max(4, budget // each - mean))
        if self.samples == "auto":
            each = min(num_samples, max(100, budget // (tested + mean)))
        return replace(self, samples=each, nodes=tested)

    def due(self, round: int, rounds: int) -> bool:
        """Is there a test after so many rounds?"""
        return round % self.every == 0 or round == rounds


@dataclass(frozen=True)
class Wire:
    """How messages become bytes, and how they are counted."""

    mode: Literal["count", "encode"] = "count"  # encode: really make every message's bytes, and read them again
    compare: tuple[Literal["elias-fpzip", "six-bytes"], ...] = ()  # count the papers' encodings too
    ledger: bool = False  # keep the bytes of every round and link in ledger.jsonl

    def __post_init__(self) -> None:
        _check_types(self)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's result. The same experiment gives the same models, byte counts and metrics."""

    name: str = "experiment"
    note: str = ""  # a remark to be shown with the results
    seed: int = 0
    nodes: int = 16
    rounds: int = 100
    local_steps: int = 3  # steps of a node's optimizer per round, tau
    exchanges: int = 1  # per round, each over a mixing matrix of its own
    settle: int = 0  # so many of the rounds, the last ones, exchange without training
    asynchronous: bool = False  # until they settle, nodes wait for nobody: each takes what has come when it is ready
    batch_size: int = 16
    task: TaskSource = field(default_factory=Digits)
    partition: Partition = field(default_factory=Iid)
    topology: Topology = field(default_factory=RandomRegular)
    algorithm: Algorithm = field(default_factory=Dpsgd)
    optimizer: LocalOptimizer = field(default_factory=SGD)
    evaluation: Evaluation = field(default_factory=Evaluation)
    strategy: Literal["auto", "rows", "batched", "vmap"] = "auto"  # how the gradients of many nodes are computed
    fast: bool = False  # quicker layers in models that have them, whose last bits differ from those of torch's own
    device: str = "cpu"  # where local steps and tests are computed, as torch names it; another has one worker
    wire: Wire = field(default_factory=Wire)
    faults: Faults = field(default_factory=Faults)
    privacy: Privacy = field(default_factory=Privacy)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        _check_types(self)
        usable = re.fullmatch(r"[\w-][\w .-]{0,99}", self.name)  # a run's directory has this name
        must = "1 to 100 letters, digits, spaces, dots, - or _, and not begin with a dot or space"
        _check(usable is not None, "name", must, self.name)
        _check(0 <= self.seed < 2**63, "seed", "at least 0 and under 2^63", self.seed)
        for name in ("nodes", "rounds", "local_steps", "exchanges", "batch_size"):
            _check(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("rounds", "local_steps", "exchanges", "batch_size"):
            _check(getattr(self, name) < 2**31, name, "under 2^31", getattr(self, name))
        _check(self.settle >= 0, "settle", "at least 0", self.settle)

    @property
    def training_rounds(self) -> int:
        """Rounds with local steps; in those that follow, models settle."""
        return self.rounds - max(self.settle, self.algorithm.final_rounds)

    def evaluates_after(self, round: int) -> bool:
        """Is there a test after so many rounds? There is one before models settle, too."""
        return self.evaluation.due(round, self.rounds) or round == self.training_rounds

    def averaging_rate(self, round: int) -> float:
        """The algorithm's in a round, where this is the experiment as it is run."""
        rng, settling = Streams(self.seed, [], round), round >= self.training_rounds
        return self.algorithm.averaging_rate(Round(round, 0.0, rng, self.rounds, settling=settling))

    def with_digests(self) -> "Experiment":
        """The same with what is read from files noted, and what `auto` chose; to be kept with a run's results."""
        chosen = auto.choose(self)
        with section("topology"):
            topology = chosen.topology.with_digests()
        with section("faults"):
            faults = self.faults.with_digests()
        with section("clock"):
            return replace(chosen, topology=topology, faults=faults, clock=self.clock.with_digests())

    def load_task(self) -> Task:
        """The task, with what is to be held out of its training samples, where it is to be computed."""
        with section("task"):
            task = self.task.load()
            if not isinstance(task, Task):
                raise ValueError(f"{type(self.task).__name__}.load() must return a gs.Task, {task!r} was given")
            task = task.with_nodes(self.nodes)
        if self.evaluation.validation:
            with section("evaluation.validation"):
                task = task.with_validation_split(self.evaluation.validation)
        if self.device != "cpu":
            with section("device"):
                if self.fast:
                    raise ValueError(f"{self.device!r} was given, and fast layers are for the CPU; set fast = false")
                task = task.on(self.device)
        if self.fast:
            with section("fast"):
                task = task.with_fused_layers()
        return task

    def trainer_for(self, task: Task) -> Trainer:
        """How the gradients of the nodes are computed."""
        with section("strategy"):
            return trainer_for(task, self.strategy, self.nodes)

    def prepared(self, task: Task) -> "Experiment":
        """The experiment as it is run: with what depends on graph and model set, or refused before anything runs."""
        if (chosen := auto.choose(self)) is not self:
            return chosen.prepared(task)
        with section("partition"):
            check_enough(task.num_samples, self.nodes)  # before a graph of a billion nodes is drawn
        experiment = self._pooled() if self.algorithm.pools_data else self
        mixings = requirements.check(experiment, task)
        if len(mixings) > 1:
            mixings.sort(key=lambda mixing: mixing.norm_of_identity_minus_w())
        with section("algorithm"):  # every graph must do; rates are set for the one that moves most, the last
            period = self.topology.period(self.nodes, self.seed)
            returning = [replace(mixing, period=period) for mixing in mixings]
            prepared = [self.algorithm.prepare(mixing, tuple(task.layer_sizes)) for mixing in returning]
        experiment = replace(experiment, algorithm=prepared[-1])._resolved(task)
        return experiment._with_answers() if self.algorithm.cross_gradients else experiment

    def _pooled(self) -> "Experiment":
        """One node with all data, which takes as many samples per step as all nodes would."""
        pooled = replace(self, nodes=1, batch_size=self.batch_size * self.nodes, partition=Iid(), topology=Ring())
        return replace(pooled, evaluation=replace(self.evaluation, nodes="all"), faults=Faults(), clock=Clock())

    def _with_answers(self) -> "Experiment":
        """In every round all links once for models, and each by itself for the gradient that comes back."""
        topology = GraphThenPairings(self.topology)
        return replace(self, topology=topology, exchanges=topology.period(self.nodes, self.seed))

    def _resolved(self, task: Task) -> "Experiment":
        trained = self.nodes * self.local_steps * self.optimizer.accumulate * self.batch_size
        counts = self.nodes, self.rounds, trained, task.num_test_samples
        return replace(self, evaluation=self.evaluation.resolved(*counts))

    @property
    def delivery(self) -> Delivery:
        """Who hears from whom."""
        shared = self.topology, self.nodes, self.seed
        channels = num_channels(self.algorithm.parts)
        rounds = self.training_rounds if self.asynchronous else 0
        on_missing, faults, clock = self.algorithm.on_missing, self.faults, self.clock
        return Delivery(*shared, on_missing, faults, self.exchanges, channels, rounds, clock, self.averaging_rate)

    def endpoint(self, task: Task, node: int, run_id: int = 0) -> Endpoint:
        """A node's ends of its links, where this is the experiment as it is run."""
        return Endpoint(node, self.algorithm.parts, sum(task.layer_sizes), self.seed, run_id)

    def shards(self, task: Task) -> list[Samples]:
        """The training samples of each node."""
        with section("partition"):
            if task.given_shards is not None:
                return self._given(task.given_shards)
            return self.partition.split(task.labels, task.clients, task.num_samples, self.nodes, self.seed)

    def _given(self, shards: Sequence[Samples]) -> list[Samples]:
        """Those that came with the data."""
        if not isinstance(self.partition, Iid):
            raise ValueError(f"{named(self.partition)} was given, and train came divided by node; leave it out")
        if self.algorithm.pools_data:
            return [np.concatenate(shards)]
        if len(shards) != self.nodes:
            raise ValueError(f"train has the data of {len(shards)} nodes, and there are {self.nodes}; give as many")
        return list(shards)


def _check(holds: bool, key: str, must: str, given: object) -> None:
    if not holds:
        raise ValueError(f"{key} must be {must}, {given!r} was given")


def _check_types(value: Any) -> None:
    """ValueError unless every field of this dataclass is what its annotation says."""
    hints = get_type_hints(type(value))
    for f in fields(value):
        given, hint = getattr(value, f.name), hints[f.name]
        kind = given if isinstance(given, type) else type(given)
        if f.name == "optimizer" and kind.__module__.startswith("torch.optim"):
            raise ValueError(
                "optimizer must be an instance such as gs.SGD(), gs.Adam() or gs.AdamW(), or a gs.LocalOptimizer of "
                f"your own; torch.optim.{kind.__name__} was given, which has the state of one module, and every node "
                "has one"
            )
        if isinstance(given, type):
            name = given.__name__
            raise ValueError(f"{f.name} must be an instance, the class {name} was given; write {name}()")
        if f.default_factory is not MISSING:
            example = type(f.default_factory()).__name__
            _check(isinstance(given, hint), f.name, f"an instance such as {example}()", given)
            continue
        try:
            msgspec.convert(given, hint)
        except msgspec.ValidationError:
            raise ValueError(f"{f.name} must be {words(hint)}, {given!r} ({type(given).__name__}) was given") from None
