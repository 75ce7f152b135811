"""Experiments and their files: what is read is what was written, and mistakes are explained."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import gossamer
from gossamer import toml
from gossamer.algorithms import Dpsgd, Jwins, RandomSampling
from gossamer.experiment import Evaluation, Experiment, ExperimentError
from gossamer.optimizer import Cosine, Optimizer, Steps
from gossamer.partition import Dirichlet, LabelShards
from gossamer.recipes import RECIPES
from gossamer.tasks import Quadratic
from gossamer.topologies import Cycle, DirectedRing, OnePeerExponential, RandomRegular, Redrawn, Ring

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
    Experiment(optimizer=Optimizer(schedule=Cosine(final=0.1, warmup=5)), algorithm=RandomSampling(budget=1)),
]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_survives_being_written_and_read(experiment: Experiment) -> None:
    assert toml.read(tomllib.loads(toml.dumps(experiment))) == experiment


def test_the_commented_example_is_the_recipe_jwins_digits() -> None:
    text = (Path(gossamer.__file__).parent / "recipes" / "experiment.toml").read_text()
    assert toml.read(tomllib.loads(text)) == RECIPES["jwins-digits"]()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_named_as_it_is_called(name: str) -> None:
    assert RECIPES[name]().name == name


def test_a_name_alone_stands_for_its_defaults() -> None:
    assert toml.read({"algorithm": "jwins", "topology": "ring"}) == Experiment(algorithm=Jwins(), topology=Ring())


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
    "node=4": "node: there is no such key (did you mean nodes?); an experiment takes name, seed, ",
    "task=7": "task: a name is needed, one of digits, quadratic",
    "optimizer.learning_rate=-1": "optimizer.learning_rate must be over 0, -1.0 was given",
    "optimizer.schedule.name=steps": "optimizer.schedule.at: 'steps' needs it; it must be a list, each a whole number",
    "optimizer=3": "optimizer: 3 was given, a section is needed",
    "evaluation.samples=few": "evaluation.samples: 'few' was given, it must be a whole number or \"all\"",
    "evaluation.every=0": "evaluation.every must be at least 1, 0 was given",
    "topology={name='cycle', graphs='ring'}": "topology.graphs: 'ring' was given, a list is needed",
    "topology={name='cycle', graphs=['rink']}": "topology.graphs[0].name: there is no 'rink' (did you mean ring?)",
    "topology={name='redrawn'}": "topology.graph: 'redrawn' needs it; it must be one of ring, ",
    "topology.degree=-3": "topology.degree must be at least 1, -3 was given",
    "nodes.x=1": "--set nodes.x=1: nodes is a value, not a section",
    "rounds": "--set rounds: write it as key=value",
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
        ("one_local_step", {"local_steps": 3}, "local_steps: Fussy is defined for one local step a round, 3 was given"),
    ],
)
def test_what_an_algorithm_requires_is_checked(needs: str, changes: dict, words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        gossamer.simulate(replace(Experiment(algorithm=Fussy(needs=needs)), **changes))


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
