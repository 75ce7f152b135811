"""What an algorithm or a compressor is told of the model's layers."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

import gossamer as gs
from gossamer.core import Round


@dataclass(frozen=True)
class LargestRows(gs.Compressor):
    """Of every matrix the row that has changed most, and of every vector all."""

    kind = "contraction"
    spec = gs.PartSpec(sparse=True)

    def choose(self, x: Tensor, round: Round) -> Tensor:
        assert [prod(shape) for shape in round.layer_shapes] == list(round.layer_sizes)
        chosen = []
        for layer, shape in zip(x.split(round.layer_sizes, dim=1), round.layer_shapes, strict=True):
            rows = layer.view(len(x), *shape) if len(shape) == 2 else layer.view(len(x), 1, -1)
            best = rows.norm(dim=2).argmax(1)
            marks = torch.zeros(rows.shape, dtype=torch.bool)
            marks[torch.arange(len(x)), best] = True
            chosen.append(marks.flatten(1))
        return torch.cat(chosen, dim=1)

    def delta(self, width: int) -> float:
        return 0.0


def test_a_compressor_sees_the_layers_as_matrices() -> None:
    points = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    task = gs.Supervised(
        model=lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2)),
        train=(points, (points[:, 0] > 0).long()), test=(points, (points[:, 0] > 0).long()),
    )  # fmt: skip
    assert task.load().layer_shapes == [(7, 5), (7,), (2, 7), (2,)]
    choco, ring = gs.Choco(LargestRows(), 0.3), gs.Ring()
    run = gs.simulate(gs.Experiment(task=task, nodes=4, rounds=2, topology=ring, algorithm=choco), workers=1)
    assert run.result["bytes_total"] > 0


def test_a_task_without_layers_has_vectors() -> None:
    assert gs.Quadratic(dimension=9).load().layer_shapes == [(9,)]
