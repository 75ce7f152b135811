"""`algorithm = "auto"`: leave the algorithm and its settings to Gossamer.

The rule is what docs/results/accuracy-per-byte.md found, and no more than that:

- On an undirected graph that stays the same, `lace` over the graph's own links; over any pairs where everybody can
  reach everybody. It keeps as much as the budget allows, and without a budget what came within about a point of full
  sharing. With a fifth of full sharing's bytes and more to spend, `jwins` was as accurate or more, so it is taken.
- Where the graph is directed, `jwins-push`; where it changes, `jwins`: what pairs remember is lost there.

All of them settle. The choice is made before a run begins, is written into its experiment file in place of `auto`, and
is told in the experiment's `note`.
"""

from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING

import numpy as np

from gossamer.algorithms import Jwins, JwinsPush, Lace
from gossamer.core import Algorithm
from gossamer.core.settings import check_types
from gossamer.graphs.topologies import FullyConnected, Matchings

if TYPE_CHECKING:
    from gossamer.experiments.experiment import Experiment

KEPT = 0.04  # of lace without a budget
LEAST_KEPT, MOST_KEPT = 0.002, 0.2
JWINS_PAYS = 0.2  # from this share of full sharing's bytes on
LEAST_BUDGET = 0.03  # of jwins and jwins-push, which send everything now and then
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
        return _told(settling, JwinsPush(budget and max(LEAST_BUDGET, budget)), "the graph is directed")
    if not topology.static and not isinstance(topology, Matchings):
        return _told(settling, Jwins(budget and max(LEAST_BUDGET, budget)), "the graph changes")
    if budget is not None and budget >= JWINS_PAYS:
        return _told(settling, Jwins(budget), f"a budget of {budget:g} is enough for it")
    if isinstance(topology, FullyConnected):
        topology = Matchings()
    elif topology.static:
        topology = Matchings(graph=topology)
    meeting = replace(settling, topology=topology, exchanges=MEETINGS)
    if budget is None:
        return _told(meeting, Lace(KEPT), "few bytes at hardly any loss were asked for")
    return _told(meeting, Lace(_kept(budget, experiment, settle)), f"a budget of {budget:g} was given")


def _told(experiment: "Experiment", algorithm: Algorithm, why: str) -> "Experiment":
    """With the algorithm, and the choice in words."""
    from gossamer.experiments.tables import named  # which lists Auto, too

    setting = f"kept {algorithm.kept:.3g}" if isinstance(algorithm, Lace) else ""
    if isinstance(algorithm, (Jwins, JwinsPush)):
        setting = "the paper's cut-off" if algorithm.budget is None else f"budget {algorithm.budget:.3g}"
    how = f"{experiment.exchanges} exchanges per round, {experiment.settle} rounds to settle"
    note = f"auto chose {named(algorithm)} ({setting}; {how}) because {why}"
    return replace(experiment, algorithm=algorithm, note=f"{experiment.note}; {note}" if experiment.note else note)


def _kept(budget: float, experiment: "Experiment", settle: int) -> float:
    """The largest fraction with which lace stays within the budget."""
    mixing = experiment.topology.at(experiment.nodes, experiment.seed, 0)
    full = max(1.0, np.diff(mixing.indptr).mean() - 1) * experiment.exchanges  # messages of full sharing, per round
    for kept in np.geomspace(MOST_KEPT, LEAST_KEPT, 60):
        trained, settled = _share(kept), _share(min(1.0, 10 * kept))
        share = trained + (settled - trained) * settle / experiment.rounds
        if share * MEETINGS / full <= budget:
            return round(float(kept), 4)
    return LEAST_KEPT


def _share(kept: float) -> float:
    """Of a message that keeps so much, in one that holds everything: about 26.5 bits per number there, and here an
    entropy of where the entries are, and some bits for each of them: the more are kept, the more levels there are."""
    where = 0.0 if kept == 1 else -kept * log2(kept) - (1 - kept) * log2(1 - kept)
    return (0.9 * where + (1.3 + 4 * kept) * kept) / 26.5
