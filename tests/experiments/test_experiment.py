"""Experiments and their files: what is read is what was written, and mistakes are explained."""

import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import gossamer
from gossamer.algorithms import Choco, Dpsgd, Jwins, RandomSampling, RelativeToInit
from gossamer.algorithms.baselines import Centralized
from gossamer.compressors import NoCompression
from gossamer.data import Quadratic
from gossamer.data.partition import Dirichlet, LabelShards
from gossamer.experiments import toml
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError, Wire
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import (
    BaseGraph,
    Cycle,
    DirectedRing,
    EdgeList,
    FullyConnected,
    Matchings,
    OnePeerExponential,
    RandomRegular,
    Redrawn,
    Ring,
)
from gossamer.training.optimizer import Optimizer
from gossamer.training.schedules import Cosine, Steps

EXPERIMENTS = [
    Experiment(),
    *(recipe() for recipe in RECIPES.values()),
    Experiment(
        task=Quadratic(dimension=3),
        topology=Cycle((Ring(), Redrawn(RandomRegular(degree=2), every=5)), every=3),
        partition=Dirichlet(alpha=0.3),
        algorithm=Jwins(budget=0.2, wavelet=False),
        optimizer=Optimizer(0.3, momentum=0.9, nesterov=True, schedule=Steps(at=(3, 7), by=0.5)),
        evaluation=Evaluation(every=3, samples=100, nodes=4, mean_model=False),
    ),
    Experiment(topology=Matchings(graph=RandomRegular(degree=6))),
    Experiment(topology=Cycle((Matchings(5), Matchings(graph=EdgeList("some.edges")), BaseGraph(degree=2)))),
    Experiment(optimizer=Optimizer(schedule=Cosine(final=0.1, warmup=5)), algorithm=RandomSampling(budget=1)),
]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_survives_being_written_and_read(experiment: Experiment) -> None:
    assert toml.read(tomllib.loads(toml.dumps(experiment))) == experiment


def test_the_commented_example_is_the_recipe_jwins_digits() -> None:
    text = (Path(gossamer.__file__).parent / "experiments" / "experiment.toml").read_text()
    assert toml.read(tomllib.loads(text)) == RECIPES["jwins-digits"]()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_named_as_it_is_called(name: str) -> None:
    assert RECIPES[name]().name == name


def test_a_name_alone_stands_for_its_defaults() -> None:
    assert toml.read({"algorithm": "jwins", "topology": "ring"}) == Experiment(algorithm=Jwins(), topology=Ring())


def test_names_of_earlier_versions_are_still_read() -> None:
    old = {"algorithm": {"name": "from-start", "inner": {"name": "choco", "compressor": "everything"}}}
    read = toml.read(old)
    assert read == Experiment(algorithm=RelativeToInit(Choco(NoCompression())))
    written = toml.write(read)
    assert written["algorithm"]["name"] == "relative-to-init"
    assert written["algorithm"]["inner"]["compressor"] == {"name": "none"}
    assert "algorithm.name" not in toml.differences(old, written)


MISTAKES = {
    "algorithm.budgett=1": "algorithm.budgett: there is no such key (did you mean budget?); 'jwins' takes budget, ",
    "algorithm.budget=0": "algorithm.budget must be over 0 and at most 1, 0.0 was given",
    "algorithm.budget=2": "algorithm.budget must be over 0 and at most 1, 2.0 was given",
    "algorithm.budget=lots": "algorithm.budget: 'lots' was given, it must be a number",
    "algorithm.name=jwin": "algorithm.name: there is no 'jwin' (did you mean jwins?); take one of dpsgd, ",
    "algorithm.family=haarr": "algorithm.family must be an orthogonal wavelet (haar, ",
    "nodes=0": "nodes must be at least 1, 0 was given",
    "nodes=1.5": "nodes: 1.5 was given, it must be a whole number",
    "nodes=true": "nodes: True was given, it must be a whole number",
    "seed=-1": "seed must be at least 0 and under 2^63, -1 was given",
    "rounds='many'": "rounds: 'many' was given, it must be a whole number",
    "node=4": "node: there is no such key (did you mean nodes?); an experiment takes name, note, seed, ",
    "task=7": "task: a name is needed, one of digits, quadratic",
    "optimizer.learning_rate=-1": "optimizer.learning_rate must be over 0 and finite, -1.0 was given",
    "optimizer.schedule.name=steps": "optimizer.schedule.at: 'steps' needs it; it must be a list, each a whole number",
    "optimizer=3": "optimizer: a name is needed, one of sgd, adam, adamw",
    "evaluation.samples=few": 'evaluation.samples: \'few\' was given, it must be a whole number or "auto" or "all"',
    "task={name='cifar10', size=24}": "task.size: 24 was given, it must be 32 or 16 or 8",
    "evaluation.every=0": "evaluation.every must be at least 1, 0 was given",
    "topology={name='cycle', graphs='ring'}": "topology.graphs: 'ring' was given, a list is needed",
    "topology={name='cycle', graphs=['rink']}": "topology.graphs[0].name: there is no 'rink' (did you mean ring?)",
    "topology={name='redrawn'}": "topology.graph: 'redrawn' needs it; it must be one of ring, ",
    "topology={name='matchings', graph=3}": "topology.graph: a name is needed, one of ring, ",
    "topology={name='matchings', graph='rink'}": "topology.graph.name: there is no 'rink' (did you mean ring?)",
    "topology={name='matchings', graph='directed-ring'}": "topology.graph must be an undirected one that stays",
    "topology={name='matchings', graph='ring', length=3}": "topology.length must be left out where a graph's",
    "topology={name='base-graph', degree=0}": "topology.degree must be at least 1, 0 was given",
    "topology.degree=-3": "topology.degree must be at least 1, -3 was given",
    "nodes.x=1": "nodes.x: nodes is a value, not a section",
    "rounds": "--set rounds: write it as one key=value",
    "rounds=3\nseed=4": "--set rounds=3 seed=4: write it as one key=value, such as algorithm.budget=0.2",
    "faults.down=[[1,2]]": "it must be a list, each [a whole number, a whole number, a whole number]",
    "name=../up": "name must be 1 to 100 letters, digits, spaces, dots, - or _, and not begin with a dot or space, ",
    "name=.hidden": "name must be 1 to 100 letters",
    "name=": "name must be 1 to 100 letters",
    f"name={'a' * 101}": "name must be 1 to 100 letters",
    "optimizer.learning_rate=inf": "optimizer.learning_rate: inf was given, it must be a finite number",
    "optimizer.weight_decay=nan": "optimizer.weight_decay: nan was given, it must be a finite number",
    "algorithm.budget=nan": "algorithm.budget: nan was given, it must be a finite number",
    "optimizer.schedule={name='steps', at=[1, inf]}": "optimizer.schedule.at[1]: inf was given, it must be a finite",
    "optimizer.schedule={name='steps', at=[-1]}": "optimizer.schedule.at must be rounds of at least 0, [-1] was given",
    "optimizer.schedule={name='steps', at=[1], by=0}": "optimizer.schedule.by must be a number over 0, 0.0 was given",
    "optimizer.schedule={name='cosine', final=2}": "optimizer.schedule.final must be between 0 and 1, 2.0 was given",
    "optimizer.schedule={name='cosine', warmup=-1}": "optimizer.schedule.warmup must be at least 0, -1 was given",
    "partition={name='dirichlet', alpha=1e300}": "partition.alpha must be at most 1e9, 1e+300 was given; the partition",
}


@pytest.mark.parametrize("setting", MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_key(setting: str) -> None:
    def read() -> None:
        document = toml.write(RECIPES["jwins-digits"]())
        toml.change(document, setting)
        toml.read(document)

    with pytest.raises(ExperimentError) as raised:
        read()
    assert MISTAKES[setting] in str(raised.value)
    assert "\n" not in str(raised.value)


IMPOSSIBLE = [
    (
        Experiment(algorithm=Jwins(), topology=DirectedRing()),
        "topology: jwins needs a symmetric graph and directed-ring",
    ),
    (Experiment(topology=OnePeerExponential()), "topology: dpsgd needs a symmetric graph"),
    (Experiment(nodes=5, topology=RandomRegular(degree=3)), "topology: a random 3-regular graph of 5 nodes"),
    (Experiment(topology=Cycle((Ring(), RandomRegular(degree=20)))), "topology: degree 20 needs at least 21 nodes"),
    (Experiment(nodes=3), "topology: degree 4 needs at least 5 nodes, 3 were given"),
    (Experiment(nodes=2000, topology=Ring()), "partition: 2000 nodes cannot share 1437 samples"),
    (Experiment(nodes=10**8, topology=FullyConnected()), "partition: 100000000 nodes cannot share 1437 samples"),
    (Experiment(nodes=10**24), "partition: 1000000000000000000000000 nodes cannot share 1437 samples"),
    (Experiment(nodes=10**24, algorithm=Centralized()), "nodes cannot share 1437 samples"),
    (Experiment(partition=Dirichlet(1e-300)), "take a larger alpha or fewer nodes"),
    (Experiment(nodes=1400, topology=Ring(), partition=Dirichlet(1e9)), "take fewer nodes, or iid"),
    (Experiment(nodes=800, topology=Ring(), partition=LabelShards(per_node=2)), "partition: "),
    (Experiment(evaluation=Evaluation(samples=5000)), "evaluation.samples: 5000 was given, there are 360 test samples"),
    (Experiment(evaluation=Evaluation(nodes=17)), "evaluation.nodes: 17 was given, there are 16 nodes"),
]


@pytest.mark.parametrize(("experiment", "words"), IMPOSSIBLE)
def test_what_cannot_run_is_refused_before_the_first_round(experiment: Experiment, words: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as raised:
        gossamer.simulate(experiment, out=tmp_path / "run")
    assert words in str(raised.value)
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Fussy(Dpsgd):
    needs: str = "static"

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({self.needs})


@pytest.mark.parametrize(
    ("needs", "changes", "words"),
    [
        ("static", {"topology": Redrawn(RandomRegular())}, "the same graph in every round"),
        (
            "one_local_step",
            {"local_steps": 3},
            "local_steps: Fussy is defined for one local step per round, 3 was given",
        ),
    ],
)
def test_what_an_algorithm_requires_is_checked(needs: str, changes: dict, words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        gossamer.simulate(replace(Experiment(algorithm=Fussy(needs=needs)), **changes))


def test_a_requirement_that_nothing_checks_is_refused() -> None:
    words = "algorithm: Fussy requires 'symetric', which nothing checks; an algorithm can require changing, "
    with pytest.raises(ExperimentError, match=words):
        gossamer.simulate(Experiment(algorithm=Fussy(needs="symetric")))


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        (Experiment, {"nodes": 1.0}, "nodes must be a whole number, 1.0 (float) was given"),
        (Experiment, {"seed": True}, "seed must be a whole number, True (bool) was given"),
        (Experiment, {"rounds": "10"}, "rounds must be a whole number, '10' (str) was given"),
        (Experiment, {"batch_size": None}, "batch_size must be a whole number, None (NoneType) was given"),
        (Experiment, {"name": 3}, "name must be a text, 3 (int) was given"),
        (Experiment, {"topology": Ring}, "topology must be an instance, the class Ring was given; write Ring()"),
        (Experiment, {"task": Quadratic}, "task must be an instance, the class Quadratic was given; write Quadratic()"),
        (Experiment, {"task": "digits"}, "task must be an instance such as Digits(), 'digits' was given"),
        (Experiment, {"algorithm": "jwins"}, "algorithm must be an instance such as Dpsgd(), 'jwins' was given"),
        (Experiment, {"partition": Ring()}, "partition must be an instance such as Iid(), Ring() was given"),
        (Experiment, {"optimizer": 0.1}, "optimizer must be an instance such as SGD(), 0.1 was given"),
        (Optimizer, {"schedule": Cosine}, f"schedule must be an instance such as Cosine(), {Cosine!r} was given"),
        (Evaluation, {"every": 2.5}, "every must be a whole number, 2.5 (float) was given"),
        (Evaluation, {"samples": "few"}, 'samples must be a whole number or "auto" or "all", \'few\' (str) was given'),
        (Wire, {"mode": "encod"}, 'mode must be "count" or "encode", \'encod\' (str) was given'),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_in_python_too(kind: type, settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        kind(**settings)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b'\xef\xbb\xbfname = "\xc3\xa9t\xc3\xa9"')
    assert toml.load(tmp_path / "mine.toml") == {"name": "été"}


@pytest.mark.parametrize("text", ["a = = 1", "a = " + "[" * 10_000, "a = " + "9" * 10_000])
def test_what_is_not_toml_is_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ExperimentError, match=r"mine.toml is not a TOML file: "):
        toml.load(tmp_path / "mine.toml")


def test_setting_a_new_name_clears_the_settings_of_the_old_one() -> None:
    document = toml.write(RECIPES["jwins-digits"]())
    toml.change(document, "algorithm.name=dpsgd")
    toml.change(document, "topology=ring")
    toml.change(document, "optimizer.schedule.name=cosine")
    experiment = toml.read(document)
    assert (experiment.algorithm, experiment.topology) == (Dpsgd(), Ring())
    assert experiment.optimizer.schedule == Cosine()


def test_settings_are_read_as_toml_and_bare_words_as_text() -> None:
    document: dict = {}
    for setting in ("a.b=0.5", "a.c=true", "a.d=word", "a.e=[1, 2]", 'f="x=y"'):
        toml.change(document, setting)
    assert document == {"a": {"b": 0.5, "c": True, "d": "word", "e": [1, 2]}, "f": "x=y"}


def test_a_class_of_ones_own_is_told_by_its_name() -> None:
    assert toml.write(Experiment(algorithm=Fussy()))["algorithm"] == {"name": "Fussy", "needs": "static"}


def test_the_retired_index_coding_of_older_files_is_passed_over_unless_it_asked_for_the_range_coder():
    document = toml.write(Experiment())
    older = document | {"wire": document["wire"] | {"index_coding": "auto"}}
    assert toml.read(older) == Experiment()
    assert toml.differences(older, document) == []
    with pytest.raises(
        ExperimentError, match=r"wire\.index_coding: 'range' was given, and the range coder was removed"
    ):
        toml.read({"wire": {"index_coding": "range"}})
