"""The tasks and methods of accuracy_per_byte.py.

A method is a family and its settings, written `lace:kept=0.02,exchanges=2`, with a learning rate if it is not the
task's, `lace:kept=0.02@0.04`. A family is a function from a task's setting (full sharing on a static random 4-regular
graph) to an experiment; a new row of the table is such a function, its words in LABELS, and a line in ROWS, and its
settings to try are a line in GRIDS.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from gossamer import Evaluation, Experiment
from gossamer.algorithms import (
    Choco,
    DeepSqueeze,
    Dpsgd,
    DriftCorrection,
    Jwins,
    JwinsPush,
    Lace,
    QuantizedJwins,
    QuantSgp,
    RandomSampling,
    RelativeToInit,
    Sgp,
    Silk,
    SparsePush,
)
from gossamer.algorithms.lace import PairGossip
from gossamer.compressors import Compressor, DeadZone, TopK
from gossamer.core import Part, PartSpec, Round
from gossamer.data import AgNews, Cifar10, MovieLens, Qmnist, Shakespeare
from gossamer.data.partition import ByClient, LabelShards
from gossamer.experiments.auto import Auto
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import DirectedRandom, Matchings, RandomRegular, Redrawn, Topology
from gossamer.models import FemnistCnn, StackedLstm, Transformer
from gossamer.training.optimizer import Optimizer
from gossamer.transforms import Wavelet

# -- tasks: `rounds` are those with training, and take minutes on 16 nodes ---------------------------------------------


def _task(
    task: Any, partition: Any, learning_rate: float, local_steps: int, batch_size: int, rounds: int
) -> Experiment:
    optimizer = Optimizer(learning_rate)
    counts = {"local_steps": local_steps, "batch_size": batch_size, "rounds": rounds}
    return Experiment(task=task, partition=partition, optimizer=optimizer, **counts)


TASKS: dict[str, Callable[[], Experiment]] = {
    "digits": RECIPES["dpsgd-digits"],  # needs no files and takes seconds
    "cifar10": lambda: replace(RECIPES["cifar10-first"](), task=Cifar10()),
    "mnist-by-writer": lambda: _task(Qmnist(FemnistCnn(hidden=512)), ByClient(), 0.02, 3, 8, 100),
    "movielens": lambda: _task(MovieLens(), ByClient(), 0.1, 10, 16, 1000),
    "shakespeare": lambda: _task(Shakespeare(model=StackedLstm(hidden=64)), ByClient(), 1.0, 3, 16, 200),
    "ag-news": lambda: _task(
        AgNews("train_partial.csv", model=Transformer(width=64, dropout=0.0)), LabelShards(2), 0.1, 3, 8, 200
    ),
}
TESTED = {"shakespeare": 2000}  # test samples, where all would take longer than training does

GRAPHS: dict[str, Topology] = {  # every node sends to four others
    "regular": RandomRegular(4),
    "redrawn": Redrawn(RandomRegular(4)),
    "directed": DirectedRandom(4),
    "directed-redrawn": Redrawn(DirectedRandom(4)),
}


def setting(
    task: str,
    nodes: int = 16,
    rounds: int | None = None,
    settle: int = 8,
    momentum: float = 0.0,
    validation: float = 0.0,
    test_nodes: int | str = "all",
    test_samples: int | str = "all",
    graph: str = "regular",
) -> Experiment:
    """Full sharing on a random graph, tested before its models settle and at the end."""
    base = TASKS[task]()
    total = (rounds or base.rounds) + settle
    samples = TESTED.get(task, "all") if test_samples == "all" else test_samples
    evaluation = Evaluation(total, samples, test_nodes, validation=validation)
    optimizer = replace(base.optimizer, momentum=momentum, quasi_global=momentum > 0)
    algorithm = Sgp() if GRAPHS[graph].directed else Dpsgd()
    common = replace(base, nodes=nodes, rounds=total, settle=settle, topology=GRAPHS[graph], algorithm=algorithm)
    return replace(common, optimizer=optimizer, evaluation=evaluation, fast=True)


# -- methods -----------------------------------------------------------------------------------------------------------


def full(setting: Experiment) -> Experiment:
    return setting


def full_on_matchings(setting: Experiment, exchanges: int = 2) -> Experiment:
    return replace(setting, topology=Matchings(), exchanges=exchanges)


def random_sampling(setting: Experiment, budget: float = 0.37) -> Experiment:
    return replace(setting, algorithm=RandomSampling(budget))


def jwins(setting: Experiment, budget: float = 0.37) -> Experiment:
    """At 0.37 the cut-off law of the paper, whose bytes these are."""
    return replace(setting, algorithm=Jwins(None if budget == 0.37 else budget))


def quantized_jwins(setting: Experiment, bits: int = 8, budget: float = 0.37) -> Experiment:
    """`budget` is what its messages would take in float32."""
    quantized = QuantizedJwins(bits, budget=None if budget == 0.37 else budget)
    return replace(setting, algorithm=RelativeToInit(quantized))


def auto(setting: Experiment, budget: float = 0.37) -> Experiment:
    """What `algorithm = "auto"` takes for a budget; 0 is none."""
    return replace(setting, algorithm=Auto(budget or None))


def choco(setting: Experiment, kept: float = 0.2, rate: float = 0.7) -> Experiment:
    return replace(setting, algorithm=Choco(TopK(kept), rate))


def silk(setting: Experiment, kept: float = 0.2, rate: float = 1.0) -> Experiment:
    return replace(setting, algorithm=Silk(kept, rate))


def silk_dual(setting: Experiment, kept: float = 0.2, rate: float = 1.0, strength: float = 0.05) -> Experiment:
    return replace(setting, algorithm=DriftCorrection(Silk(kept, rate), strength))


def lace(setting: Experiment, kept: float = 0.02, exchanges: int = 2, wavelet: bool = True) -> Experiment:
    return replace(setting, algorithm=Lace(kept, wavelet=wavelet), topology=Matchings(), exchanges=exchanges)


def replicas(setting: Experiment, kept: float = 0.02, rate: float = 0.5) -> Experiment:
    """Lace's quantizer and wavelet without its memory: CHOCO's replicas, on the static graph."""
    return replace(setting, algorithm=RelativeToInit(Choco(DeadZone(kept), rate, Wavelet())))


def jwins_push(setting: Experiment, budget: float = 0.37) -> Experiment:
    return replace(setting, algorithm=JwinsPush(None if budget == 0.37 else budget))


def push_replicas(setting: Experiment, kept: float = 0.2, rate: float = 0.7) -> Experiment:
    """`replicas` on a directed graph."""
    return replace(setting, algorithm=RelativeToInit(QuantSgp(DeadZone(kept), rate, Wavelet())))


def sparse_push(setting: Experiment, kept: float = 0.2, rate: float = 0.5) -> Experiment:
    return replace(setting, algorithm=RelativeToInit(SparsePush(DeadZone(kept), rate, Wavelet())))


def deep_squeeze(setting: Experiment, kept: float = 0.2, rate: float = 0.5) -> Experiment:
    return replace(setting, algorithm=RelativeToInit(DeepSqueeze(DeadZone(kept), rate, Wavelet())))


def lace_counted(setting: Experiment, kept: float = 0.02, exchanges: int = 2) -> Experiment:
    """Lace, and what its levels would take in other codings."""
    algorithm = RelativeToInit(PairGossip(Counted(DeadZone(kept)), Wavelet()))
    return replace(setting, algorithm=algorithm, topology=Matchings(), exchanges=exchanges)


@dataclass(frozen=True)
class Counted(Compressor):
    """A compressor that notes for every message how many entries it has, and the order-0 entropy of its levels.

    The message counts as the levels of all entries, 0 where nothing is sent, with a code made for it alone that the
    receiver knows already: no coder without contexts takes less.
    """

    compressor: Compressor
    notes: ClassVar[Path]  # a line for every message: round, exchange, node, entries sent, bits

    @property
    def kind(self) -> Any:
        return self.compressor.kind

    @property
    def spec(self) -> PartSpec:
        return self.compressor.spec

    def __call__(self, x: Tensor, round: Round) -> Part:
        part = self.compressor(x, round)
        assert part.quantized is not None
        lines = []
        for node, levels in zip(round.rng.nodes, part.quantized.levels.numpy(), strict=True):
            counts = np.unique(levels, return_counts=True)[1]
            bits = float(counts @ np.log2(len(levels) / counts))
            lines.append(f"{round.number} {round.exchange} {node} {np.count_nonzero(levels)} {bits:.1f}\n")
        with self.notes.open("a") as file:  # workers append whole lines
            file.write("".join(lines))
        return part

    @staticmethod
    def read(notes: Path) -> list[tuple[int, int, float]]:
        """(round, entries, bits) of every message. One that was noted twice, in rounds that were run again or in the
        rehearsal of the first, where nothing is sent, counts once."""
        found: dict[tuple[str, ...], tuple[int, int, float]] = {}
        for line in notes.read_text().splitlines():
            round, exchange, node, entries, bits = line.split()
            noted = int(round), int(entries), float(bits)
            found[round, exchange, node] = max(noted, found.get((round, exchange, node), noted))
        return list(found.values())


FAMILIES: dict[str, Callable[..., Experiment]] = {
    "full": full,
    "full-on-matchings": full_on_matchings,
    "random-sampling": random_sampling,
    "jwins": jwins,
    "quantized-jwins": quantized_jwins,
    "auto": auto,
    "choco": choco,
    "silk": silk,
    "silk-dual": silk_dual,
    "lace": lace,
    "replicas": replicas,
    "lace-counted": lace_counted,
    "jwins-push": jwins_push,
    "push-replicas": push_replicas,
    "sparse-push": sparse_push,
    "deep-squeeze": deep_squeeze,
}
LABELS = {
    "full": "full sharing",
    "full-on-matchings": "full sharing, Lace's matchings, {exchanges} exchanges",
    "random-sampling": "random sampling, {budget:.3g}",
    "jwins": "JWINS, {budget:.3g}",
    "quantized-jwins": "JWINS, {budget:.3g}, {bits} bits",
    "auto": "auto, {budget:.3g}",
    "choco": "CHOCO, top {kept:.3g}, rate {rate:g}",
    "silk": "Silk, kept {kept:.3g}, rate {rate:g}",
    "silk-dual": "Silk, kept {kept:.3g}, rate {rate:g}, drift correction {strength:g}",
    "lace": "Lace, kept {kept:.3g}, {exchanges} exchanges",
    "replicas": "dead zone with CHOCO's replicas, static graph, kept {kept:.3g}, rate {rate:g}",
    "lace-counted": "Lace, kept {kept:.3g}, {exchanges} exchanges, counted",
    "jwins-push": "JWINS with push-sum, {budget:.3g}",
    "push-replicas": "dead zone with Quant-SGP's replicas, kept {kept:.3g}, rate {rate:g}",
    "sparse-push": "Sparse-Push with dead zone and wavelet, kept {kept:.3g}, rate {rate:g}",
    "deep-squeeze": "DeepSqueeze with dead zone and wavelet, kept {kept:.3g}, rate {rate:g}",
}

ROWS = (
    "full",
    "full-on-matchings",
    "random-sampling",
    "jwins",
    "jwins:budget=0.2",
    "jwins:budget=0.1",
    "choco",
    "silk",
    "lace:kept=0.04",
    "lace",
    "lace:kept=0.01",
)
SPLIT = ("full", "full-on-matchings", "replicas", "lace:wavelet=false", "lace", "lace-counted")

GRIDS: dict[str, Sequence[Mapping[str, Any]]] = {  # as many settings for each
    "random-sampling": [{"budget": budget} for budget in (0.37, 0.2, 0.1, 0.05)],
    "jwins": [{"budget": budget} for budget in (0.37, 0.2, 0.1, 0.05)],
    "choco": [
        {"kept": kept, "rate": rate} for kept, rates in ((0.2, (0.7, 0.4)), (0.1, (0.5, 0.25))) for rate in rates
    ],
    "silk": [{"kept": kept, "rate": rate} for kept in (0.2, 0.1) for rate in (1.0, 0.6)],
    "lace": [{"kept": 0.04, "exchanges": 1}, *({"kept": kept, "exchanges": 2} for kept in (0.04, 0.03, 0.02))],
    **{
        family: [{"kept": kept, "rate": rate} for kept in (0.2, 0.1) for rate in (0.7, 0.5)]
        for family in ("push-replicas", "sparse-push", "deep-squeeze")
    },
    "jwins-push": [{"budget": budget} for budget in (0.37, 0.2, 0.1, 0.05)],
    "replicas": [{"kept": 0.02, "rate": rate} for rate in (1.0, 0.7, 0.5, 0.25)],
}
TUNED_ONLY = ("choco", "silk", "replicas")  # in the table with the settings that were chosen, and no others


class Method(NamedTuple):
    """A family with all of its settings."""

    family: str
    settings: dict[str, Any]
    learning_rate: float | None = None  # the task's

    @classmethod
    def parse(cls, text: str) -> "Method":
        """From "lace:kept=0.02,exchanges=2@0.04"; what is not said is the family's default."""
        text, at, rate = text.partition("@")
        family, _, said = text.partition(":")
        if family not in FAMILIES:
            raise ValueError(f"there is no method {family}; take one of {', '.join(FAMILIES)}")
        known = inspect.signature(FAMILIES[family]).parameters
        settings = {name: parameter.default for name, parameter in known.items() if name != "setting"}
        for pair in filter(None, said.split(",")):
            name, _, value = pair.partition("=")
            if name not in settings:
                raise ValueError(f"{family} has no setting {name}; it has {', '.join(settings) or 'none'}")
            try:
                settings[name] = type(settings[name])(json.loads(value))
            except ValueError:
                raise ValueError(f"{name} of {family} must be like {settings[name]}, {value!r} was given") from None
        try:
            return cls(family, settings, float(rate) if at else None)
        except ValueError:
            raise ValueError(f"after the @ of {family} goes a learning rate such as 0.01, {rate!r} was given") from None

    @classmethod
    def of(cls, family: str, settings: Mapping[str, Any]) -> "Method":
        return cls.parse(cls(family, dict(settings)).text)

    @property
    def text(self) -> str:
        """What `parse` makes it from."""
        settings = ",".join(f"{name}={json.dumps(value)}" for name, value in self.settings.items())
        return f"{self.family}:{settings}" + ("" if self.learning_rate is None else f"@{self.learning_rate:g}")

    @property
    def name(self) -> str:
        """All that makes it what it is; names its runs' directory."""
        rate = [] if self.learning_rate is None else [f"learning_rate={self.learning_rate:g}"]
        return ",".join([self.family, *(f"{name}={value}" for name, value in self.settings.items()), *rate])

    @property
    def label(self) -> str:
        without = ", without wavelet" if self.settings.get("wavelet") is False else ""
        rate = "" if self.learning_rate is None else f", learning rate {self.learning_rate:g}"
        return LABELS[self.family].format(**self.settings).replace(" 1 exchanges", " 1 exchange") + without + rate

    def on(self, setting: Experiment) -> Experiment:
        experiment = replace(FAMILIES[self.family](setting, **self.settings), name=self.family)
        if self.learning_rate is None:
            return experiment
        return replace(experiment, optimizer=replace(experiment.optimizer, learning_rate=self.learning_rate))
