from dataclasses import dataclass, replace
from math import cos, pi
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from contract import QUADRATIC, in_blocks, simulated
from gossamer import Experiment, Supervised, resume, simulate
from gossamer.algorithms import Dpsgd, Jwins, Momentum
from gossamer.core import Round
from gossamer.core.rng import Streams
from gossamer.data.partition import LabelShards
from gossamer.experiments import toml
from gossamer.experiments.experiment import Evaluation, ExperimentError
from gossamer.graphs.topologies import Ring
from gossamer.models import Transformer
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import SGD, Adam, AdamW, LocalOptimizer, Optimizer
from gossamer.training.privacy import Privacy
from gossamer.training.schedules import Constant, Cosine, Linear, Plateau, Schedule, Steps


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_local_steps_are_those_of_torch_sgd(momentum: float, nesterov: bool, weight_decay: float) -> None:
    x = nn.Parameter(torch.randn(1, 7))
    sgd = torch.optim.SGD([x], 0.1, momentum, weight_decay=weight_decay, nesterov=nesterov)
    algorithm = Optimizer(0.1, momentum, nesterov, weight_decay).wrap(Dpsgd())
    state = algorithm.init(x.detach().clone())
    for _ in range(5):
        x.grad = torch.randn(1, 7)
        state = algorithm.local_step(state, x.grad, Round(0, 0.1, Streams(0, [0], 0)))
        sgd.step()
    torch.testing.assert_close(algorithm.model(state), x.detach())


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("ours", "theirs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
def test_local_steps_are_those_of_torch_adam(ours: type, theirs: type, weight_decay: float) -> None:
    x = nn.Parameter(torch.randn(1, 700))
    adam = theirs([x], 0.01, (0.8, 0.99), 1e-6, weight_decay)
    algorithm = ours(0.01, (0.8, 0.99), 1e-6, weight_decay).wrap(Dpsgd())
    state = algorithm.init(x.detach().clone())
    for _ in range(50):
        x.grad = torch.randn(1, 700)
        state = algorithm.local_step(state, x.grad, Round(0, 0.01, Streams(0, [0], 0)))
        adam.step()
    torch.testing.assert_close(algorithm.model(state), x.detach())


def test_gradients_are_clipped_as_torch_clips_them_row_by_row() -> None:
    gradient = torch.randn(3, 50) * torch.tensor([[0.01], [1.0], [100.0]])
    found = SGD(clip=2.0).clipped(gradient)
    for row, ours in zip(gradient, found, strict=True):
        x = nn.Parameter(torch.zeros(50))
        x.grad = row.clone()
        nn.utils.clip_grad_norm_([x], 2.0)
        torch.testing.assert_close(ours, x.grad)
    assert torch.equal(found[0], gradient[0])
    assert found[2].norm() == pytest.approx(2.0, rel=1e-5)


def test_accumulated_minibatches_are_one_large_minibatch() -> None:
    large = replace(QUADRATIC, batch_size=12, optimizer=SGD(0.05))
    small = replace(QUADRATIC, batch_size=4, optimizer=SGD(0.05, accumulate=3))
    torch.testing.assert_close(simulated(small), simulated(large))


def test_a_schedule_per_step_counts_local_steps() -> None:
    per_round, per_step = (SGD(2.0, schedule=Linear(warmup=4), schedule_per=per) for per in ("round", "step"))
    assert per_round.learning_rates(1, 6, 2) == pytest.approx([1.0, 1.0])
    assert per_step.learning_rates(1, 6, 2) == pytest.approx([1.5, 2.0])
    assert per_step.learning_rates(5, 6, 2) == pytest.approx([2 * 2 / 8, 2 * 1 / 8])
    assert per_step.learning_rate_at(1, 6, 2) == pytest.approx(1.75)
    assert not torch.equal(*(simulated(replace(QUADRATIC, optimizer=one)) for one in (per_round, per_step)))


def test_on_a_plateau_every_node_slows_down_as_torch_would() -> None:
    schedule, rounds = Plateau(0.5, patience=2, threshold=0.01, least=0.1), 30
    losses = (
        1 + torch.rand(rounds, 3, 1) * torch.tensor([[0.01], [0.5], [1.0]]) - torch.arange(rounds)[:, None, None] / 90
    )
    algorithm = schedule.wrap(Dpsgd())
    state = algorithm.init(torch.zeros(3, 4))
    torchs = [torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0) for _ in range(3)]
    theirs = [torch.optim.lr_scheduler.ReduceLROnPlateau(t, "min", 0.5, 2, 0.01, min_lr=0.1) for t in torchs]
    for number in range(rounds):
        now = Round(number, 1.0, Streams(0, range(3), number), local_steps=2, layer_sizes=(4,))
        for _ in range(2):
            state = algorithm.local_step(state, torch.zeros(3, 4), now._replace(step_loss=losses[number]))
        _, state = algorithm.send(state, now)
        for row, one in enumerate(theirs):
            one.step(losses[number, row].item())
        expected = [one.param_groups[0]["lr"] for one in torchs]
        assert state.factor[:, 0].tolist() == pytest.approx(expected)
    assert len(set(expected)) > 1


class SignState(NamedTuple):
    mean: Tensor  # (B, D)


@dataclass(frozen=True)
class Signed(LocalOptimizer):
    """Lion, the sign of a running mean of gradients: an optimizer of a user's own."""

    learning_rate: float = 0.01

    def init(self, x: Tensor) -> SignState:
        return SignState(torch.zeros_like(x))

    def direction(self, state: SignState, gradient: Tensor, x: Tensor) -> tuple[Tensor, SignState]:
        return (0.9 * state.mean + 0.1 * gradient).sign(), SignState(0.99 * state.mean + 0.01 * gradient)


def small_transformer() -> Supervised:
    """Which of two words is more frequent in a text?"""
    texts = torch.randint(2, 12, (120, 9), generator=torch.Generator().manual_seed(0))
    more = ((texts % 2 == 0).sum(1) > 4).long()
    model = Transformer(width=8, heads=2, layers=1)
    return Supervised(lambda: model.build((12, 9), 2), (texts[:96], more[:96]), (texts[96:], more[96:]))


DIGITS = Experiment(nodes=6, rounds=6, partition=LabelShards(), topology=Ring(), algorithm=Jwins())
EXPERIMENTS = {
    "digits": replace(DIGITS, optimizer=Adam(0.01)),
    "digits, with all that there is": replace(
        DIGITS,
        strategy="vmap",
        optimizer=AdamW(0.01, schedule=Cosine(warmup=4), schedule_per="step", clip=0.5, accumulate=2),
    ),
    "a small transformer": replace(DIGITS, task=small_transformer(), partition=LabelShards(1), optimizer=Adam(0.01)),
    "an optimizer of one's own, on a plateau": replace(DIGITS, optimizer=Signed(schedule=Plateau(patience=0))),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_models_are_the_same_for_any_number_of_workers_and_resumed(name: str, tmp_path: Path) -> None:
    experiment = replace(EXPERIMENTS[name], evaluation=Evaluation(every=3))
    expected = simulate(experiment, workers=1)
    assert simulate(experiment, workers=2).models_sha256 == expected.models_sha256

    class KilledError(Exception):
        pass

    def kill(metrics: object) -> None:
        if len(list((tmp_path / "run").glob("checkpoint*"))):
            raise KilledError

    with pytest.raises(KilledError):
        simulate(experiment, tmp_path / "run", checkpoint_every=2, workers=1, on_round=kill)
    resumed = resume(tmp_path / "run", experiment, workers=2)
    assert resumed.models_sha256 == expected.models_sha256
    assert resumed.result["rounds"] == 6


@pytest.mark.parametrize("name", ["digits", "a small transformer"])
def test_blocks_between_which_only_bytes_go_have_the_same_models(name: str) -> None:
    experiment = replace(EXPERIMENTS[name], strategy="rows")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as peers and the simulator have it: with more, sums run in another order
    try:
        assert torch.equal(in_blocks(experiment, [[i] for i in range(6)]), simulated(experiment))
    finally:
        torch.set_num_threads(threads)


def test_moments_are_kept_by_the_node_and_never_sent() -> None:
    experiment = replace(QUADRATIC, algorithm=Dpsgd(), optimizer=Adam(0.01))
    plain = replace(experiment, optimizer=SGD(0.01))
    with Simulation(experiment, 1) as adam, Simulation(plain, 1) as sgd:
        adam.step(), sgd.step()
        assert adam.experiment.algorithm.parts == sgd.experiment.algorithm.parts
        assert set(adam.save()) - set(sgd.save()) >= {"optimizer.mean", "optimizer.square"}
        assert adam.message_bytes().sum() < 1.2 * sgd.message_bytes().sum()


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.3, 0.9, clip=1.0, accumulate=2),
        Adam(0.01, (0.8, 0.9), schedule=Plateau(least=0.1)),
        AdamW(schedule=Linear(0.1, warmup=3), schedule_per="step"),
    ],
)
def test_optimizers_are_written_to_experiment_files_and_read_again(optimizer: LocalOptimizer) -> None:
    document = toml.write(Experiment(optimizer=optimizer))
    assert toml.read(document).optimizer == optimizer
    assert document["optimizer"]["name"] in ("sgd", "adam", "adamw")


def test_an_optimizer_without_a_name_is_sgd() -> None:
    assert toml.read({"optimizer": {"learning_rate": 0.3, "momentum": 0.5}}).optimizer == SGD(0.3, 0.5)
    assert toml.read({"optimizer": "adam"}).optimizer == Adam()
    before = {"learning_rate": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "quasi_global": False}
    assert toml.differences({"optimizer": before}, {"optimizer": toml.write(Experiment())["optimizer"]}) == [
        "optimizer.schedule"
    ]


def test_a_plateau_is_refused_where_losses_must_stay_private() -> None:
    experiment = Experiment(optimizer=SGD(schedule=Plateau()), privacy=Privacy(1.0, 1.0))
    with pytest.raises(ExperimentError, match=r"privacy: the schedule plateau follows the loss.*take another"):
        experiment.prepared(experiment.load_task())


def test_plain_sgd_needs_no_wrapper() -> None:
    assert Optimizer().wrap(Dpsgd()) == Dpsgd()
    assert Optimizer(momentum=0.9).wrap(Dpsgd()) == Momentum(Dpsgd(), 0.9)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Constant(), [1, 1, 1, 1]),
        (Steps(at=(1, 3), by=0.5), [1, 0.5, 0.5, 0.25]),
        (Steps(at=(3,), by=0.5, warmup=2), [0.1, 0.1, 1, 0.5]),
        (Cosine(), [(1 + cos(pi * t / 4)) / 2 for t in range(4)]),
        (Cosine(final=0.2, warmup=2), [0.5, 1, 1, 0.6]),
        (Linear(), [1, 0.75, 0.5, 0.25]),
        (Linear(final=1.0, warmup=3), [1 / 3, 2 / 3, 1, 1]),
    ],
)
def test_schedules(schedule: Schedule, expected: list[float]) -> None:
    optimizer = Optimizer(learning_rate=2.0, schedule=schedule)
    assert [optimizer.learning_rate_at(t, 4) / 2 for t in range(4)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": 0}, "learning_rate must be over 0"),
        ({"momentum": 1}, "momentum must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"nesterov": True}, "nesterov needs a momentum"),
        (
            {"momentum": 0.9, "quasi_global": True, "schedule": Plateau()},
            "quasi_global divides what the group moved by the learning rate.*take another schedule",
        ),
        ({"learning_rate": float("nan")}, "learning_rate must be over 0"),
        ({"clip": -1}, "clip must be at least 0"),
        ({"accumulate": 0}, "accumulate must be a whole number"),
        ({"schedule_per": "epoch"}, 'schedule_per must be "round" or "step"'),
        ({"schedule": torch.optim.lr_scheduler.StepLR}, "schedule must be an instance such as Cosine"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Optimizer(**settings)


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"betas": (0.9, 1.0)}, "betas must be two numbers"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"epsilon": 0}, "epsilon must be over 0"),
        ({"weight_decay": -1}, "weight_decay must be"),
    ],
)
def test_settings_of_adam_that_cannot_work_are_refused(kind: type, settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**settings)
