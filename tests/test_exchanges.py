"""Several exchanges per round: each has a mixing matrix, messages and an inbox of its own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from contract import QUADRATIC, in_blocks, of, simulated
from gossamer.algorithms import D2, Dpsgd
from gossamer.experiments.experiment import ExperimentError, Wire
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import RandomRegular
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Optimizer

SEVERAL = ["dpsgd", "jwins", "random-sampling", "choco", "silk", "sparse-push", "quasi-global-momentum"]


@pytest.mark.parametrize("optimizer", [Optimizer(0.2), Optimizer(0.2, 0.9, quasi_global=True)])
def test_full_sharing_multiplies_by_a_matrix_for_each_exchange(optimizer: Optimizer) -> None:
    experiment = replace(
        QUADRATIC, algorithm=Dpsgd(), exchanges=3, batch_size=30, local_steps=1, rounds=5, optimizer=optimizer
    )
    task = experiment.task.load()
    centres = np.stack([task.points[shard].double().numpy().mean(0) for shard in experiment.shards(task)])
    curvature, beta = task.curvature.double().numpy(), optimizer.momentum
    x = m = np.zeros((7, 53))
    for t in range(5):
        start = x
        x = x - 0.2 * (beta * m + curvature * (x - centres))
        for exchange in range(3 * t, 3 * t + 3):
            x = experiment.topology.at(7, experiment.seed, exchange).dense() @ x
        m = beta * m + (1 - beta) * (start - x) / 0.2  # once per round, however many exchanges it has
    np.testing.assert_allclose(simulated(experiment).numpy(), x, atol=5e-6)


@pytest.mark.parametrize("case", SEVERAL)
@pytest.mark.parametrize("faults", [Faults(), Faults(drop=0.2, down=((2, 2, 3),), late=((4, 1),))])
def test_blocks_that_exchange_only_bytes_have_the_simulators_models(case: str, faults: Faults) -> None:
    experiment = of(case, exchanges=2, faults=faults, wire=Wire(mode="encode"), rounds=4)
    ledger: dict[tuple[int, int, int], int] = {}
    models = in_blocks(experiment, [[0, 4, 5], [1], [2, 3, 6]], ledger)
    with Simulation(experiment, workers=1) as simulation:
        total, by_link = 0, 0
        for _ in range(4):
            total += simulation.step()["bytes_total"]
            lines = simulation.ledger()
            assert {line["exchange"] for line in lines} == {0, 1}
            by_link += sum(line.get(kind, 0) for line in lines for kind in ("header", "indices", "values", "resync"))
        assert torch.equal(simulation.models(), models)
    assert total == by_link == sum(ledger.values())


def test_a_run_with_several_exchanges_goes_on_from_saved_state() -> None:
    experiment = of("choco", exchanges=2, faults=Faults(drop=0.2, late=((4, 1),)))
    with Simulation(experiment, workers=1) as first:
        for _ in range(3):
            first.step()
        saved, totals = {name: tensor.clone() for name, tensor in first.save().items()}, dict(first.totals)
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, round=3, totals=totals)
        for _ in range(3):
            second.step()
        assert torch.equal(second.models(), simulated(experiment))


def test_what_is_defined_for_one_exchange_refuses_more() -> None:
    experiment = replace(QUADRATIC, algorithm=D2(), topology=RandomRegular(4), local_steps=1, exchanges=2)
    with pytest.raises(ExperimentError, match="exchanges: d2 is defined for one exchange per round, 2 was given"):
        simulated(experiment)
