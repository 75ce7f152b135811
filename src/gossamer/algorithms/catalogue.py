"""What to know of an algorithm before choosing it."""

from typing import NamedTuple

import torch

from gossamer.algorithms import ALGORITHMS
from gossamer.algorithms.composition import Wrapper, expand
from gossamer.core import PartSpec, State

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
    "skew-scout": "after Hsieh et al., ICML 2020",
    "clipped-gossip": "He et al., 2022",
    "coordinate-median": "Yin et al., ICML 2018",
    "ad-psgd": "Lian et al., ICML 2018",
    "epidemic": "De Vos et al., NeurIPS 2023",
    "push-sum": "Kempe et al., FOCS 2003",
    "jwins-push": "Gossamer",
    "jwins-quantized": "Gossamer",
    "silk": "Gossamer",
    "relative-to-init": "Gossamer",
}


class Entry(NamedTuple):
    paper: str
    needs: list[str]
    memory: float | None  # model copies per node; None for what wraps another
    sends: list[str]


def entry(name: str) -> Entry:
    """What the algorithm of this name, with its defaults, needs and sends."""
    paper = PAPERS.get(name, "")
    if issubclass(ALGORITHMS[name], Wrapper):
        return Entry(paper, ["an inner algorithm"], None, ["what the inner algorithm sends"])
    algorithm = expand(ALGORITHMS[name]())
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
