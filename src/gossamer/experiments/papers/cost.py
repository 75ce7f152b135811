"""What the papers say of energy and memory, computed by the formulas of training/cost.py.

Nothing is trained, so that there is one size.
"""

from functools import partial

import torch

from gossamer.experiments.papers.table import Figures, Finding, Row, Size, Table, figure, times
from gossamer.models import Architecture, ResNet20, ResNet54, Vgg11
from gossamer.models.norms import Norm
from gossamer.training.cost import CHOCOS_COPIES, Cost, layers_of

MEMORY, MEMORY_INT8, MEMORY_TIMES = "MB", "MB 8-bit", "times less memory"
ENERGY, ENERGY_INT8, ENERGY_TIMES = "mJ", "mJ 8-bit", "times less energy"
GFLOP = "GFLOP"
MIB = 2**20  # bytes: the MB of the papers, by the sizes of weights that they print
_MIB = "by the papers' formulas, whose absolute energy and memory are other than printed; a MB is 2^20 bytes"


def _cost(model: Architecture, batch: int, copies: int) -> Cost:
    module = model.build((3, 32, 32), 10)
    layers = layers_of(module, torch.zeros(1, 3, 32, 32), batch)
    return Cost(layers, sum(p.numel() for p in module.parameters()), copies)


def _float_against_int8(model: Architecture, inference: bool) -> Figures:
    cost = _cost(model, 32, CHOCOS_COPIES)
    size = cost.weight_bytes if inference else cost.training_bytes
    return _told(size(False) / MIB, size(True) / MIB, cost.energy_mj(False, inference), cost.energy_mj(True, inference))


def _told(memory: float, memory_int8: float, energy: float, energy_int8: float) -> Figures:
    return {
        MEMORY: memory,
        MEMORY_INT8: memory_int8,
        MEMORY_TIMES: memory / memory_int8,
        ENERGY: energy,
        ENERGY_INT8: energy_int8,
        ENERGY_TIMES: energy / energy_int8,
    }


PRINTED: dict[tuple[str, bool], tuple[float, float, float, float]] = {  # memory and energy, in float and in eight bits
    ("ResNet-20 range-batch", False): (170.60, 46.15, 68.75, 3.45),
    ("ResNet-20 range-evonorm", False): (124.60, 35.43, 68.82, 3.45),
    ("ResNet-54 range-batch", False): (424.85, 117.05, 392.55, 19.69),
    ("ResNet-54 range-evonorm", False): (308.85, 88.05, 392.95, 19.71),
    ("VGG-11 range-batch", False): (300.48, 210.95, 173.56, 8.69),
    ("VGG-11 range-evonorm", False): (263.48, 201.70, 173.61, 8.70),
    ("ResNet-20 range-batch", True): (1.04, 0.26, 22.92, 1.16),
    ("ResNet-20 range-evonorm", True): (1.04, 0.26, 22.96, 1.16),
    ("ResNet-54 range-batch", True): (2.89, 0.72, 130.85, 6.60),
    ("ResNet-54 range-evonorm", True): (2.89, 0.72, 131.07, 6.61),
    ("VGG-11 range-batch", True): (36.22, 9.01, 57.85, 2.90),
    ("VGG-11 range-evonorm", True): (36.22, 9.01, 57.88, 2.90),
}


def _table10(size: Size) -> list[Row]:
    norms: tuple[Norm, ...] = ("range-batch", "range-evonorm")
    rows = []
    for inference in (False, True):
        for name, model in (("ResNet-20", ResNet20), ("ResNet-54", ResNet54), ("VGG-11", Vgg11)):
            for norm in norms:
                label = f"{name} {norm}"
                computed = partial(_float_against_int8, model(norm=norm), inference)
                paper = _told(*PRINTED[label, inference])
                rows.append(Row(f"{label} {'inference' if inference else 'training'}", paper, computed=computed))
    return rows


def _figure3(size: Size) -> list[Row]:
    """ResNet-20 with a batch of 128 on one node, or of 8 on each of sixteen: those that give the paper's operations."""
    printed = {128: (243.0, 5.24), 8: (20.3, 0.33)}
    return [
        Row(f"batch {batch}", {MEMORY: memory, GFLOP: gflop}, computed=partial(_per_device, batch))
        for batch, (memory, gflop) in printed.items()
    ]


def _per_device(batch: int) -> Figures:
    cost = _cost(ResNet20(norm="batch"), batch, copies=1)
    convolutions = [layer for layer in cost.layers if layer.kind in ("Conv2d", "Linear")]
    products = sum(layer.inference.mults for layer in convolutions)
    return {MEMORY: cost.training_bytes(False) / MIB, GFLOP: products / 1e9}


low_precision_table10 = Table(
    "low precision, table 10: memory and energy of a step, float against eight bits",
    _table10,
    (
        Finding("8 bits take 20 times less energy", figure("ResNet-20 range-evonorm training", ENERGY_TIMES),
                agrees_from=15.0, contradicts_below=5.0, unit="times"),
        Finding("8 bits take 3.5 times less memory", figure("ResNet-20 range-evonorm training", MEMORY_TIMES),
                agrees_from=2.8, contradicts_below=1.5, unit="times"),
        Finding("VGG-11 saves less memory", times("ResNet-20 range-evonorm training", "VGG-11 range-evonorm training",
                                                   MEMORY_TIMES), agrees_from=1.5, contradicts_below=1.0, unit="times"),
        Finding("Range-EvoNorm takes less memory than Range-BatchNorm",
                times("ResNet-20 range-batch training", "ResNet-20 range-evonorm training", MEMORY),
                agrees_from=1.1, contradicts_below=1.0, unit="times"),
        Finding("a step in float takes 69 mJ", figure("ResNet-20 range-evonorm training", ENERGY),
                agrees_from=55.0, contradicts_below=40.0, unit="mJ"),
    ),
    small="",
    protocol=_MIB,
    columns=(MEMORY, MEMORY_INT8, MEMORY_TIMES, ENERGY, ENERGY_INT8, ENERGY_TIMES),
)  # fmt: skip

sparse_push_figure3 = Table(
    "Sparse-Push, figure 3: memory and operations per device, one node against sixteen",
    _figure3,
    (
        Finding("sixteen devices need 12 times less memory each", times("batch 128", "batch 8", MEMORY),
                agrees_from=8.0, contradicts_below=4.0, unit="times"),
        Finding("and 16 times fewer operations", times("batch 128", "batch 8", GFLOP),
                agrees_from=15.0, contradicts_below=8.0, unit="times"),
    ),
    small="",
    protocol=_MIB,
    columns=(MEMORY, GFLOP),
)  # fmt: skip
