"""The algorithms, one paper or family per file. `ALGORITHMS` lists those that an experiment file can name."""

from dataclasses import MISSING, fields
from typing import NamedTuple

import torch

from gossamer.algorithms.baselines import AdPsgd, AllReduce, Centralized, Epidemic, LocalOnly, RandomSampling
from gossamer.algorithms.cga import Cga, CompCga
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.composition import Alias, Wrapper, expand
from gossamer.algorithms.d2 import D2
from gossamer.algorithms.dcd_ecd_psgd import DcdPsgd, EcdPsgd
from gossamer.algorithms.deep_squeeze import DeepSqueeze
from gossamer.algorithms.dpsgd import Dpsgd
from gossamer.algorithms.drift_correction import DriftCorrection
from gossamer.algorithms.gradient_tracking import GradientTracking
from gossamer.algorithms.jwins import Jwins, QuantizedJwins
from gossamer.algorithms.jwins_push import JwinsPush
from gossamer.algorithms.lace import Lace
from gossamer.algorithms.momentum import Momentum, QuasiGlobalMomentum
from gossamer.algorithms.push_sum import PushSum, QuantSgp, Scsp, Sgp, SparsePush
from gossamer.algorithms.robust import ClippedGossip, CoordinateMedian
from gossamer.algorithms.silk import RelativeToInit, Silk
from gossamer.algorithms.skew_scout import SkewScout
from gossamer.core import Algorithm, PartSpec, State

ALGORITHMS: dict[str, type[Algorithm]] = {
    "dpsgd": Dpsgd,
    "random-sampling": RandomSampling,
    "jwins": Jwins,
    "choco": Choco,
    "deep-squeeze": DeepSqueeze,
    "d2": D2,
    "sgp": Sgp,
    "sparse-push": SparsePush,
    "scsp": Scsp,
    "quant-sgp": QuantSgp,
    "dcd-psgd": DcdPsgd,
    "ecd-psgd": EcdPsgd,
    "gradient-tracking": GradientTracking,
    "cga": Cga,
    "comp-cga": CompCga,
    "skew-scout": SkewScout,
    "clipped-gossip": ClippedGossip,
    "coordinate-median": CoordinateMedian,
    "ad-psgd": AdPsgd,
    "epidemic": Epidemic,
    "all-reduce": AllReduce,
    "centralized": Centralized,
    "local-only": LocalOnly,
    "jwins-push": JwinsPush,
    "jwins-quantized": QuantizedJwins,
    "silk": Silk,
    "lace": Lace,
    "push-sum": PushSum,
    "relative-to-init": RelativeToInit,
    "drift-correction": DriftCorrection,
}

PAPERS = {
    "dpsgd": "Lian et al., NeurIPS 2017",
    "random-sampling": "Dhasade et al., ICDCS 2023 (baseline)",
    "jwins": "Dhasade et al., ICDCS 2023",
    "choco": "Koloskova et al., ICML 2019",
    "deep-squeeze": "Tang et al., 2019",
    "d2": "Tang et al., ICML 2018",
    "sgp": "Assran et al., ICML 2019",
    "sparse-push": "Aketi et al., 2021",
    "scsp": "Aketi et al., 2021",
    "quant-sgp": "Taheri et al., ICML 2020",
    "dcd-psgd": "Tang et al., NeurIPS 2018",
    "ecd-psgd": "Tang et al., NeurIPS 2018",
    "gradient-tracking": "Pu and Nedic, 2018",
    "cga": "Esfandiari et al., ICML 2021",
    "comp-cga": "Esfandiari et al., ICML 2021",
    "skew-scout": "after Hsieh et al., ICML 2020",
    "clipped-gossip": "He et al., 2022",
    "coordinate-median": "Yin et al., ICML 2018",
    "ad-psgd": "Lian et al., ICML 2018",
    "epidemic": "De Vos et al., NeurIPS 2023",
    "push-sum": "Kempe et al., FOCS 2003",
    "jwins-push": "Gossamer",
    "jwins-quantized": "Gossamer",
    "silk": "Gossamer",
    "lace": "Gossamer",
    "relative-to-init": "Gossamer",
    "drift-correction": "after Liu et al., ICLR 2021",
}

__all__ = [
    "ALGORITHMS",
    "D2",
    "AdPsgd",
    "Alias",
    "AllReduce",
    "Centralized",
    "Cga",
    "Choco",
    "ClippedGossip",
    "CompCga",
    "CoordinateMedian",
    "DcdPsgd",
    "DeepSqueeze",
    "Dpsgd",
    "DriftCorrection",
    "EcdPsgd",
    "Epidemic",
    "GradientTracking",
    "Jwins",
    "JwinsPush",
    "Lace",
    "LocalOnly",
    "Momentum",
    "PushSum",
    "QuantSgp",
    "QuantizedJwins",
    "QuasiGlobalMomentum",
    "RandomSampling",
    "RelativeToInit",
    "Scsp",
    "Sgp",
    "Silk",
    "SkewScout",
    "SparsePush",
    "Wrapper",
]


class Entry(NamedTuple):
    """What to know of an algorithm before choosing it."""

    paper: str
    needs: list[str]
    memory: float | None  # model copies per node; None for what wraps another
    sends: list[str]


def entry(name: str, kind: type[Algorithm] | None = None) -> Entry:
    """What the algorithm of this name, with its defaults, needs and sends; `kind`, if it is not one of these."""
    paper, kind = PAPERS.get(name, ""), kind or ALGORITHMS[name]
    if issubclass(kind, Wrapper):
        return Entry(paper, ["an inner algorithm"], None, ["what the inner algorithm sends"])
    if any(f.init and f.default is MISSING and f.default_factory is MISSING for f in fields(kind)):  # type: ignore[arg-type]
        return Entry(paper, ["settings"], None, ["what they say"])
    algorithm = expand(kind())
    sends = [f"{part}: {_words(spec)}" for part, spec in algorithm.parts.items()]
    return Entry(paper, sorted(algorithm.requires), round(_size(algorithm.init(torch.zeros(1, 1024))) / 1024, 2), sends)


def _size(state: State) -> int:
    return sum(value.numel() if isinstance(value, torch.Tensor) else _size(value) for value in state)


def _words(spec: PartSpec) -> str:
    if spec.width == 1:
        return f"one {spec.values}"
    if spec.same_indices_as is not None:
        return f"{spec.values} of the same entries as {spec.same_indices_as}"
    which = "chosen entries" if spec.sparse else "entries drawn from a shared seed" if spec.seeded else "everything"
    return f"{which}, {spec.values}"
