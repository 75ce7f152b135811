"""`algorithm = "auto"`: what is chosen, and that the choice is kept and told."""

from dataclasses import replace
from pathlib import Path

import pytest

from gossamer import simulate
from gossamer.algorithms import Dpsgd, Lace, QuantizedJwins, QuantSgp, RelativeToInit, SparsePush
from gossamer.compressors import DeadZone
from gossamer.data import Quadratic
from gossamer.experiments import toml
from gossamer.experiments.auto import Auto, choose
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.topologies import (
    DirectedRing,
    FullyConnected,
    Matchings,
    OnePeerExponential,
    RandomRegular,
    Redrawn,
    Ring,
    Topology,
)
from gossamer.simulator.simulate import resume
from gossamer.training.optimizer import SGD
from gossamer.transforms import Wavelet

BASE = Experiment(nodes=16, rounds=80, task=Quadratic(dimension=2000, num_samples=160), algorithm=Auto())


@pytest.mark.parametrize(
    ("topology", "budget", "algorithm", "taken"),
    [
        (RandomRegular(4), None, Lace(0.04), Matchings(graph=RandomRegular(4))),
        (Ring(), None, Lace(0.04), Matchings(graph=Ring())),
        (FullyConnected(), None, Lace(0.04), Matchings()),
        (Matchings(), None, Lace(0.04), Matchings()),
        (RandomRegular(4), 0.5, RelativeToInit(QuantizedJwins(8)), RandomRegular(4)),
        (RandomRegular(4), 0.1, RelativeToInit(QuantizedJwins(8, budget=0.2)), RandomRegular(4)),
        (RandomRegular(4), 0.06, Lace(0.2), Matchings(graph=RandomRegular(4))),
        (DirectedRing(), None, RelativeToInit(QuantSgp(DeadZone(0.2), 0.7, Wavelet())), DirectedRing()),
        (DirectedRing(), 0.01, RelativeToInit(QuantSgp(DeadZone(0.1), 0.5, Wavelet())), DirectedRing()),
        (
            OnePeerExponential(),
            None,
            RelativeToInit(SparsePush(DeadZone(0.2), 0.5, Wavelet())),
            OnePeerExponential(),
        ),
        (Redrawn(RandomRegular(4)), None, RelativeToInit(QuantizedJwins(8)), Redrawn(RandomRegular(4))),
        (Redrawn(RandomRegular(4)), 0.06, RelativeToInit(QuantizedJwins(6, budget=0.1)), Redrawn(RandomRegular(4))),
    ],
)
def test_the_graph_and_the_budget_decide(
    topology: Topology, budget: float | None, algorithm: object, taken: Topology
) -> None:
    chosen = choose(replace(BASE, topology=topology, algorithm=Auto(budget)))
    assert (chosen.algorithm, chosen.topology) == (algorithm, taken)
    assert chosen.settle == 8
    assert chosen.note.startswith("auto chose ")
    assert choose(chosen) is chosen


def test_with_quasi_global_momentum_a_large_budget_is_not_spent_on_jwins() -> None:
    momentum = SGD(momentum=0.9, quasi_global=True)
    chosen = choose(replace(BASE, topology=RandomRegular(4), algorithm=Auto(0.5), optimizer=momentum))
    assert chosen.algorithm == Lace(0.2)
    own = replace(BASE, topology=RandomRegular(4), algorithm=Auto(0.5), optimizer=replace(momentum, quasi_global=False))
    assert choose(own).algorithm == RelativeToInit(QuantizedJwins(8))


def test_where_nodes_wait_for_nobody_a_large_budget_is_not_spent_on_jwins() -> None:
    chosen = choose(replace(BASE, topology=RandomRegular(4), algorithm=Auto(0.5), asynchronous=True))
    assert chosen.algorithm == Lace(0.2)
    chosen.prepared(chosen.load_task())


@pytest.mark.parametrize("topology", [RandomRegular(4), Redrawn(RandomRegular(4))])
@pytest.mark.parametrize("settle", [8, 9])
def test_that_no_round_would_train_is_said_of_the_experiment(topology: Topology, settle: int) -> None:
    experiment = replace(BASE, topology=topology, algorithm=Auto(0.5), rounds=8, settle=settle)
    with pytest.raises(ExperimentError, match="none would train; take more rounds, or a smaller settle"):
        experiment.prepared(experiment.load_task())


@pytest.mark.parametrize(
    ("topology", "least"),
    [(Redrawn(RandomRegular(4)), "0.047"), (RandomRegular(4), "0.00065"), (DirectedRing(), "0.022")],
)
def test_a_budget_that_cannot_be_met_is_told(topology: Topology, least: str) -> None:
    note = choose(replace(BASE, topology=topology, algorithm=Auto(0.0001))).note
    assert f"this takes about {least} of full sharing's bytes, and the budget of 0.0001 is less" in note
    assert "this takes" not in choose(replace(BASE, topology=topology, algorithm=Auto(0.06))).note


def test_the_users_own_algorithm_and_number_of_rounds_to_settle_stay() -> None:
    own = replace(BASE, algorithm=Dpsgd())
    assert choose(own) is own
    assert choose(replace(BASE, settle=3)).settle == 3
    assert choose(replace(BASE, note="for the paper")).note.startswith("for the paper; auto chose lace")


@pytest.mark.parametrize("budget", [0.005, 0.03])
def test_lace_keeps_as_much_as_the_budget_allows(budget: float) -> None:
    task = Quadratic(dimension=20_000, num_samples=160)  # with fewer, frames take most bytes
    wide = replace(BASE, rounds=12, local_steps=1, task=task)
    experiment = choose(replace(wide, algorithm=Auto(budget)))
    sent = simulate(experiment, workers=1).result["bytes_total"]
    full = simulate(replace(wide, algorithm=Dpsgd(), settle=3), workers=1).result["bytes_total"]
    assert 0.4 * budget < sent / full < 1.25 * budget


def test_a_run_keeps_the_choice_and_is_continued_with_it(tmp_path: Path) -> None:
    short = replace(BASE, rounds=8)
    run = simulate(short, tmp_path / "run", workers=1)
    document = toml.load(tmp_path / "run" / "experiment.toml")
    assert document["algorithm"]["name"] == "lace"
    assert document["note"].startswith(
        "auto chose lace over matchings (kept 0.04; 2 exchanges per round, 2 rounds to settle)"
    )
    assert resume(tmp_path / "run", short).result == run.result
    assert short.prepared(short.load_task()).algorithm.parts["q"].channels > 1


@pytest.mark.parametrize(("budget", "settle"), [(0.14, 3), (0.08, 3), (0.036, 3), (0.08, 20)])
def test_jwins_stays_within_the_budget(budget: float, settle: int) -> None:
    task = Quadratic(dimension=20_000, num_samples=160)  # with fewer, frames take most bytes
    wide = replace(BASE, nodes=8, rounds=100, local_steps=1, task=task, topology=Redrawn(RandomRegular(4)))
    wide = replace(wide, settle=settle)
    sent = simulate(choose(replace(wide, algorithm=Auto(budget))), workers=1).result["bytes_total"]
    full = simulate(replace(wide, algorithm=Dpsgd()), workers=1).result["bytes_total"]
    assert 0.6 * budget < sent / full < budget


@pytest.mark.parametrize("topology", [DirectedRing(), OnePeerExponential(), Redrawn(RandomRegular(4))])
def test_what_is_chosen_for_directed_and_changing_graphs_trains_and_is_continued(
    topology: Topology, tmp_path: Path
) -> None:
    experiment = replace(BASE, rounds=8, topology=topology)
    run = simulate(experiment, tmp_path / "run", workers=1)
    assert resume(tmp_path / "run", experiment).result == run.result
    assert toml.load(tmp_path / "run" / "experiment.toml")["algorithm"]["name"] == "relative-to-init"
    assert run.result["bytes_share_of_full"] < 0.2


def test_a_budget_that_cannot_be_is_refused() -> None:
    with pytest.raises(ExperimentError, match="budget must be above 0 and at most 1, 2"):
        toml.read({"algorithm": {"name": "auto", "budget": 2.0}})
