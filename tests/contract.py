"""What every algorithm is held to: the table of cases, and an engine of the tests' own to compare with."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms import (
    D2,
    AdPsgd,
    AllReduce,
    Cga,
    Choco,
    ClippedGossip,
    CompCga,
    CoordinateMedian,
    DcdPsgd,
    DeepSqueeze,
    Dpsgd,
    DriftCorrection,
    EcdPsgd,
    Epidemic,
    GradientTracking,
    Jwins,
    JwinsPush,
    Lace,
    LocalOnly,
    QuantizedJwins,
    QuantSgp,
    RandomSampling,
    RelativeToInit,
    Scsp,
    Sgp,
    Silk,
    SkewScout,
    SparsePush,
)
from gossamer.compressors import BFloat16, Qsgd, Quantize, RandomK, Scaled, TopK
from gossamer.core import Algorithm, Message, row_of
from gossamer.core.inbox import Arrival, BlockInbox
from gossamer.data import Quadratic
from gossamer.data.partition import LabelShards
from gossamer.experiments.experiment import Experiment
from gossamer.graphs.delivery import NEVER, Delivery
from gossamer.graphs.topologies import DirectedRandom, FullyConnected, Matchings, RandomMatching, RandomRegular, Redrawn
from gossamer.simulator.simulation import Simulation
from gossamer.training.block import Block
from gossamer.training.optimizer import Adam, AdamW, Optimizer
from gossamer.training.schedules import Plateau
from gossamer.training.trainer import Trainer
from gossamer.transforms import Fourier, Wavelet
from gossamer.wire import Endpoint
from gossamer.wire.endpoint import Outgoing


class Case(NamedTuple):
    algorithm: Algorithm
    # What an exchange keeps, and so which tests of test_algorithms.py run beside those of every case:
    #   "mean"        the mean of the nodes' models
    #   "mass"        push-sum: the sums over nodes of x and of the weight u
    #   "hull"        no entry leaves the nodes' range, as under averages whose weights differ from entry to entry
    #   "range"       the same, but what the nodes agree on need not be near the optimum, as under a median
    #   "replicas"    each node has the weighted average of what its neighbours' replicas stand for
    #   "little"      nothing to the last digit, as where models themselves are rounded
    #   "everything"  all: nothing is exchanged
    conserves: str
    changes: dict[str, Any] = {}  # what its experiment must be
    steady: bool = True  # do nodes that agree stay where they are?


UNDIRECTED = Redrawn(RandomRegular(degree=4), every=2)
STATIC = {"topology": RandomRegular(degree=4)}
DIRECTED = {"topology": Redrawn(DirectedRandom(out_degree=2), every=2)}
ONE_STEP = {**STATIC, "local_steps": 1}
SOME = TopK(0.3)

CASES = {
    "dpsgd": Case(Dpsgd(), "mean"),
    "random-sampling": Case(RandomSampling(budget=0.3), "hull"),
    "jwins": Case(Jwins(), "hull"),
    "jwins-with-a-budget": Case(Jwins(budget=0.6), "hull"),
    "jwins-without-wavelet": Case(Jwins(wavelet=False), "hull"),
    "jwins-without-accumulation": Case(Jwins(accumulate=False), "hull"),
    "jwins-without-randomized-cutoff": Case(Jwins(randomize=False), "hull"),
    "choco": Case(Choco(SOME, 0.4), "mean"),
    "choco-auto": Case(Choco(Quantize(4)), "mean", STATIC),
    "choco-random": Case(Choco(RandomK(0.3), 0.2), "mean", steady=False),
    "silk": Case(Silk(kept=0.3, rate=0.4), "mean"),
    "lace": Case(Lace(kept=0.3), "mean", {"topology": Matchings()}),
    "lace-twice-per-round": Case(Lace(kept=0.4, wavelet=False), "mean", {"topology": Matchings(), "exchanges": 2}),
    "choco-bfloat16": Case(RelativeToInit(Choco(BFloat16(), 1.0, Fourier())), "mean", STATIC),
    "deep-squeeze": Case(DeepSqueeze(SOME, 0.2), "mean"),
    "deep-squeeze-random": Case(DeepSqueeze(RandomK(0.5), "table"), "mean", steady=False),
    "d2": Case(D2(lazy=True), "mean", ONE_STEP),
    "gradient-tracking": Case(GradientTracking(), "mean", {"local_steps": 1}),
    "cga": Case(Cga(), "little", ONE_STEP, steady=False),
    "cga-projection": Case(Cga(momentum=0.5, margin=0), "little", ONE_STEP, steady=False),
    "comp-cga": Case(CompCga(), "little", ONE_STEP, steady=False),
    "comp-cga-top-k": Case(CompCga(SOME), "little", ONE_STEP, steady=False),
    "dcd-psgd": Case(DcdPsgd(Quantize(8, bucket=0)), "replicas", {"local_steps": 1}),
    "ecd-psgd": Case(EcdPsgd(Quantize(8, bucket=0)), "replicas", ONE_STEP, steady=False),
    "sgp": Case(Sgp(), "mass", DIRECTED),
    "sparse-push": Case(SparsePush(SOME, 0.2), "mass", DIRECTED, steady=False),
    "sparse-push-auto": Case(SparsePush(SOME, "auto"), "mass", DIRECTED, steady=False),
    "sparse-push-wavelet-qsgd": Case(SparsePush(Qsgd(4), 0.1, Wavelet()), "mass", DIRECTED, steady=False),
    "sparse-push-from-start": Case(RelativeToInit(SparsePush(SOME, 0.2)), "mass", DIRECTED, steady=False),
    "scsp": Case(Scsp(SOME, 0.2, full_rounds=4), "mass", DIRECTED, steady=False),
    "scsp-scaled-qsgd": Case(
        Scsp(Scaled(Qsgd(2, count_sign=False)), 0.1, full_rounds=2), "mass", DIRECTED, steady=False
    ),
    "quant-sgp": Case(QuantSgp(SOME, 0.4), "mass", DIRECTED, steady=False),
    "jwins-push": Case(JwinsPush(), "mass", DIRECTED),
    "momentum-of-jwins": Case(Jwins(), "hull", {"optimizer": Optimizer(0.02, 0.9, nesterov=True, weight_decay=0.01)}),
    "quasi-global-momentum": Case(Dpsgd(), "mean", {"optimizer": Optimizer(0.2, 0.9, quasi_global=True)}),
    "quasi-global-momentum-of-sparse-push": Case(
        SparsePush(SOME, 0.2),
        "mass",
        {**DIRECTED, "optimizer": Optimizer(0.2, 0.9, nesterov=True, quasi_global=True, weight_decay=0.01)},
        steady=False,
    ),
    "adam": Case(Dpsgd(), "mean", {"optimizer": Adam(0.02)}),
    "adamw-of-jwins": Case(
        Jwins(), "hull", {"optimizer": AdamW(0.02, clip=1.0, accumulate=2, schedule=Plateau(0.5, patience=1))}
    ),
    "drift-correction": Case(DriftCorrection(Dpsgd(), 0.5), "mean"),
    "drift-correction-of-choco": Case(DriftCorrection(Choco(SOME, 0.4), 0.1), "mean"),
    "jwins-8-bit": Case(QuantizedJwins(), "little", steady=False),
    "jwins-4-bit": Case(QuantizedJwins(bits=4, bucket=16), "little", steady=False),
    "skew-scout": Case(SkewScout(every=2), "hull"),
    "clipped-gossip": Case(ClippedGossip(), "hull"),
    "clipped-gossip-fixed": Case(ClippedGossip(radius=0.5), "hull"),
    "coordinate-median": Case(CoordinateMedian(), "range"),  # a median of differing data is not their mean
    "epidemic": Case(Epidemic(), "hull", DIRECTED),
    "ad-psgd": Case(AdPsgd(), "mean", {"topology": Redrawn(RandomMatching())}),
    "all-reduce": Case(AllReduce(), "mean", {"topology": FullyConnected()}),
    "local-only": Case(LocalOnly(), "everything"),
}

# 53 parameters: not a multiple of the wavelet's 16, nor of a vector register. 7 nodes of 30 samples each.
QUADRATIC = Experiment(
    nodes=7,
    rounds=6,
    local_steps=2,
    batch_size=8,
    seed=3,
    task=Quadratic(dimension=53, num_samples=210),
    partition=LabelShards(per_node=2),
    topology=UNDIRECTED,
    optimizer=Optimizer(learning_rate=0.2),
)


def of(case: str, **changes: object) -> Experiment:
    return replace(QUADRATIC, algorithm=CASES[case].algorithm, **{**CASES[case].changes, **changes})


def simulated(experiment: Experiment, workers: int = 1) -> Tensor:
    """(n, D) models after a run in the simulator."""
    with Simulation(experiment, workers) as simulation:
        while simulation.round < experiment.rounds:
            simulation.step()
        return simulation.models().clone()


def in_blocks(
    experiment: Experiment, split: Sequence[Sequence[int]], ledger: dict[tuple[int, int, int], int] | None = None
) -> Tensor:
    """(n, D) models after a run in which every block is on its own: only bytes cross, as between real peers.

    Into the ledger go the bytes of every exchange (counted from 1), sender and receiver.
    """
    task = experiment.task.load()
    trainer, experiment = Trainer(task), experiment.prepared(task)
    shards = experiment.shards(task)
    x0 = task.initial_model(experiment.seed)
    delivery = experiment.delivery
    blocks = [Block(experiment, trainer, own, [shards[i] for i in own], x0.repeat(len(own), 1)) for own in split]
    endpoints = [experiment.endpoint(task, node) for node in range(experiment.nodes)]
    on_the_way: dict[tuple[int, int], list[tuple[int, int, bytes]]] = defaultdict(list)  # by arrival and receiver
    for t in range(experiment.rounds * experiment.exchanges):
        up = torch.from_numpy(delivery.up(t))[:, None]
        outgoing: dict[int, Outgoing] = {}
        for block in blocks:
            here = up[list(block.nodes)]
            if t % experiment.exchanges == 0:
                block.train(t // experiment.exchanges, here)
            message = block.send(t, here)
            for row, node in enumerate(block.nodes):
                one = row_of(message, row)  # of a node that is down nobody hears it, and nothing comes of it
                outgoing[node] = (endpoints[node] if up[node] else experiment.endpoint(task, node)).send(one, t)
        links, taken_at = delivery.sent(t), delivery.taken_at(t)
        for r, s, at in zip(links.receivers.tolist(), links.senders.tolist(), taken_at.tolist(), strict=True):
            content = outgoing[s].bytes_for(r)
            if ledger is not None:
                ledger[t + 1, s, r] = len(content)
            if at != NEVER:
                endpoints[s].acknowledged(r, t)
                on_the_way[at, r].append((s, t, content))
        for block in blocks:
            arrivals = [_arrivals(endpoints[i], delivery, t, on_the_way[t, i], outgoing[i].own) for i in block.nodes]
            block.receive(t, BlockInbox.of_arrivals(arrivals), up[list(block.nodes)])
    models = torch.empty(experiment.nodes, len(x0))
    for block in blocks:
        models[list(block.nodes)] = block.models()
    return models


def _arrivals(
    endpoint: Endpoint, delivery: Delivery, t: int, came: Sequence[tuple[int, int, bytes]], own: Message
) -> list[Arrival]:
    """What a node takes in, from the bytes that reached it and nothing else."""
    me = endpoint.node
    messages = {(me, t): own}
    for sender, sent, content in came:
        messages[sender, sent] = endpoint.receive(endpoint.check(content, sender, sent)).message
    links = delivery.arrivals(t)
    mine = links.where(links.receivers == me)
    keys = list(zip(mine.senders.tolist(), (t - mine.ages).tolist(), strict=True))
    assert set(keys) == set(messages)
    weights = mine.weights.tolist()
    return [Arrival(j, w, messages[j, at], (j, at) == (me, t)) for (j, at), w in zip(keys, weights, strict=True)]
