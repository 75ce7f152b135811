"""Sparse-Push and SCSP on directed rings of four nodes, by the paper's numbers of tables and figures.

Aketi, Singh and Rabaey, "Sparse-Push: communication- and energy-efficient decentralized distributed learning over
directed and time-varying graphs with non-IID datasets", 2021. A round is one step of 32 samples per node, an epoch 391
of them. Tables 1 and 5 and figures 4 and 5 hold no results: systems, averaging rates (`rate = "table"`) and graphs.
Figures without printed numbers are left out; what the text says of them is in the findings.
"""

from collections.abc import Iterable
from dataclasses import replace

from gossamer.algorithms import Choco, DeepSqueeze, LocalOnly, Scsp, Sgp, SparsePush
from gossamer.algorithms.rates import Rate, from_table
from gossamer.compressors import Qsgd, Scaled, TopK
from gossamer.core import Algorithm
from gossamer.data import Cifar10, Cifar100
from gossamer.data.partition import Skew
from gossamer.experiments.experiment import Evaluation, Experiment, TaskSource
from gossamer.experiments.papers.cost import sparse_push_figure3
from gossamer.experiments.papers.table import (
    ACCURACY,
    COMPRESSION,
    DIVERGENCE,
    SMALL_RATE,
    Figures,
    Finding,
    Row,
    Size,
    Table,
    above,
    halved,
    mean_above,
    pixels,
    row,
    tenfold_drops,
)
from gossamer.graphs.topologies import Cycle, FourNodeRing, Ring
from gossamer.models import GnLeNet, ResNet20, ResNet110, Vgg11
from gossamer.models.norms import Norm

SMALL_ROUNDS = 2000  # in place of 200 epochs: 5.1 epochs
EPOCHS, ROUNDS_PER_EPOCH = 200, 391
FULL_ROUNDS = {"small": 12, "paper": 40}  # k of SCSP; 12 bring four nodes as near as makes no difference
SKEWS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def _rounds(size: Size) -> int:
    return SMALL_ROUNDS if size == "small" else EPOCHS * ROUNDS_PER_EPOCH


def _rate(size: Size, percent: float) -> Rate:
    """The averaging rate of Sparse-Push, by its table 5."""
    return SMALL_RATE * from_table(percent / 100) if size == "small" else "table"


def _base(size: Size, name: str, task: TaskSource, skew: float = 0.0, vgg: bool = False) -> Experiment:
    rounds = _rounds(size)
    return Experiment(
        name=name,
        nodes=4,
        rounds=rounds,
        local_steps=1,
        batch_size=32,
        task=task,
        partition=Skew(skew),
        topology=FourNodeRing(graph="a"),
        optimizer=halved(rounds, 0.05, every=0.15, weight_decay=5e-4) if vgg else tenfold_drops(rounds),
        evaluation=Evaluation(
            every=rounds // 4 if size == "small" else ROUNDS_PER_EPOCH,
            samples=2000 if size == "small" else "all",
            nodes="all",
        ),
    )


def _resnet20(size: Size, skew: float = 0.0, norm: Norm = "batch") -> Experiment:
    """With batch norm on IID data, group norm under skew, which without a better start learns nothing in few rounds."""
    small = size == "small"
    model = ResNet20(norm=norm, width=8 if small else 16, zero_init_residual=small and norm == "group")
    task = Cifar10(model, augment=True, size=pixels(size))
    name = "ResNet-20" if norm == "batch" else f"ResNet-20 {norm} norm"
    return _base(size, name + _skewed(skew), task, skew)


def _vgg11(size: Size, skew: float = 0.0) -> Experiment:
    """Without normalization; in the small size GN-LeNet without its normalization in its place."""
    model = GnLeNet(norm="none") if size == "small" else Vgg11(norm="none")
    task = Cifar10(model, augment=True, size=pixels(size))
    return _base(size, "VGG-11" + _skewed(skew), task, skew, vgg=True)


def _resnet110(size: Size) -> Experiment:
    return _base(size, "ResNet-110", Cifar10(ResNet110(norm="batch"), augment=True))


def _cifar100(size: Size) -> Experiment:
    """ResNet-110; in the small size half as many rounds of a narrow ResNet-20 in its place."""
    model = ResNet20(norm="batch", width=8) if size == "small" else ResNet110(norm="batch")
    experiment = _base(size, "CIFAR-100", Cifar100(model=model, augment=True, size=pixels(size)))
    if size == "paper":
        return experiment
    return replace(experiment, rounds=SMALL_ROUNDS // 2, optimizer=tenfold_drops(SMALL_ROUNDS // 2))


def _skewed(skew: float) -> str:
    return f" skew {skew:g}" if skew else ""


# -- one row: an algorithm at a level of compression -------------------------------------------------------------------


def _shared(base: Experiment, percent: float, size: Size) -> Experiment:
    """Sparse-Push that keeps so many percent: 100 is SGP, 0 every node alone."""
    ends: dict[float, Algorithm] = {0: LocalOnly(), 100: Sgp()}
    algorithm = ends[percent] if percent in ends else SparsePush(TopK(percent / 100), _rate(size, percent))
    return replace(base, name=f"{base.name} SP top-{percent:g}", algorithm=algorithm)


def _compensated(base: Experiment, percent: float, size: Size) -> Experiment:
    full_rounds = FULL_ROUNDS[size]
    algorithm = Scsp(TopK(percent / 100), _rate(size, percent), full_rounds=full_rounds)
    return replace(
        base, name=f"{base.name} SCSP top-{percent:g}", algorithm=algorithm, rounds=base.rounds + full_rounds
    )


def _sp(
    base: Experiment, size: Size, figures: Iterable[tuple[float, float | None]], more: Figures | None = None
) -> list[Row]:
    """Percent kept and the paper's accuracy. A compressed run is the start of SCSP's, and not run twice."""
    rows = []
    for percent, accuracy in figures:
        start_of = row(_compensated(base, percent, size)) if 0 < percent < 100 else None
        rows.append(replace(row(_shared(base, percent, size), accuracy, more), start_of=start_of))
    return rows


def _scsp(base: Experiment, size: Size, figures: Iterable[tuple[float, float | None, float]]) -> list[Row]:
    """Percent kept, the paper's accuracy, and its compression."""
    return [row(_compensated(base, p, size), accuracy, {COMPRESSION: c}) for p, accuracy, c in figures]


# -- tables 2, 3 and 4: IID data ---------------------------------------------------------------------------------------


def _table2(size: Size) -> list[Row]:
    base = _resnet20(size)
    rows = []
    for percent, accuracy, more in (
        (100, 92.09, {DIVERGENCE: 1.968e-8}),
        (10, 91.27, {COMPRESSION: 6.68, DIVERGENCE: 3.408e-6}),
        (1, 90.68, {COMPRESSION: 66.8, DIVERGENCE: 1.512e-5}),
        (0.1, 90.51, {COMPRESSION: 665, DIVERGENCE: 2.845e-5}),
        (0, 85.44, {DIVERGENCE: 2.0e-4}),
    ):
        rows += _sp(base, size, [(percent, accuracy)], more)
    rows += _scsp(base, size, [(1, 91.27, 64.3), (0.1, 91.09, 466)])
    if size == "paper":
        rows += _sp(_resnet110(size), size, [(100, 94.14), (1, 93.32), (0.1, 93.26), (0, 86.38)])
        rows += _sp(_vgg11(size), size, [(100, 90.86), (10, 90.32), (1, 90.22), (0.1, 88.81), (0, 80.90)])
    return rows


def _table3(size: Size) -> list[Row]:
    undirected, squeeze = replace(_resnet20(size), topology=Ring()), DeepSqueeze(TopK(0.01), _rate(size, 1))
    return [
        row(replace(undirected, name="ResNet-20 CHOCO top-1", algorithm=Choco(TopK(0.01))), 91.73),
        row(replace(undirected, name="ResNet-20 DeepSqueeze top-1", algorithm=squeeze), 90.47),
        *_sp(_resnet20(size), size, [(1, 90.68)]),
        row(_compensated(_resnet20(size), 1, size), 91.27),
    ]


def _table4(size: Size) -> list[Row]:
    rows = []
    for base, sp, scsp in (
        (_resnet20(size), (92.09, 90.68, 90.51), ((1, 91.27, 64.3), (0.1, 91.09, 466))),
        (_vgg11(size), (91.20, 90.22, 88.81), ((1, 90.49, 63.9), (0.1, 89.99, 467))),
        (_cifar100(size), (72.10, 69.98, 68.25), ((1, 71.28, 63.6), (0.1, 69.87, 438))),
    ):
        rows += _sp(base, size, zip((100, 1, 0.1), sp, strict=True)) + _scsp(base, size, scsp)
    return rows


def _pairs(name: str, percents: Iterable[float] = (1, 0.1)) -> list[tuple[str, str]]:
    """SCSP and SP of a model at these levels of compression."""
    return [(f"{name} SCSP top-{percent:g}", f"{name} SP top-{percent:g}") for percent in percents]


# -- figures 1, 2, 6 and 7: skew ---------------------------------------------------------------------------------------


def _figure1(size: Size) -> list[Row]:
    return [one for skew in SKEWS for one in _sp(_vgg11(size, skew), size, [(100, None), (1, None)])]


def _figure2(size: Size) -> list[Row]:
    rows = []
    for skew in (0.0, 0.8):
        base = _vgg11(size, skew)
        rows += _sp(base, size, [(100, None), (10, None), (1, None), (0.1, None)])
        rows += [row(_compensated(base, percent, size)) for percent in (10, 1, 0.1)]
    return rows


def _figure6(size: Size) -> list[Row]:
    skews = (0.0, 0.8, 1.0) if size == "small" else SKEWS
    bases = [_resnet20(size, skew, norm="group") for skew in skews]
    return [one for base in bases for one in _sp(base, size, [(100, 88.5 if base is bases[0] else None), (10, None)])]


def _figure7(size: Size) -> list[Row]:
    rows = []
    for skew in (0.0, 0.8):
        base = _resnet20(size, skew, norm="group")
        rows += _sp(base, size, [(100, None if skew else 88.5), (10, None), (1, None)])
        rows += [row(_compensated(base, percent, size)) for percent in (10, 1)]
    return rows


# -- table 6: graphs that change; table 7: quantization ----------------------------------------------------------------


def _table6(size: Size) -> list[Row]:
    rows = []
    for graphs, epochs, sp, scsp in (
        ("ab", 11, (91.92, 90.75, 90.08), ((1, 91.61, 64.3), (0.1, 90.74, 466))),
        ("abc", 6, (91.63, 91.00, 89.92), ((1, 91.46, 64.3), (0.1, 90.53, 466))),
    ):
        every = epochs * ROUNDS_PER_EPOCH if size == "paper" else epochs * SMALL_ROUNDS // EPOCHS
        letters = {"a": FourNodeRing("a"), "b": FourNodeRing("b"), "c": FourNodeRing("c")}
        cycle = Cycle(tuple(letters[letter] for letter in graphs), every=every)
        base = replace(_resnet20(size), name=f"ResNet-20 graphs {' '.join(graphs)}", topology=cycle)
        rows += _sp(base, size, zip((100, 1, 0.1), sp, strict=True)) + _scsp(base, size, scsp)
    return rows


def _table7(size: Size) -> list[Row]:
    base, full_rounds = _resnet20(size), FULL_ROUNDS[size]
    rows = [row(_shared(base, 100, size), 92.09)]
    for bits, sp, scsp, compression in ((4, 91.17, 91.19, 7.96), (2, 91.06, 91.15, 15.84), (1, 90.87, 91.05, 31.36)):
        quantized = Scaled(Qsgd(bits, count_sign=False))
        pushed = replace(base, name=f"ResNet-20 SP bits {bits}", algorithm=SparsePush(quantized, rate="auto"))
        ended = Scsp(quantized, rate="auto", full_rounds=full_rounds)
        named = replace(base, name=f"ResNet-20 SCSP bits {bits}", algorithm=ended, rounds=base.rounds + full_rounds)
        compensated = row(named, scsp, {COMPRESSION: compression})
        rows += [replace(row(pushed, sp), start_of=compensated), compensated]
    return rows


_SHORT = (
    f"images of 16 pixels per side, the means of 2 x 2; {SMALL_ROUNDS:,} rounds in place of 78,200 (5.1 epochs, not "
    f"200), learning rates falling in proportion; averaging rates {SMALL_RATE} times those of table 5; SCSP ends with "
    "12 rounds of full sharing, not 40, which is 0.6 % of its rounds and not 0.05 %, so that its compression is not "
    "the paper's"
)
_NARROW = f"ResNet-20 with 8 channels in place of 16, and {_SHORT}"
_NARROW_GROUPS = (
    f"{_NARROW}; blocks start as their shortcuts, since group norm learns nothing in so few rounds otherwise"
)
_PLAIN = f"GN-LeNet without normalization in place of VGG-11, and {_SHORT}"

TABLES = {
    "sparse-push-table2": Table(
        "Sparse-Push, table 2: top-K 100, 10, 1, 0.1 % and none, IID; with SCSP beside it",
        _table2,
        (
            Finding("keeping 1 % costs 1.4 points", above("ResNet-20 SP top-1", "ResNet-20 SP top-100"),
                    agrees=-3.0, contradicts=-8.0),
            Finding("keeping 0.1 % costs 1.6 points", above("ResNet-20 SP top-0.1", "ResNet-20 SP top-100"),
                    agrees=-3.5, contradicts=-8.0),
            Finding("some communication is needed", above("ResNet-20 SP top-0.1", "ResNet-20 SP top-0"), agrees=2.0),
            Finding("SCSP is above SP", mean_above(_pairs("ResNet-20")), agrees=0.2, contradicts=-0.5),
        ),
        _NARROW + "; ResNet-110 and VGG-11 are left out",
        columns=(ACCURACY, COMPRESSION, DIVERGENCE),
    ),
    "sparse-push-table3": Table(
        "Sparse-Push, table 3: CHOCO-SGD, DeepSqueeze, SP and SCSP at 1 %",
        _table3,
        (
            Finding("SP is as good as DeepSqueeze", above("ResNet-20 SP top-1", "ResNet-20 DeepSqueeze top-1"),
                    agrees=-1.5, contradicts=-4.0),
            Finding("SCSP is as good as CHOCO", above("ResNet-20 SCSP top-1", "ResNet-20 CHOCO top-1"),
                    agrees=-1.5, contradicts=-4.0),
        ),
        _NARROW,
        "the undirected ring has Metropolis-Hastings weights",
    ),
    "sparse-push-table4": Table(
        "Sparse-Push, table 4: SP and SCSP with ResNet-20, VGG-11, and ResNet-110 on CIFAR-100",
        _table4,
        (
            Finding("SCSP is above SP, ResNet-20", mean_above(_pairs("ResNet-20")), agrees=0.2, contradicts=-0.5),
            Finding("SCSP is above SP, VGG-11", mean_above(_pairs("VGG-11")), agrees=0.2, contradicts=-0.5),
            Finding("SCSP is above SP, CIFAR-100", mean_above(_pairs("CIFAR-100")), agrees=0.4, contradicts=-0.5),
        ),
        f"{_NARROW}; GN-LeNet without normalization in place of VGG-11; on CIFAR-100 ResNet-20 and half the rounds",
    ),
    "sparse-push-figure1": Table(
        "Sparse-Push, figure 1: accuracy by data skew, VGG-11, all and 1 % kept",
        _figure1,
        (
            Finding("without skew compression costs little", above("VGG-11 SP top-1", "VGG-11 SP top-100"),
                    agrees=-3.0, contradicts=-8.0),
            Finding("under skew compression costs more",
                    lambda rows: above("VGG-11 skew 0.8 SP top-100", "VGG-11 skew 0.8 SP top-1")(rows)
                    - above("VGG-11 SP top-100", "VGG-11 SP top-1")(rows), agrees=1.5),
        ),
        _PLAIN,
    ),
    "sparse-push-figure2": Table(
        "Sparse-Push, figure 2: SP against SCSP at skew 0 and 0.8, VGG-11",
        _figure2,
        (
            Finding("at 0.1 % skew 0.8 costs SP 7 points", above("VGG-11 SP top-0.1", "VGG-11 skew 0.8 SP top-0.1"),
                    agrees=3.0, paper=7.0),
            Finding("SCSP under skew is near SP without",
                    above("VGG-11 skew 0.8 SCSP top-0.1", "VGG-11 SP top-0.1"),
                    agrees=-2.0, contradicts=-6.0, paper=-0.5),
        ),
        _PLAIN,
    ),
    "sparse-push-figure3": sparse_push_figure3,
    "sparse-push-table6": Table(
        "Sparse-Push, table 6: graphs that change, (a)(b) every 11 epochs and (a)(b)(c) every 6",
        _table6,
        (
            Finding("SCSP is above SP, graphs (a)(b)", mean_above(_pairs("ResNet-20 graphs a b")),
                    agrees=0.2, contradicts=-0.5),
            Finding("SCSP is above SP, graphs (a)(b)(c)", mean_above(_pairs("ResNet-20 graphs a b c")),
                    agrees=0.2, contradicts=-0.5),
            Finding("1 % kept costs little on changing graphs",
                    above("ResNet-20 graphs a b SCSP top-1", "ResNet-20 graphs a b SP top-100"),
                    agrees=-3.0, contradicts=-8.0),
        ),
        _NARROW + "; graphs change after 110 and 60 rounds",
    ),
    "sparse-push-table7": Table(
        "Sparse-Push, table 7: random quantization to 4, 2 and 1 bits",
        _table7,
        (
            Finding("4 bits cost 1 point", above("ResNet-20 SP bits 4", "ResNet-20 SP top-100"),
                    agrees=-3.0, contradicts=-8.0),
            Finding("1 bit costs 1.2 points", above("ResNet-20 SP bits 1", "ResNet-20 SP top-100"),
                    agrees=-3.0, contradicts=-8.0),
            Finding("SCSP is not below SP",
                    mean_above([(f"ResNet-20 SCSP bits {bits}", f"ResNet-20 SP bits {bits}") for bits in (4, 2, 1)]),
                    agrees=-0.2, contradicts=-2.0),
        ),
        _NARROW,
        "the paper gives no averaging rate for quantization, here it is automatic; a norm per 512 numbers",
    ),
    "sparse-push-figure6": Table(
        "Sparse-Push, figure 6: accuracy by data skew, ResNet-20 with group norm, all and 10 % kept",
        _figure6,
        (
            Finding("at skew 0.8 keeping 10 % costs 6 points",
                    above("ResNet-20 group norm skew 0.8 SP top-100", "ResNet-20 group norm skew 0.8 SP top-10"),
                    agrees=3.0, paper=6.0),
        ),
        _NARROW_GROUPS + "; skew 0, 0.8 and 1",
    ),
    "sparse-push-figure7": Table(
        "Sparse-Push, figure 7: SP against SCSP at skew 0 and 0.8, ResNet-20 with group norm",
        _figure7,
        (
            Finding("SCSP recovers what SP loses to skew, 1 %",
                    mean_above(_pairs("ResNet-20 group norm skew 0.8", (1,))), agrees=2.0),
            Finding("SCSP under skew is near SP without, 1 %",
                    above("ResNet-20 group norm skew 0.8 SCSP top-1", "ResNet-20 group norm SP top-1"),
                    agrees=-2.0, contradicts=-6.0, paper=-0.4),
        ),
        _NARROW_GROUPS,
    ),
}  # fmt: skip
