"""The contract, over every algorithm of the table."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from contract import CASES, QUADRATIC, in_blocks, of, simulated
from gossamer.algorithms import (
    ALGORITHMS,
    D2,
    AdPsgd,
    AllReduce,
    DeepSqueeze,
    Dpsgd,
    Epidemic,
    Jwins,
    RandomSampling,
    Sgp,
    SkewScout,
)
from gossamer.algorithms.composition import expand
from gossamer.compressors import Qsgd
from gossamer.core import Algorithm, Message, Part, Round, State
from gossamer.core.inbox import BlockInbox
from gossamer.core.rng import Streams
from gossamer.data import Digits, Quadratic
from gossamer.data.partition import Iid, LabelShards
from gossamer.experiments.experiment import Evaluation, ExperimentError
from gossamer.graphs.delivery import Delivery
from gossamer.graphs.topologies import (
    Cycle,
    DirectedRing,
    FullyConnected,
    RandomMatching,
    RandomRegular,
    Redrawn,
    Ring,
    Star,
    Torus,
)
from gossamer.simulator.block_runner import edges_of
from gossamer.simulator.simulation import Simulation
from gossamer.training.optimizer import Optimizer
from gossamer.transforms import Wavelet


def cases(*kinds: str) -> list[str]:
    return [case for case in CASES if CASES[case].conserves in kinds]


ONE_EACH = [[i] for i in range(7)]
KINDS = [
    "jwins",
    "choco",
    "sparse-push-from-start",
    "random-sampling",
    "clipped-gossip",
    "comp-cga",
]  # of messages and inboxes


@pytest.mark.parametrize("case", CASES)
def test_nodes_that_exchange_only_bytes_have_the_models_of_the_simulator(case: str) -> None:
    whole = simulated(of(case))
    assert whole.isfinite().all()
    assert torch.equal(in_blocks(of(case), ONE_EACH), whole)


@pytest.mark.parametrize("case", KINDS)
def test_any_split_of_the_nodes_into_blocks_gives_the_same_models(case: str) -> None:
    whole = simulated(of(case))
    assert torch.equal(simulated(of(case), workers=2), whole)
    for split in ([range(7)], [[0, 4, 5], [1], [2, 3, 6]]):
        assert torch.equal(in_blocks(of(case), split), whole)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=7, max_size=7), st.sampled_from(sorted(CASES)))
def test_nodes_may_be_dealt_to_blocks_in_any_way(block_of: list[int], case: str) -> None:
    split = [[i for i in range(7) if block_of[i] == b] for b in sorted(set(block_of))]
    assert torch.equal(in_blocks(of(case, rounds=2), split), simulated(of(case, rounds=2)))


def test_networks_too_are_the_same_in_any_number_of_workers() -> None:
    experiment = of("jwins", task=Digits(hidden=5), rounds=3)
    assert torch.equal(simulated(experiment, workers=3), simulated(experiment))


ORACLES = {
    "dpsgd": oracles.dpsgd,
    "random-sampling": oracles.random_sampling,
    "jwins": oracles.jwins,
    "jwins-without-wavelet": oracles.jwins_without_wavelet,
    "jwins-without-accumulation": oracles.jwins_without_accumulation,
    "jwins-without-randomized-cutoff": oracles.jwins_without_randomized_cutoff,
    "jwins-8-bit": oracles.jwins_8_bit,
    "choco": oracles.choco,
    "silk": oracles.silk,
    "lace": oracles.lace,
    "deep-squeeze": oracles.deep_squeeze,
    "d2": oracles.d2,
    "gradient-tracking": oracles.gradient_tracking,
    "dcd-psgd": oracles.dcd_psgd,
    "ecd-psgd": oracles.ecd_psgd,
    "sgp": oracles.sgp,
    "sparse-push": oracles.sparse_push,
    "sparse-push-from-start": oracles.sparse_push,  # the start is 0 here
    "scsp": oracles.scsp,
    "quant-sgp": oracles.quant_sgp,
    "jwins-push": oracles.jwins_push,
    "quasi-global-momentum": oracles.quasi_global_momentum,
    "adam": oracles.adam,
    "drift-correction": oracles.drift_correction,
    "drift-correction-of-choco": oracles.drift_correction_of_choco,
    "skew-scout": oracles.skew_scout,
    "clipped-gossip": oracles.clipped_gossip,
    "clipped-gossip-fixed": oracles.clipped_gossip_fixed,
    "cga": oracles.cga,
    "cga-projection": oracles.cga_projection,
    "comp-cga": oracles.comp_cga,
    "comp-cga-top-k": oracles.comp_cga_top_k,
    "coordinate-median": oracles.coordinate_median,
    "epidemic": oracles.epidemic,
    "ad-psgd": oracles.dpsgd,
    "all-reduce": oracles.dpsgd,
}


@pytest.mark.parametrize("case", ORACLES)
def test_the_papers_recursion_gives_the_same_models(case: str) -> None:
    experiment = of(case, batch_size=30, rounds=12)  # every batch is a node's whole data
    task = QUADRATIC.task.load()
    points = [task.points[shard].double().numpy() for shard in experiment.shards(task)]
    centres, curvature = np.stack([p.mean(0) for p in points]), task.curvature.double().numpy()
    weights = [experiment.topology.at(7, experiment.seed, t).dense() for t in range(12)]
    if case == "d2":
        weights = [(w + np.eye(7)) / 2 for w in weights]
    problem = oracles.Problem(
        x=np.zeros((7, 53)),
        gradient=lambda x: curvature * (x - centres),
        loss=lambda x: np.array(
            [(curvature * (own - p) ** 2).sum(1).mean() / 2 for own, p in zip(x, points, strict=True)]
        ),
        lr=experiment.optimizer.learning_rate,
        local_steps=experiment.local_steps,
        weights=weights,
        seed=experiment.seed,
    )
    np.testing.assert_allclose(simulated(experiment).numpy(), ORACLES[case](problem), atol=5e-6)


class Gossip:
    """Rounds of communication alone, from given models."""

    def __init__(self, case: str, x: Tensor):
        self.topology, self.nodes, self.t = of(case).topology, range(len(x)), 0
        mixing = replace(self.topology.at(len(x), 0, 0), period=self.topology.period(len(x), 0))
        self.algorithm: Algorithm = CASES[case].algorithm.prepare(mixing, (x.shape[1],))
        self.state: State = self.algorithm.init(torch.zeros_like(x))
        self.sums: dict[tuple[str, int], Tensor] = {}  # of cumulative parts, by channel
        self.state = self.algorithm.local_step(self.state, -x, self._round())

    def _round(self) -> Round:
        return Round(self.t, 1.0, Streams(0, self.nodes, self.t), 10**6, 1, lambda x: x[:, :1].abs() + 1, (100,))

    def run(self, rounds: int) -> "Gossip":
        for _ in range(rounds):
            round, rows = self._round(), slice(0, len(self.nodes))
            message, self.state = self.algorithm.send(self.state, round)
            edges = edges_of(Delivery(self.topology, len(self.nodes), 0, "lose_mass"), self.t, rows)
            self.state = self.algorithm.receive(self.state, BlockInbox(self._heard(message), edges, self.nodes), round)
            self.t += 1
        return self

    def _heard(self, message: Message) -> Message:
        """The message as the inbox has it: of cumulative parts, the sums."""
        for name, spec in self.algorithm.parts.items():
            if spec.cumulative:
                key = name, self.t % spec.channels
                self.sums[key] = self.sums.get(key, 0) + message[name].values
                message = message | {name: Part(self.sums[key])}
        return message

    def models(self) -> Tensor:
        return self.algorithm.model(self.state)

    def mass(self) -> tuple[Tensor, Tensor]:
        """The sums over nodes of x, and of u."""
        state = self.state
        while hasattr(state, "inner") and not hasattr(state, "u"):
            state = state.inner
        if hasattr(state, "weight"):
            return state.mass.double().sum(0), state.weight.double().sum(0)
        return (self.models().double() * state.u).sum(0), state.u.sum(0)


def some_models(nodes: int = 9) -> Tensor:
    return torch.randn(nodes, 100, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("case", cases("mean"))
def test_an_exchange_conserves_the_mean(case: str) -> None:
    x = some_models()
    after = Gossip(case, x).run(50).models()
    torch.testing.assert_close(after.double().mean(0), x.double().mean(0), atol=2e-6, rtol=0)


@pytest.mark.parametrize("case", cases("mass"))
def test_push_sum_conserves_mass_over_a_thousand_rounds_of_a_changing_digraph(case: str) -> None:
    gossip = Gossip(case, some_models())
    x_before, u_before = gossip.mass()
    x, u = gossip.run(1000).mass()
    assert (u_before == 9).all()
    torch.testing.assert_close(u, u_before, rtol=1e-6, atol=0)
    torch.testing.assert_close(x, x_before, rtol=0, atol=1e-5 * x_before.norm().item())


@pytest.mark.parametrize("case", cases("hull", "range"))
def test_an_exchange_takes_no_number_out_of_the_nodes_range(case: str) -> None:
    gossip = Gossip(case, some_models())
    in_wavelets = isinstance(gossip.algorithm, SkewScout) or getattr(gossip.algorithm, "wavelet", False)
    to = Wavelet().forward if in_wavelets else torch.clone
    before = to(gossip.models())
    after = to(gossip.run(1).models())
    assert (after >= before.amin(0) - 1e-5).all()
    assert (after <= before.amax(0) + 1e-5).all()
    assert not torch.equal(before, after)


@pytest.mark.parametrize("case", cases("replicas"))
def test_neighbours_know_the_average_of_what_was_sent(case: str) -> None:
    experiment = of(case)
    with Simulation(experiment, workers=1) as simulation:
        for _ in range(5):
            simulation.step()
        state = {name: tensor.double() for name, tensor in simulation.save().items()}
    weights = torch.from_numpy(experiment.topology.at(7, experiment.seed, 4).dense())
    exact = weights @ state["x"]
    near = 1e-6 if case == "dcd-psgd" else 0.05 * exact.norm().item()  # DCD's replicas are exact, ECD's estimates
    torch.testing.assert_close(state["average"], exact, atol=near, rtol=0)


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c].steady])
def test_nodes_that_agree_stay_where_they_are(case: str) -> None:
    gossip = Gossip(case, some_models(1).repeat(9, 1))
    if CASES[case].conserves == "replicas":
        gossip.state = gossip.state._replace(step=torch.zeros(9, 100))
    before = gossip.models()
    torch.testing.assert_close(gossip.run(3).models(), before, atol=2e-5, rtol=0)


@pytest.mark.parametrize("case", cases("mean", "hull", "mass", "range"))
def test_nodes_come_to_agree(case: str) -> None:
    gossip = Gossip(case, some_models())
    before = gossip.models()
    after = gossip.run(200).models()
    assert (after - after.mean(0)).norm() < 0.12 * (before - before.mean(0)).norm()


def error(case: str, learning_rate: float, rounds: int) -> float:
    """How far the farthest node is from the optimum of a quadratic, whose nodes pull in different directions."""
    task = Quadratic(dimension=53, num_samples=210, condition=2)
    optimum, optimizer = task.optimum, of(case).optimizer
    optimizer = replace(optimizer, learning_rate=learning_rate * (1 - getattr(optimizer, "momentum", 0.0)))
    optimum = task.curvature * optimum / (task.curvature + optimizer.weight_decay)  # decay: a quadratic around 0
    small = {"batch_size": 30, "local_steps": 1, "rounds": rounds, "evaluation": Evaluation(every=rounds)}
    models = simulated(of(case, task=task, optimizer=optimizer, **small))
    return ((models - optimum).norm(dim=1).max() / optimum.norm()).item()


@pytest.mark.parametrize(
    "case",
    [
        case if case in ("dpsgd", "jwins") else pytest.param(case, marks=pytest.mark.slow)
        for case in cases("mean", "hull", "mass", "replicas")
        if not case.startswith("adam")  # with moments of their own, nodes whose data differ settle elsewhere
    ],
)
def test_a_smaller_learning_rate_brings_every_algorithm_nearer_to_the_optimum(case: str) -> None:
    coarse, fine = error(case, 0.3, rounds=50), error(case, 0.03, rounds=400)
    # Where differing data do no harm, no error is left to shrink.
    exact = {"d2", "gradient-tracking", "all-reduce", "drift-correction"}
    assert fine < (0.02 if case in exact else 0.5 * coarse)
    if case == "dpsgd":
        assert fine < 0.02


@pytest.mark.parametrize("case", CASES)
def test_a_run_continued_from_saved_state_is_the_same_to_the_last_bit(case: str) -> None:
    experiment = of(case)
    with Simulation(experiment, workers=1) as first:
        for _ in range(3):
            first.step()
        saved = {name: tensor.clone() for name, tensor in first.save().items()}
        totals = dict(first.totals)
    with Simulation(experiment, workers=1) as second:
        second.restore(saved, round=3, totals=totals)
        rest = [second.step() for _ in range(3)]
        assert torch.equal(second.models(), simulated(experiment))
    assert rest[-1]["round"] == 6


@pytest.mark.parametrize("algorithm", [Jwins(budget=1.0), RandomSampling(budget=1.0), Jwins(budget=1.0, wavelet=False)])
def test_with_the_whole_budget_every_algorithm_is_full_sharing(algorithm: Jwins | RandomSampling) -> None:
    full = simulated(replace(QUADRATIC, algorithm=Dpsgd()))
    torch.testing.assert_close(simulated(replace(QUADRATIC, algorithm=algorithm)), full, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_single_node_trains_alone(case: str) -> None:
    topology = {"topology": Star()} if "topology" in CASES[case].changes else {}
    models = simulated(of(case, nodes=1, **topology))
    assert models.shape == (1, 53)
    assert models.isfinite().all()


def test_every_algorithm_that_a_file_can_name_is_held_to_the_contract() -> None:
    held = {type(case.algorithm) for case in CASES.values()}
    held |= {type(getattr(case.algorithm, "inner", None)) for case in CASES.values()}
    held |= {type(expand(Sgp()))}
    missing = {name for name, kind in ALGORITHMS.items() if kind not in held}
    assert missing == {"centralized"}  # which is one node; see below


def test_skew_scout_shares_more_where_data_differ() -> None:
    shares = []
    for partition in (Iid(), LabelShards(per_node=1)):
        algorithm = ALGORITHMS["skew-scout"](every=4, tolerance=0.05)
        base = replace(QUADRATIC, nodes=8, rounds=40, algorithm=algorithm, partition=partition)
        task = Quadratic(dimension=400, num_samples=240, spread=0.3)
        with Simulation(replace(base, task=task, optimizer=Optimizer(0.1)), workers=1) as simulation:
            for _ in range(40):
                simulation.step()
            shares.append(simulation.save()["fraction"].mean().item())
    assert shares[0] < 0.5 * shares[1]


def test_centralized_training_is_one_node_with_all_data_and_the_whole_batch() -> None:
    pooled = simulated(replace(QUADRATIC, algorithm=ALGORITHMS["centralized"]()))
    alone = replace(QUADRATIC, nodes=1, batch_size=7 * 8, topology=Ring(), partition=Iid(), algorithm=Dpsgd())
    assert torch.equal(pooled, simulated(alone))


@pytest.mark.parametrize(
    ("algorithm", "topology", "words"),
    [
        (AllReduce(), Ring(), "all-reduce needs a link between any two nodes; take topology fully-connected"),
        (AdPsgd(), Redrawn(RandomRegular()), "ad-psgd averages pairs of nodes; take topology random-matching"),
        (Epidemic(), Star(), "epidemic gives all messages the same weight"),
        (AllReduce(), Cycle((FullyConnected(), Ring())), "all-reduce needs a link between any two nodes"),
        (AdPsgd(), RandomMatching(), "ad-psgd needs a graph that changes"),
        (DeepSqueeze(Qsgd(1), 0.01), Ring(), "compressor Qsgd was measured to be off by"),
        (D2(), Torus(rows=1), "smallest eigenvalue is over -1/3"),
        (ALGORITHMS["choco"](), DirectedRing(), "choco needs a symmetric graph"),
    ],
)
def test_a_graph_that_does_not_suit_is_refused_with_one_that_would(
    algorithm: Algorithm, topology: object, words: str
) -> None:
    with pytest.raises(ExperimentError, match=words):
        simulated(replace(QUADRATIC, nodes=8, algorithm=algorithm, topology=topology, local_steps=1))
