from math import cos, pi

import pytest
import torch
from torch import nn

from gossamer.algorithms import Dpsgd, Momentum
from gossamer.core import Round
from gossamer.core.rng import Streams
from gossamer.training.optimizer import Constant, Cosine, Optimizer, Schedule, Steps


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
        ({"learning_rate": float("nan")}, "learning_rate must be over 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Optimizer(**settings)
