"""Training and messages in eight bits on images, by the paper's numbers of tables and figures.

Aketi, Kodge and Roy, "Low precision decentralized distributed training over IID and non-IID data", Neural Networks
2022. Float runs have EvoNorm-S0, eight-bit runs Range-EvoNorm and, but for the small size, blocks that start as their
shortcuts. Figures 4, 5 and 6 draw what is in tables 3, 4 and 5, figure 7 what is in table 6; tables 1, 7, 8 and 9 hold
notation and formulas. Table 3 is here in four parts; the text at hand has no figures for the ring of 16, and those of
ResNet-54 and VGG-11 are read by their order. Texts (table 6) are in low_precision_texts.py.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from gossamer.algorithms import Centralized, Sgp
from gossamer.data import Cifar10, Imagenette
from gossamer.data.partition import Skew
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.experiments.papers import low_precision_texts
from gossamer.experiments.papers.cost import low_precision_table10
from gossamer.experiments.papers.eight_bits import (
    BYTES,
    COMPRESSED,
    KEPT,
    METHODS,
    NO_COMPRESSION,
    OF_TASK,
    PRECISIONS,
    RATES_OF_SMALL,
    Kept,
    Method,
    Precision,
    Printed,
    fewer_bytes,
    figures_of,
    grid,
    in_eight_bits,
    label_of,
    of_methods,
    row_of,
)
from gossamer.experiments.papers.table import (
    ACCURACY,
    COMPRESSION,
    MEGABYTES,
    Finding,
    Row,
    Size,
    Table,
    halved,
    least_above,
    mean_above,
    pixels,
    row,
    tenfold_drops,
)
from gossamer.graphs.topologies import DirectedRing, Ring, Topology, Torus
from gossamer.models import Architecture, GnLeNet, ResNet18, ResNet20, ResNet54, Vgg11
from gossamer.models.norms import Norm
from gossamer.training.optimizer import SGD

NORMS: dict[Precision, Norm] = {"float": "evonorm-s0", "8-bit": "range-evonorm"}
SKEWS = (0.0, 0.4, 0.8, 0.9)


def _skews(size: Size) -> tuple[float, ...]:
    return (0.0, 0.8) if size == "small" else SKEWS


@dataclass(frozen=True)
class OnCifar10:
    """A model on CIFAR-10 and a graph. A round is one step."""

    name: str
    nodes: int
    topology: Topology
    small_rounds: int
    batch_size: int = 32

    def model(self, size: Size, norm: Norm, from_shortcuts: bool) -> Architecture:
        """With the authors' eight groups for EvoNorm, where there are enough channels."""
        groups = 8 if "evonorm" in norm and size == "paper" else 2
        if "VGG-11" in self.name:
            return GnLeNet(norm=norm) if size == "small" else Vgg11(norm=norm, groups=groups)
        kind = ResNet54 if "ResNet-54" in self.name else ResNet20
        return kind(norm, 8 if size == "small" else 16, groups, zero_init_residual=from_shortcuts)

    def experiment(self, size: Size, precision: Precision, skew: float, norm: Norm | None = None) -> Experiment:
        small = size == "small"
        rounds = self.small_rounds if small else 200 * -(-50_000 // (self.batch_size * self.nodes))
        halving = halved(rounds, 0.1, every=0.15, weight_decay=1e-4, nesterov=True)
        # The authors' start of eight-bit networks costs 10 points in so few rounds, in float 4; without it ResNet-54
        # in eight bits learns nothing.
        from_shortcuts = "ResNet-54" in self.name if small else precision == "8-bit"
        model = self.model(size, norm or NORMS[precision], from_shortcuts)
        return Experiment(
            name=self.name,
            nodes=self.nodes,
            rounds=rounds,
            local_steps=1,
            batch_size=self.batch_size,
            task=Cifar10(model, OF_TASK[precision], augment=True, size=pixels(size)),
            partition=Skew(skew),
            topology=self.topology,
            optimizer=halving if "VGG-11" in self.name else tenfold_drops(rounds, nesterov=True),
            evaluation=Evaluation(every=rounds // (4 if small else 200), samples=2000 if small else "all", nodes=1),
            fast=small,
        )


RING8 = OnCifar10("ResNet-20 ring 8", 8, DirectedRing(), small_rounds=270)
RING16 = OnCifar10("ResNet-20 ring 16", 16, DirectedRing(), small_rounds=200)
RESNET54 = OnCifar10("ResNet-54 ring 8", 8, DirectedRing(), small_rounds=140)
TORUS16 = OnCifar10("VGG-11 torus 16", 16, Torus(), small_rounds=400)

TABLE3: Printed = {  # ring of 8: DS, LP-DS, Choco, LP-Choco
    ("full", 0.0): (90.56, 90.57, 90.96, 90.30),
    ("full", 0.4): (90.36, 89.89, 90.37, 90.29),
    ("full", 0.8): (87.57, 87.68, 87.87, 87.06),
    ("top-1", 0.0): (88.67, 87.58, 89.21, 88.23),
    ("top-1", 0.4): (88.64, 88.02, 88.58, 88.44),
    ("top-1", 0.8): (85.43, 84.44, 85.78, 84.79),
}
RESNET54_PRINTED: Printed = {  # the same four
    ("full", 0.0): (91.33, 92.09, 91.80, 91.44),
    ("full", 0.4): (91.40, 91.28, 91.45, 91.19),
    ("full", 0.8): (89.72, 88.98, 90.19, 89.30),
    ("full", 0.9): (87.15, 84.06, 87.17, 87.40),
    ("top-1", 0.0): (90.23, 88.57, 89.44, 88.85),
    ("top-1", 0.4): (89.48, 88.60, 89.31, 88.81),
    ("top-1", 0.8): (85.91, 84.69, 86.57, 85.06),
}
VGG11_PRINTED: Printed = {
    ("full", 0.0): (89.64, 89.13, 90.21, 89.73),
    ("full", 0.4): (89.47, 89.21, 89.49, 89.80),
    ("full", 0.8): (87.20, 86.67, 87.21, 86.73),
    ("full", 0.9): (86.26, 85.15, 86.66, 85.67),
    ("top-1", 0.0): (86.10, 82.70, 86.72, 84.44),
    ("top-1", 0.4): (85.42, 81.53, 86.01, 83.49),
    ("top-1", 0.8): (80.12, 77.98, 81.25, 80.53),
    ("top-1", 0.9): (77.10, 72.89, 77.94, 76.11),
}
TABLE4: Printed = {  # with quasi-global momentum: Choco, LP-Choco
    ("full", 0.0): (91.07, 90.20),
    ("full", 0.4): (90.64, 90.10),
    ("full", 0.8): (87.64, 87.16),
    ("full", 0.9): (84.49, 85.28),
    ("top-1", 0.0): (89.87, 89.12),
    ("top-1", 0.4): (89.39, 88.73),
    ("top-1", 0.8): (86.76, 85.52),
    ("top-1", 0.9): (84.42, 83.68),
}


GIGABYTES: dict[str, tuple[float, float, float, float]] = {  # per node, at the paper's size alone
    RING8.name: (42.85, 10.71, 0.651, 0.163),
    RESNET54.name: (119.2, 29.81, 1.808, 0.452),
    TORUS16.name: (744.5, 186.1, 8.120, 2.030),
}


def _table3(setting: OnCifar10, printed: Printed, methods: tuple[Method, ...], size: Size) -> list[Row]:
    """In the small size these methods alone."""
    if size == "small":
        return grid(setting, size, printed, _skews(size), methods=methods)
    gigabytes = dict(zip(product(KEPT[size], PRECISIONS), GIGABYTES.get(setting.name, ()), strict=False))
    return grid(setting, size, printed, _skews(size), gigabytes=gigabytes)


# -- table 2: one node with all data; table 4: quasi-global momentum; figure 1: normalization --------------------------


def _table2(size: Size) -> list[Row]:
    printed = {"ResNet-20": (91.25, 91.12), "ResNet-54": (91.99, 91.66), "VGG-11": (89.59, 89.78)}
    rows = []
    for name, accuracies in printed.items():
        setting = OnCifar10(f"{name} one node", 1, Ring(), small_rounds=600, batch_size=128)
        for precision, accuracy in zip(PRECISIONS, accuracies, strict=True):
            experiment = setting.experiment(size, precision, skew=0.0)
            named = replace(experiment, name=f"{setting.name} {precision}", algorithm=Centralized())
            rows.append(row(named, accuracy))
    return rows


def _table4(size: Size) -> list[Row]:
    """CHOCO with quasi-global momentum, and with each node's own."""
    own, quasi_global = [], []
    for kept, skew, precision in product(KEPT[size], _skews(size), PRECISIONS):
        column, figures = PRECISIONS.index(precision), figures_of(TABLE3, kept, skew)
        own.append(row_of(RING8, size, "CHOCO", precision, kept, skew, figures[2 + column] if figures else None))
        experiment = own[-1].experiment
        assert experiment is not None
        assert isinstance(experiment.optimizer, SGD)
        optimizer = replace(experiment.optimizer, quasi_global=True)
        named = replace(experiment, name=f"{own[-1].label} QGM", optimizer=optimizer)
        with_qgm = figures_of(TABLE4, kept, skew)
        quasi_global.append(row(named, with_qgm[column] if with_qgm else None))
    return quasi_global + own


def _with_qgm(kept: tuple[Kept, ...], precision: Precision, skews: tuple[float, ...]) -> list[tuple[str, str]]:
    """The labels of CHOCO with quasi-global and with each node's own momentum."""
    labels = [label_of(RING8.name, "CHOCO", precision, what, skew) for what, skew in product(kept, skews)]
    return [(f"{label} QGM", label) for label in labels]


NORMS8 = replace(RING8, small_rounds=600)
FIGURE1: tuple[Norm, ...] = ("batch", "range-batch", "group", "evonorm-s0", "range-evonorm")


def _figure1(size: Size) -> list[Row]:
    """In float, at skew 0.8. The paper draws all but Range-BatchNorm."""
    rows = []
    for norm in FIGURE1:
        experiment = NORMS8.experiment(size, "float", 0.8, norm)
        rows.append(row(replace(experiment, name=f"{RING8.name} {norm} skew 0.8", algorithm=Sgp())))
    return rows


# -- table 5: Imagenette -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnImagenette:
    """A model on Imagenette and a graph. A round is one step; 100 epochs."""

    name: str
    nodes: int
    topology: Topology

    def experiment(self, size: Size, precision: Precision, skew: float) -> Experiment:
        small, vgg, norm = size == "small", "VGG-11" in self.name, NORMS[precision]
        pixels, rounds = (32, 105) if small else (224, 100 * -(-9469 // (32 * self.nodes)))
        model: Architecture = GnLeNet(norm) if vgg else ResNet18(norm, width=8)
        if not small:
            start = {"zero_init_residual": precision == "8-bit"}
            model = Vgg11(norm, groups=8) if vgg else ResNet18(norm, stem="7x7", groups=8, **start)
        return Experiment(
            name=self.name,
            nodes=self.nodes,
            rounds=rounds,
            local_steps=1,
            batch_size=16 if small else 32,
            task=Imagenette(pixels, model, OF_TASK[precision], augment=True),
            partition=Skew(skew),
            topology=self.topology,
            optimizer=halved(rounds, 0.01, 0.3, 1e-4, True) if vgg else tenfold_drops(rounds, 100, nesterov=True),
            evaluation=Evaluation(every=rounds // (4 if small else 100), samples=1000 if small else "all", nodes=1),
            fast=small,
        )


RESNET18 = OnImagenette("Imagenette ResNet-18 torus 8", 8, Torus())
VGG_RING4 = OnImagenette("Imagenette VGG-11 ring 4", 4, DirectedRing())
TABLE5: dict[str, Printed] = {  # Choco, LP-Choco
    RESNET18.name: {
        ("full", 0.0): (87.10, 86.60),
        ("full", 0.6): (85.58, 84.20),
        ("top-10", 0.0): (85.25, 83.17),
        ("top-10", 0.6): (80.84, 79.89),
    },
    VGG_RING4.name: {
        ("full", 0.0): (89.76, 88.49),
        ("full", 0.6): (88.89, 86.82),
        ("top-10", 0.0): (88.92, 87.25),
        ("top-10", 0.6): (88.20, 86.27),
    },
}


def _table5(size: Size) -> list[Row]:
    rows = []
    for setting in (RESNET18, VGG_RING4):
        kept: tuple[Kept, ...] = ("full", "top-10")
        rows += grid(setting, size, TABLE5[setting.name], (0.0, 0.6), kept, methods=("CHOCO",))
    return rows


# -- what they find ----------------------------------------------------------------------------------------------------


def _int8_costs(setting: str, kept: tuple[Kept, ...], points: float, *skews: float) -> Finding:
    """As the abstract has it: next to nothing, and 1 to 2 points under compression."""
    told = "with full communication" if kept == NO_COMPRESSION else "under compression"
    within = f"within {points:g} point{'s' * (points != 1)}"
    where = f"{setting}, skew {' and '.join(f'{skew:g}' for skew in skews)}"
    gap = mean_above(in_eight_bits(setting, kept, skews))
    return Finding(
        f"8 bits are {within} of float {told}, {where}", gap, agrees_from=-points, contradicts_below=-3 * points
    )


def _table3_costs(setting: str, compressed: float = 2.0) -> tuple[Finding, ...]:
    """With and without skew by themselves: with it, short runs scatter. Under compression so many points."""
    costs = (
        _int8_costs(setting, kept, points, skew)
        for kept, points in ((NO_COMPRESSION, 1.0), (COMPRESSED, compressed))
        for skew in (0, 0.8)
    )
    return (*costs, fewer_bytes(setting, SKEWS))


_COLUMNS = (ACCURACY, MEGABYTES, COMPRESSION)
_SHORT = (
    "images of 16 pixels per side, the means of 2 x 2; {} rounds of 32 samples per node, learning rates falling in "
    "proportion; eight-bit networks start as the others; 10 % kept in place of 1 %; skew 0 and 0.8; " + RATES_OF_SMALL
)
_SIX_BYTES = "the paper charges 6 bytes per entry at 99 %"
_NARROW = "{} with 8 channels in place of 16; " + _SHORT

TABLES = {
    "low-precision-table2": Table(
        "low precision, table 2: one node with all data, float and eight bits, CIFAR-10",
        _table2,
        (
            Finding("8 bits cost little on one node",
                    mean_above([(f"{name} one node 8-bit", f"{name} one node float")
                                for name in ("ResNet-20", "ResNet-54", "VGG-11")]),
                    agrees_from=-1.0, contradicts_below=-3.0),
        ),
        "ResNets with 8 channels in place of 16, GN-LeNet in place of VGG-11; images of 16 pixels per side, the means "
        "of 2 x 2; 600 rounds; eight-bit networks start as the others; blocks of ResNet-54 start as their shortcuts",
        "Imagenette and texts are left out; the paper does not say the batch, here 128",
        accuracy_of="mean model",
        columns=(ACCURACY,),
    ),
    "low-precision-table3": Table(
        "low precision, table 3: CHOCO and DeepSqueeze, float and eight bits, ring of 8, ResNet-20",
        partial(_table3, RING8, TABLE3, METHODS),
        (
            *_table3_costs(RING8.name),
            Finding("CHOCO is above DeepSqueeze", mean_above(of_methods(RING8.name, SKEWS)), agrees_from=0.1,
                    contradicts_below=-0.5),
            Finding("skew 0.8 costs accuracy", mean_above([(label_of(RING8.name, "CHOCO", "float", "full", 0.0),
                                                            label_of(RING8.name, "CHOCO", "float", "full", 0.8))]),
                    agrees_from=1.5),
        ),
        _NARROW.format("ResNet-20", RING8.small_rounds),
        f"{BYTES}; {_SIX_BYTES}",
        accuracy_of="mean model",
        columns=_COLUMNS,
    ),
    "low-precision-table3-ring16": Table(
        "low precision, table 3: the same on a directed ring of 16",
        partial(_table3, RING16, {}, ("CHOCO",)),
        _table3_costs(RING16.name),
        _NARROW.format("ResNet-20", RING16.small_rounds) + "; CHOCO alone",
        BYTES,
        accuracy_of="mean model",
        columns=_COLUMNS,
    ),
    "low-precision-table3-resnet54": Table(
        "low precision, table 3: the same with ResNet-54",
        partial(_table3, RESNET54, RESNET54_PRINTED, ("CHOCO",)),
        _table3_costs(RESNET54.name),
        _NARROW.format("ResNet-54", RESNET54.small_rounds) + "; blocks start as their shortcuts; CHOCO alone",
        f"{BYTES}; {_SIX_BYTES}",
        accuracy_of="mean model",
        columns=_COLUMNS,
    ),
    "low-precision-table3-vgg11": Table(
        "low precision, table 3: the same with VGG-11 on an undirected 4x4 torus",
        partial(_table3, TORUS16, VGG11_PRINTED, ("CHOCO",)),
        _table3_costs(TORUS16.name, compressed=3.0),
        "GN-LeNet in place of VGG-11; " + _SHORT.format(TORUS16.small_rounds) + "; CHOCO alone",
        f"{BYTES}; the paper counts one copy of the model per step, not one per neighbour, and 4.4 bytes per entry at "
        "99 %",
        accuracy_of="mean model",
        columns=_COLUMNS,
    ),
    "low-precision-table4": Table(
        "low precision, table 4: CHOCO with quasi-global momentum, ring of 8, ResNet-20",
        _table4,
        (
            Finding("quasi-global momentum helps under skew, float, compressed",
                    mean_above(_with_qgm(COMPRESSED, "float", (0.8,))), agrees_from=0.5, contradicts_below=-0.5),
            Finding("quasi-global momentum helps under skew, 8 bits, compressed",
                    mean_above(_with_qgm(COMPRESSED, "8-bit", (0.8,))), agrees_from=0.5, contradicts_below=-0.5),
            Finding("it does no harm with full communication", mean_above(_with_qgm(("full",), "float", (0.0, 0.8))),
                    agrees_from=-1.0, contradicts_below=-3.0),
        ),
        _NARROW.format("ResNet-20", RING8.small_rounds),
        f"on directed graphs quasi-global momentum follows a node's own steps alone, here; {BYTES}",
        accuracy_of="mean model",
        columns=_COLUMNS,
    ),
    "low-precision-table5": Table(
        "low precision, table 5: Imagenette, ResNet-18 on a torus of 8 and VGG-11 on a directed ring of 4",
        _table5,
        (
            _int8_costs(RESNET18.name, NO_COMPRESSION, 1.4, 0, 0.6),
            _int8_costs(RESNET18.name, ("top-10",), 2.1, 0, 0.6),
            _int8_costs(VGG_RING4.name, NO_COMPRESSION, 2.1, 0, 0.6),
            _int8_costs(VGG_RING4.name, ("top-10",), 2.1, 0, 0.6),
        ),
        "photographs of 32 pixels in place of 224; ResNet-18 with 8 channels in place of 64, GN-LeNet in place of "
        f"VGG-11; 105 rounds of 16 samples per node; {RATES_OF_SMALL}",
        f"the torus of 8 has three neighbours per node, the text says four; {BYTES}",
        accuracy_of="mean model",
        columns=_COLUMNS,
    ),
    **low_precision_texts.TABLES,
    "low-precision-table10": low_precision_table10,
    "low-precision-figure1": Table(
        "low precision, figure 1: normalization at skew 0.8: batch, Range-BN, group, EvoNorm, Range-EvoNorm",
        _figure1,
        (
            Finding("Range-EvoNorm is as good as EvoNorm",
                    mean_above([(f"{RING8.name} range-evonorm skew 0.8", f"{RING8.name} evonorm-s0 skew 0.8")]),
                    agrees_from=-1.5, contradicts_below=-4.0),
            Finding("EvoNorm is above batch norm and group norm",
                    least_above([(f"{RING8.name} evonorm-s0 skew 0.8", f"{RING8.name} {norm} skew 0.8")
                                 for norm in ("batch", "group")]), agrees_from=0.5, contradicts_below=-0.5),
        ),
        f"ResNet-20 with 8 channels in place of 16; images of 16 pixels per side, the means of 2 x 2; "
        f"{NORMS8.small_rounds} rounds",
        accuracy_of="mean model",
    ),
}  # fmt: skip
