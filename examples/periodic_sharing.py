"""An algorithm of one's own: share the model every k-th round only. Run me: python examples/periodic_sharing.py"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

import gossamer as gs


class State(NamedTuple):
    x: Tensor  # model (B, D)


@dataclass(frozen=True)
class PeriodicSharing(gs.Algorithm):
    """Full sharing every `period` rounds, nothing in between."""

    period: int = 4

    requires = frozenset({"symmetric"})
    parts = {"x": gs.PartSpec(sparse=True)}

    def init(self, x0: Tensor) -> State:
        return State(x0)

    def send(self, state: State, round: gs.Round) -> tuple[gs.Message, State]:
        everything = round.number % self.period == self.period - 1
        return {"x": gs.sparse_part(state.x, torch.full(state.x.shape, everything))}, state

    def receive(self, state: State, inbox: gs.Inbox, round: gs.Round) -> State:
        return State(gs.partial_average(state.x, inbox, "x"))


if __name__ == "__main__":
    experiment = gs.Experiment(
        name="periodic-sharing", algorithm=PeriodicSharing(), partition=gs.LabelShards(per_node=2)
    )
    result = gs.simulate(experiment).result
    share = result["bytes_share_of_full"]
    print(f"accuracy {result['accuracy_mean']:.1%} for {share:.1%} of the bytes of full sharing")
