"""What every algorithm is held to: the table of cases, and an engine of the tests' own to compare with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import (
    D2,
    AdPsgd,
    AllReduce,
    Choco,
    DcdPsgd,
    DeepSqueeze,
    Dpsgd,
    EcdPsgd,
    Epidemic,
    FromStart,
    GradientTracking,
    Jwins,
    JwinsPush,
    LocalOnly,
    QuantizedJwins,
    QuantSgp,
    RandomSampling,
    Scsp,
    Sgp,
    Silk,
    SkewScout,
    SparsePush,
)
from gossamer.compressors import BFloat16, Qsgd, Quantize, RandomK, TopK
from gossamer.core import Algorithm, Part, row_of
from gossamer.engines.block import Block
from gossamer.engines.host import codec_for
from gossamer.engines.inbox import BlockInbox, Edges
from gossamer.engines.simulate import Simulation
from gossamer.experiment import Experiment
from gossamer.optimizer import Optimizer
from gossamer.partition import LabelShards
from gossamer.tasks import Quadratic
from gossamer.topologies import DirectedRandom, FullyConnected, RandomMatching, RandomRegular, Redrawn
from gossamer.transforms import Fourier, Wavelet
from gossamer.wire import Codec


class Case(NamedTuple):
    algorithm: Algorithm
    conserves: str  # by an exchange: see test_algorithms.py
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
    "choco": Case(Choco(SOME, 0.4), "mean", STATIC),
    "choco-auto": Case(Choco(Quantize(4)), "mean", STATIC),
    "silk": Case(Silk(kept=0.3, rate=0.4), "mean", STATIC),
    "choco-bfloat16": Case(FromStart(Choco(BFloat16(), 1.0, Fourier())), "mean", STATIC),
    "deep-squeeze": Case(DeepSqueeze(SOME, 0.2), "mean"),
    "deep-squeeze-random": Case(DeepSqueeze(RandomK(0.5), "table"), "mean", steady=False),
    "d2": Case(D2(lazy=True), "mean", ONE_STEP),
    "gradient-tracking": Case(GradientTracking(), "mean", {"local_steps": 1}),
    "dcd-psgd": Case(DcdPsgd(Quantize(8, bucket=0)), "replicas", ONE_STEP),
    "ecd-psgd": Case(EcdPsgd(Quantize(8, bucket=0)), "replicas", ONE_STEP, steady=False),
    "sgp": Case(Sgp(), "mass", DIRECTED),
    "sparse-push": Case(SparsePush(SOME, 0.2), "mass", DIRECTED, steady=False),
    "sparse-push-auto": Case(SparsePush(SOME, "auto"), "mass", DIRECTED, steady=False),
    "sparse-push-wavelet-qsgd": Case(SparsePush(Qsgd(4), 0.1, Wavelet()), "mass", DIRECTED, steady=False),
    "sparse-push-from-start": Case(FromStart(SparsePush(SOME, 0.2)), "mass", DIRECTED, steady=False),
    "scsp": Case(Scsp(SOME, 0.2, full_rounds=4), "mass", DIRECTED, steady=False),
    "quant-sgp": Case(QuantSgp(SOME, 0.4), "mass", {"topology": DirectedRandom(out_degree=2)}, steady=False),
    "jwins-push": Case(JwinsPush(), "mass", DIRECTED),
    "momentum-of-jwins": Case(Jwins(), "hull", {"optimizer": Optimizer(0.02, 0.9, nesterov=True, weight_decay=0.01)}),
    "quasi-global-momentum": Case(Dpsgd(), "mean", {"optimizer": Optimizer(0.2, 0.9, quasi_global=True)}),
    "quasi-global-momentum-of-sparse-push": Case(
        SparsePush(SOME, 0.2),
        "mass",
        {**DIRECTED, "optimizer": Optimizer(0.2, 0.9, nesterov=True, quasi_global=True, weight_decay=0.01)},
        steady=False,
    ),
    "jwins-8-bit": Case(QuantizedJwins(), "little", steady=False),
    "jwins-4-bit": Case(QuantizedJwins(bits=4, bucket=16), "little", steady=False),
    "skew-scout": Case(SkewScout(every=2), "hull"),
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


def in_blocks(experiment: Experiment, split: Sequence[Sequence[int]]) -> Tensor:
    """(n, D) models after a run in which every block is on its own: only bytes cross, as between real peers."""
    task = experiment.task.load()
    experiment = experiment.prepared(task)
    shards = experiment.shards(task)
    x0 = task.initial_model(experiment.seed)
    codec = codec_for(experiment, task)
    blocks = [Block(experiment, task, nodes, [shards[i] for i in nodes], x0.repeat(len(nodes), 1)) for nodes in split]
    for t in range(experiment.rounds):
        frames = {}
        for block in blocks:
            message, _ = block.outgoing(t)
            for row, node in enumerate(block.nodes):
                frames[node] = codec.encode(row_of(message, row), node, t)
        for block in blocks:
            block.incoming(t, inbox_of(experiment, codec, frames, block.nodes, t))
    models = torch.empty(experiment.nodes, len(x0))
    for block in blocks:
        models[list(block.nodes)] = block.models()
    return models


def inbox_of(
    experiment: Experiment, codec: Codec, frames: dict[int, bytes], nodes: Sequence[int], t: int
) -> BlockInbox:
    """The inbox of some nodes, from the frames that reached them and nothing else."""
    weights = experiment.topology.at(experiment.nodes, experiment.seed, t).dense()
    lists = [np.flatnonzero(weights[i]) for i in nodes]
    heard = sorted(set(np.concatenate(lists).tolist()))
    decoded = []
    for sender in heard:
        number, round, message = codec.decode(frames[sender])
        assert (number, round) == (sender, t)
        decoded.append(message)
    messages = {}
    for name in experiment.algorithm.parts:
        sent = [m[name].sent for m in decoded]
        values = torch.cat([m[name].values for m in decoded])
        messages[name] = Part(values, None if sent[0] is None else torch.cat([s for s in sent if s is not None]))
    senders = np.concatenate(lists)
    edges = Edges(
        indptr=np.append(0, np.cumsum([len(each) for each in lists])),
        positions=np.searchsorted(heard, senders),
        senders=senders,
        weights=np.concatenate([weights[i][each] for i, each in zip(nodes, lists, strict=True)]),
    )
    return BlockInbox(messages, edges, [heard.index(i) for i in nodes])
