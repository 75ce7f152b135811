"""Gossamer trains one model together on many devices: no server, no raw data leaving a device, few bytes on the air.

Start with `gossamer.core`, which explains the parts. What is named here is what most programs need; it is imported when
it is first used, because torch takes seconds and `gossamer --help` needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.algorithms import Dpsgd, Jwins, Momentum, RandomSampling
    from gossamer.core import Algorithm, Part, PartSpec, partial_average, sparse_part
    from gossamer.data import Digits, Quadratic, Supervised
    from gossamer.data import partition as partitions
    from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError
    from gossamer.graphs import topologies
    from gossamer.runs.run import Run, open_run, write_report
    from gossamer.simulator.simulate import StopRequest, resume, simulate
    from gossamer.training.optimizer import Constant, Cosine, Optimizer, Steps

_HOMES = {
    "algorithms": ["Dpsgd", "Jwins", "Momentum", "RandomSampling"],
    "core": ["Algorithm", "Part", "PartSpec", "partial_average", "sparse_part"],
    "experiments.experiment": ["Evaluation", "Experiment", "ExperimentError"],
    "training.optimizer": ["Constant", "Cosine", "Optimizer", "Steps"],
    "runs.run": ["Run", "open_run", "write_report"],
    "simulator.simulate": ["StopRequest", "resume", "simulate"],
    "data": ["Digits", "Quadratic", "Supervised"],
}
_MODULES = {"partitions": "data.partition", "topologies": "graphs.topologies"}

__all__ = [
    "Algorithm",
    "Constant",
    "Cosine",
    "Digits",
    "Dpsgd",
    "Evaluation",
    "Experiment",
    "ExperimentError",
    "Jwins",
    "Momentum",
    "Optimizer",
    "Part",
    "PartSpec",
    "Quadratic",
    "RandomSampling",
    "Run",
    "Steps",
    "StopRequest",
    "Supervised",
    "open_run",
    "partial_average",
    "partitions",
    "resume",
    "simulate",
    "sparse_part",
    "topologies",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"gossamer.{_MODULES[name]}")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"gossamer.{module}"), name)
    raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
