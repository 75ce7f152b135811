"""`algorithm = "auto"`: leave the algorithm and its settings to Gossamer.

The rule is what docs/results/accuracy-per-byte.md found, and no more than that:

- On an undirected graph that stays the same, `lace` over the graph's own links; over any pairs where everybody can
  reach everybody. It keeps as much as the budget allows, and without a budget what came within about a point of full
  sharing. With a budget that is large enough for `jwins` in eight bits, relative to the start, that was as accurate as
  in float32, and as lace or more. Quasi-global momentum helps `lace` as much as full sharing, and harms `jwins`: with
  it, `lace` has all budgets, and where nodes wait for nobody, too.
- Where the graph is directed, lace's quantizer and wavelet under push-sum: with the replicas of `quant-sgp` where the
  graph stays the same, with the error feedback of `sparse-push` where it changes. Either was as accurate as
  `jwins-push`, or more, with a tenth of its bytes.
- Where an undirected graph changes, `jwins`, in eight bits or six: what pairs and replicas remember is lost there.

A budget holds for models of some thousand parameters: with fewer, headers are much of a message. All of these settle.
The choice is made before a run begins, is written into its experiment file in place of `auto`, and is told in the
experiment's `note`.
"""

from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING

import numpy as np

from gossamer.algorithms import Lace, QuantizedJwins, QuantSgp, RelativeToInit, SparsePush
from gossamer.compressors import DeadZone
from gossamer.core import Algorithm
from gossamer.core.settings import check_types
from gossamer.graphs.topologies import FullyConnected, Matchings
from gossamer.training.optimizer import SGD
from gossamer.transforms import Wavelet

if TYPE_CHECKING:
    from gossamer.experiments.experiment import Experiment

KEPT = 0.04  # of lace without a budget
LEAST_KEPT, MOST_KEPT = 0.002, 0.2
FLOAT_BITS = 26.5  # of a float32 on the wire
Shares = dict[float, QuantizedJwins]
JWINS_IN_EIGHT_BITS: Shares = {  # by the share of full sharing's bytes that a round with training takes
    0.12: QuantizedJwins(bits=8),
    0.065: QuantizedJwins(bits=8, budget=0.2),
}
JWINS_IN_FEW_BITS = JWINS_IN_EIGHT_BITS | {0.027: QuantizedJwins(bits=6, budget=0.1)}
PUSH_RATES = {
    0.2: (0.7, 0.5),
    0.1: (0.5, 0.3),
}  # by the fraction kept: of quant-sgp, of sparse-push; keeping less, both fail
SETTLE = 8
MEETINGS = 2  # of lace, per round


@dataclass(frozen=True)
class Auto(Algorithm):
    """Whatever gives the most accuracy for the bytes, on the graph that there is."""

    budget: float | None = None  # bytes as a share of what full sharing would send; None: few, at hardly any loss

    def __post_init__(self) -> None:
        check_types(self)
        if self.budget is not None and not 0 < self.budget <= 1:
            raise ValueError(f"budget must be above 0 and at most 1, {self.budget} was given")


def choose(experiment: "Experiment") -> "Experiment":
    """The experiment with a choice in the place of `Auto`; itself if it has none."""
    if not isinstance(experiment.algorithm, Auto):
        return experiment
    budget, topology = experiment.algorithm.budget, experiment.topology
    settle = experiment.settle or min(SETTLE, experiment.rounds // 4)
    settling = replace(experiment, settle=settle)
    if topology.directed:
        return _pushing(settling, budget)
    if not topology.static and not isinstance(topology, Matchings):
        return _with_jwins(settling, 1.0 if budget is None else budget, JWINS_IN_FEW_BITS, "the graph changes")
    quasi_global = isinstance(experiment.optimizer, SGD) and experiment.optimizer.quasi_global
    bears_jwins = not quasi_global and not experiment.asynchronous
    if bears_jwins and budget is not None and _affordable(settling, budget, JWINS_IN_EIGHT_BITS):
        return _with_jwins(settling, budget, JWINS_IN_EIGHT_BITS, f"a budget of {budget:g} is enough for it")
    if isinstance(topology, FullyConnected):
        topology = Matchings()
    elif topology.static:
        topology = Matchings(graph=topology)
    meeting = replace(settling, topology=topology, exchanges=MEETINGS)
    if budget is None:
        return _told(meeting, Lace(KEPT), f"lace over matchings (kept {KEPT:g}", "no budget was given")
    kept, share = _kept(budget, experiment, settle)
    why = f"a budget of {budget:g} was given" + _over(budget, share)
    return _told(meeting, Lace(kept), f"lace over matchings (kept {kept:.3g}", why)


def _with_jwins(experiment: "Experiment", budget: float, shares: Shares, why: str) -> "Experiment":
    """With the largest of these shares that fits, or the smallest."""
    affordable = _affordable(experiment, budget, shares)
    share = max(affordable, default=min(shares))
    algorithm = shares[share]
    why += _over(budget, _whole_run(experiment, share, algorithm))
    kept = "" if algorithm.budget is None else f", as many numbers as jwins of budget {algorithm.budget:g}"
    said = f"jwins-quantized relative to the start ({algorithm.bits} bits{kept}"
    return _told(experiment, RelativeToInit(algorithm), said, why)


def _over(budget: float | None, share: float) -> str:
    """What there is to say of a budget that even the least takes more than."""
    if budget is None or share <= budget:
        return ""
    return f"; this takes about {share:.2g} of full sharing's bytes, and the budget of {budget:g} is less"


def _affordable(experiment: "Experiment", budget: float, shares: Shares) -> list[float]:
    return [share for share, algorithm in shares.items() if _whole_run(experiment, share, algorithm) <= budget]


def _whole_run(experiment: "Experiment", share: float, algorithm: QuantizedJwins) -> float:
    """What it takes of full sharing's bytes; rounds that settle send everything."""
    settled = min(1.0, experiment.settle / experiment.rounds)
    return (1 - settled) * share + settled * algorithm.bits / FLOAT_BITS


def _pushing(experiment: "Experiment", budget: float | None) -> "Experiment":
    """On a directed graph."""
    affordable = [kept for kept in PUSH_RATES if budget is None or _share(kept) <= budget]
    kept = max(affordable, default=min(PUSH_RATES))
    if experiment.topology.static:
        rate, why = PUSH_RATES[kept][0], "the graph is directed"
        algorithm: Algorithm = QuantSgp(DeadZone(kept), rate, Wavelet())
        name = "quant-sgp"
    else:
        rate, why = PUSH_RATES[kept][1], "the graph is directed and changes"
        algorithm = SparsePush(DeadZone(kept), rate, Wavelet())
        name = "sparse-push"
    said = f"{name} relative to the start (dead zone, kept {kept:.3g}, rate {rate:g}"
    return _told(experiment, RelativeToInit(algorithm), said, why + _over(budget, _share(kept)))


def _told(experiment: "Experiment", algorithm: Algorithm, said: str, why: str) -> "Experiment":
    """With the algorithm, and the choice in words."""
    exchanges = f"{experiment.exchanges} exchange{'s' * (experiment.exchanges > 1)}"
    how = f"{exchanges} per round, {experiment.settle} round{'s' * (experiment.settle != 1)} to settle"
    note = f"auto chose {said}; {how}) because {why}"
    return replace(experiment, algorithm=algorithm, note=f"{experiment.note}; {note}" if experiment.note else note)


def _kept(budget: float, experiment: "Experiment", settle: int) -> tuple[float, float]:
    """The largest fraction with which lace stays within the budget, or the least, and what it takes."""
    mixing = experiment.topology.at(experiment.nodes, experiment.seed, 0)
    full = max(1.0, np.diff(mixing.indptr).mean() - 1) * experiment.exchanges  # messages of full sharing, per round
    for kept in np.geomspace(MOST_KEPT, LEAST_KEPT, 60):
        trained, settled = _share(kept), _share(min(1.0, 10 * kept))
        share = (trained + (settled - trained) * settle / experiment.rounds) * MEETINGS / full
        if share <= budget:
            break
    return round(float(kept), 4), float(share)


def _share(kept: float) -> float:
    """Of a message that keeps so much, in one that holds everything: about 26.5 bits per number there, and here an
    entropy of where the entries are, and some bits for each of them: the more are kept, the more levels there are."""
    where = 0.0 if kept == 1 else -kept * log2(kept) - (1 - kept) * log2(1 - kept)
    return (0.9 * where + (1.3 + 4 * kept) * kept) / FLOAT_BITS
