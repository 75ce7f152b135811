"""Clipping and noise: what they do to a model, what they cost, and what they do not go with."""

from dataclasses import replace
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import kstest, norm
from torch import Tensor

import gossamer
from gossamer.algorithms import ALGORITHMS, Dpsgd, Jwins, RelativeToInit, SkewScout
from gossamer.algorithms.composition import expand
from gossamer.compressors import TopK
from gossamer.core import Algorithm, Round
from gossamer.core.rng import Streams
from gossamer.core.state import tensors_of
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
from gossamer.experiments.recipes import dpsgd_digits
from gossamer.graphs.topologies import Ring
from gossamer.simulator.simulation import Simulation
from gossamer.training.block import Block
from gossamer.training.optimizer import Optimizer
from gossamer.training.privacy import Privacy, secret, seeded
from gossamer.training.schedules import Cosine

SMALL = Experiment(nodes=4, rounds=3, local_steps=2, batch_size=4, topology=Ring(), task=Quadratic(dimension=2000))


def block(experiment: Experiment, noise: Any = seeded) -> Block:
    task = experiment.load_task()
    shards = experiment.shards(task)
    x0 = task.initial_model(0).repeat(experiment.nodes, 1)
    return Block(experiment, experiment.trainer_for(task), range(experiment.nodes), shards, x0, noise)


def without_noise(round: Round, width: int) -> Tensor:
    return torch.zeros(len(round.rng.nodes), width, dtype=torch.float64)


@pytest.mark.parametrize("source", [seeded, secret])
def test_noise_is_standard_normal_and_of_every_node_and_round_its_own(source: Any) -> None:
    drawn = [source(Round(t, 0.1, Streams(5, [0, 1], t)), 20_001) for t in (0, 1)]
    numbers = torch.cat(drawn).numpy()
    assert numbers.shape == (4, 20_001)
    for row in numbers:
        assert kstest(row, "norm").pvalue > 1e-6
        assert abs(np.mean(np.abs(row) > 3) - 2 * norm.cdf(-3)) < 1.5e-3
    assert np.abs(np.corrcoef(numbers) - np.eye(4)).max() < 0.05
    halves = np.stack([numbers[:, :10_000], numbers[:, 10_001:]])  # of a pair of numbers, one each
    assert abs(np.corrcoef(halves.reshape(2, -1))[0, 1]) < 0.03


def test_seeded_noise_can_be_drawn_again_and_secret_noise_cannot() -> None:
    now = Round(3, 0.1, Streams(5, [2], 3))
    assert torch.equal(seeded(now, 7), seeded(now, 7))
    assert torch.equal(seeded(now, 7), seeded(Round(3, 0.1, Streams(5, [1, 2], 3)), 7)[1:])
    assert not torch.equal(secret(now, 7), secret(now, 7))


def test_a_rounds_change_is_clipped_and_its_noise_has_the_stated_deviation() -> None:
    free = block(replace(SMALL, privacy=Privacy(clip=1e6, noise=1.0)), without_noise)
    free.train(0)
    change = free.models()
    norms = change.norm(dim=1)
    assert norms.min() > 1
    clip = float(norms.median())  # holds some, and not others
    held = block(replace(SMALL, privacy=Privacy(clip, 1.0)), without_noise)
    held.train(0)
    expected = change * (clip / norms).clamp(max=1)[:, None]
    torch.testing.assert_close(held.models(), expected, rtol=1e-5, atol=1e-6)
    noisy = block(replace(SMALL, privacy=Privacy(clip, 3.0)))
    noisy.train(0)
    noise = noisy.models() - expected
    assert noise.std(dim=1).numpy() == pytest.approx(np.full(4, 3 * clip), rel=0.06)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_change_that_is_not_finite_or_as_large_as_can_be_stays_in_the_ball(value: float) -> None:
    change = torch.ones(2, 10)
    change[1] = value
    held = Privacy(2.0, 1.0).protect(change, torch.zeros(2, 10, dtype=torch.float64))
    assert held.norm(dim=1).max() <= 2.0001
    assert held[0].norm() == pytest.approx(2.0)


def test_clipped_by_nothing_and_hardly_noised_it_is_the_plain_algorithm() -> None:
    plain, private = block(SMALL), block(replace(SMALL, privacy=Privacy(1e6, 1.0)), without_noise)
    for each in (plain, private):
        each.train(0)
    torch.testing.assert_close(private.models(), plain.models())


ANY_KIND = ("dpsgd", "jwins", "gradient-tracking", "sparse-push", "choco", "d2")


@pytest.mark.parametrize("name", ANY_KIND)
def test_whatever_the_data_are_a_change_stays_in_the_ball(name: str) -> None:
    for spread in (1.0, 50.0):  # other data of the same size, and larger gradients
        of = _block_on(spread, name)
        before = of.models().clone()
        of.train(0)
        assert (of.models() - before).norm(dim=1).max() <= 0.5 * 1.0001


@pytest.mark.parametrize("name", ANY_KIND)
def test_an_algorithm_is_shown_nothing_of_the_data_but_the_protected_change(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_a_round(spread: float) -> dict[str, Tensor]:
        of = _block_on(spread, name)
        of.train(0)
        message = of.send(0)
        return dict(tensors_of(of.state)) | {f"sent {part}": sent.values for part, sent in message.items()}

    one, other = after_a_round(1.0), after_a_round(50.0)
    assert any(not torch.equal(one[of], other[of]) for of in one)
    monkeypatch.setattr(Privacy, "protect", lambda self, change, noise: torch.full_like(change, 0.01))
    one, other = after_a_round(1.0), after_a_round(50.0)
    assert all(torch.equal(one[of], other[of]) for of in one)


def _block_on(spread: float, name: str) -> Block:
    task = Quadratic(dimension=2000, spread=spread)
    privacy = Privacy(clip=0.5, noise=1.0)
    algorithm = expand(_default(name))
    return block(replace(SMALL, local_steps=1, algorithm=algorithm, privacy=privacy, task=task), without_noise)


def _default(name: str) -> Algorithm:
    kind = ALGORITHMS[name]
    try:
        return kind()
    except TypeError:
        return kind(TopK(0.1))  # type: ignore[call-arg]


def exact_epsilon(noise: float, releases: int, delta: float) -> float:
    """Of composed Gaussian mechanisms: Balle and Wang, "Improving the Gaussian mechanism", 2018, theorem 8."""
    mu = 2 * sqrt(releases) / noise
    return float(
        brentq(lambda e: norm.cdf(mu / 2 - e / mu) - exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 300)  # type: ignore[operator]
    )


@pytest.mark.parametrize(("noise", "releases"), [(1.0, 1), (2.0, 10), (10.0, 100), (40.0, 1500)])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_epsilon_is_that_of_the_composed_gaussian_mechanism_and_never_less(
    noise: float, releases: int, delta: float
) -> None:
    found, exact = Privacy(1.0, noise, delta).epsilon(releases), exact_epsilon(noise, releases, delta)
    assert exact <= found <= 1.2 * exact


def test_epsilon_by_renyis_orders_is_the_published_formula() -> None:
    """Mironov, "Renyi differential privacy", 2017: alpha / (2 sigma^2) a release, converted by his proposition 3."""
    orders = np.linspace(1.01, 200, 20_000)
    loose = np.min(50 * orders / (2 * 5.0**2) + np.log(1e5) / (orders - 1))
    assert 0.8 * loose < Privacy(1.0, 10.0).epsilon(50) <= loose


def test_digits_are_learned_at_a_mild_noise_and_what_it_cost_is_reported() -> None:
    experiment = replace(dpsgd_digits(), nodes=8, rounds=40, evaluation=Evaluation(40))
    mild = Privacy(clip=1.0, noise=0.02)
    result = gossamer.simulate(replace(experiment, privacy=mild)).result
    plain = gossamer.simulate(experiment).result
    assert result["accuracy_mean"] > plain["accuracy_mean"] - 0.1 > 0.5
    assert result["epsilon"] == pytest.approx(mild.epsilon(40), rel=1e-4)
    assert result["delta"] == 1e-5
    assert "epsilon" not in plain
    drowned = gossamer.simulate(replace(experiment, privacy=Privacy(clip=1.0, noise=2.0))).result
    assert drowned["accuracy_mean"] < 0.5, "noise of this size cannot leave the models as they are"


def test_a_private_run_is_the_same_in_any_number_of_workers() -> None:
    experiment = replace(dpsgd_digits(), nodes=5, rounds=3, topology=Ring(), strategy="rows", algorithm=Jwins())
    experiment = replace(experiment, privacy=Privacy(1.0, 0.1), optimizer=Optimizer(momentum=0.9, schedule=Cosine()))
    found = []
    for workers in (1, 2):
        with Simulation(experiment, workers) as simulation:
            for _ in range(3):
                simulation.step()
            found.append(simulation.models().clone())
    assert torch.equal(found[0], found[1])


MISTAKES: list[tuple[dict[str, float], str]] = [
    ({"clip": -1.0}, "clip must be at least 0"),
    ({"noise": 1.0}, "set clip over 0"),
    ({"clip": 1.0}, "noise must be at least 0.01"),
    ({"clip": 1.0, "noise": 1.0, "delta": 0.0}, "delta must be between 0 and 1"),
]


@pytest.mark.parametrize(("given", "complaint"), MISTAKES)
def test_settings_that_protect_nothing_are_refused(given: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Privacy(**given)


def test_other_ways_out_for_data_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running(Quadratic):
        buffers = torch.zeros(3)

    cases: list[tuple[dict[str, Any], str]] = [
        ({"algorithm": SkewScout()}, "skew-scout shares more or less by the loss"),
        ({"algorithm": RelativeToInit(SkewScout())}, "relative-to-init shares more or less by the loss"),
        ({"algorithm": ALGORITHMS["centralized"]()}, "hold all data"),
        ({"task": Running(dimension=5)}, "running statistics"),
    ]
    for change, complaint in cases:
        experiment = replace(SMALL, privacy=Privacy(1.0, 1.0), **change)
        with pytest.raises(ExperimentError, match=complaint):
            experiment.prepared(experiment.load_task())
    monkeypatch.setattr("gossamer.training.privacy.find_spec", lambda name: None)
    private = replace(SMALL, privacy=Privacy(1.0, 1.0), algorithm=Dpsgd())
    with pytest.raises(ExperimentError, match=r"install gossamer\[privacy\]"):
        private.prepared(private.load_task())
