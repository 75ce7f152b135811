"""Pairs that share a memory: what becomes of it when messages are lost, late or come from nobody any more."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import gossamer
from contract import QUADRATIC, in_blocks, of
from gossamer.algorithms import Dpsgd, Lace
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import Matchings, RandomRegular, Ring
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Optimizer

STILL = {"optimizer": Optimizer(1e-30)}  # local steps that move nothing
LOSSES = {
    "drop": Faults(drop=0.3),
    "down": Faults(drop=0.3, down=((2, 3, 9),)),
    "late": Faults(late=((1, 1), (3, 2))),
    "all": Faults(drop=0.2, down=((2, 3, 9),), late=((1, 1), (3, 2))),
}


def stepped(experiment: Experiment, rounds: int, saved: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The state after so many rounds; from a saved one, if any."""
    with Simulation(experiment, workers=1) as simulation:
        if saved is None:
            x = torch.randn(7, 53, generator=torch.Generator().manual_seed(1))
            saved = {name: tensor.clone() for name, tensor in simulation.save().items()} | {"inner.x": x}
        simulation.restore(saved, 0, simulation.totals)
        for _ in range(rounds):
            simulation.step()
        return {name: tensor.clone() for name, tensor in simulation.save().items()}


@pytest.mark.parametrize("faults", LOSSES.values(), ids=LOSSES)
def test_what_was_lost_is_only_late_so_the_mean_is_right_again_after_each_pair_has_met(faults: Faults) -> None:
    start = torch.randn(7, 53, generator=torch.Generator().manual_seed(1)).double().mean(0)
    lossy = stepped(of("lace", rounds=40, faults=faults, **STILL), rounds=12)  # all three pairings four times
    drift = (lossy["inner.x"].double().mean(0) - start).norm() / start.norm()
    assert drift > 1e-3  # so there is something to be made good
    good = of("lace", rounds=40, **STILL)
    kept = {name: tensor[-3 * 7 :] if "messages" in name else tensor for name, tensor in lossy.items()}
    if lossy["messages.q.values"].shape[0] > 3 * 7:  # with late ones, sums of earlier exchanges lie there, too
        newest = lossy["messages.q.values"].view(-1, 3, 7, 53)
        kept["messages.q.values"] = newest[(12 // 3 - 1) % len(newest)].reshape(-1, 53)
    whole = stepped(good, 3, kept)
    drift = (whole["inner.x"].double().mean(0) - start).norm() / start.norm()
    assert drift < 2e-6


def test_a_node_whose_partners_are_gone_stays_where_it_is() -> None:
    gone = Faults(down=tuple((node, 1, 40) for node in range(7) if node != 2))
    after = stepped(of("lace", rounds=40, faults=gone, **STILL), rounds=12)
    before = torch.randn(7, 53, generator=torch.Generator().manual_seed(1))
    assert torch.equal(after["inner.x"][2], before[2])


@pytest.mark.parametrize(
    "faults",
    [Faults(drop=0.05), Faults(drop=0.2), Faults(down=((2, 20, 36),)), Faults(down=((2, 40, 80),)), LOSSES["late"]],
    ids=["5 % lost", "20 % lost", "away for a fifth", "never returns", "late"],
)
def test_learning_goes_on(faults: Faults) -> None:
    base = of("lace", rounds=80, settle=6, optimizer=Optimizer(0.05))
    good, bad = (gossamer.simulate(replace(base, faults=f)).models for f in (Faults(), faults))
    assert good is not None
    assert bad is not None
    optimum = QUADRATIC.task.load().optimum  # type: ignore[attr-defined]
    up = [node for node in range(7) if node not in {n for n, _, last in faults.down if last == 80}]
    errors = [(models[up] - optimum).norm(dim=1).max().item() for models in (good, bad)]
    assert errors[1] < 1.5 * errors[0] + 0.05 * optimum.norm().item()


SLOW = Faults(drop=0.1, slow=((2, 3), (4, 5)))


def test_nodes_with_clocks_of_their_own_are_in_blocks_as_in_the_simulator() -> None:
    experiment = of("lace", rounds=16, settle=4, asynchronous=True, faults=SLOW)
    models = gossamer.simulate(experiment).models
    assert models is not None
    assert torch.equal(in_blocks(experiment, [[0, 4, 5], [1], [2, 3, 6]]), models)
    assert not torch.equal(models, gossamer.simulate(replace(experiment, faults=Faults(drop=0.1))).models)


def test_a_slow_node_is_ready_in_some_rounds_and_settles_with_all() -> None:
    delivery = of("lace", rounds=16, settle=4, asynchronous=True, faults=SLOW).delivery
    assert [bool(delivery.up(t)[2]) for t in range(16)] == [t % 3 == 2 or t >= 12 for t in range(16)]
    assert all(delivery.up(t)[0] for t in range(16))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": Dpsgd(), "asynchronous": True}, "dpsgd needs the messages of one round at a time"),
        ({"faults": Faults(slow=((1, 2),))}, r"faults\.slow: everyone waits for a slow node"),
    ],
)
def test_what_cannot_be_asynchronous_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        gossamer.simulate(replace(of("lace"), **changes))


@pytest.mark.slow
@pytest.mark.parametrize(("drop", "points"), [(0.05, 1), (0.2, 2)])
def test_the_digits_are_learned_as_well_with_lost_messages(drop: float, points: float) -> None:
    base = RECIPES["lace-digits"]()
    good, bad = (gossamer.simulate(replace(base, faults=Faults(drop=p))).result for p in (0.0, drop))
    assert bad["accuracy_mean"] > good["accuracy_mean"] - points / 100
    assert bad["bytes_total"] < 1.5 * good["bytes_total"]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
def test_any_number_of_nodes_can_meet_in_pairs(nodes: int) -> None:
    experiment = replace(QUADRATIC, nodes=nodes, algorithm=Lace(kept=0.3), topology=Matchings(), rounds=32, settle=16)
    models = gossamer.simulate(experiment).models
    assert models is not None
    assert (models - models.mean(0)).norm() < 0.1 * models.norm()


@pytest.mark.parametrize("topology", [RandomRegular(4), Ring(), gossamer.OnePeerExponential()])
def test_graphs_without_pairs_that_return_are_refused(topology: gossamer.Topology) -> None:
    with pytest.raises(ExperimentError, match=r"lace|pair-gossip"):
        gossamer.simulate(replace(QUADRATIC, algorithm=Lace(), topology=topology, rounds=2))
