"""Gossamer trains one model together on many devices: no server, no raw data leaving a device, few bytes on the air.

Start with `gossamer.core`, which explains the parts. What is imported here is what most programs need.
"""

from gossamer import partition as partitions
from gossamer import topologies
from gossamer.algorithms import Dpsgd, Jwins, Momentum, RandomSampling
from gossamer.core import Algorithm, Part, PartSpec, chosen, partial_average
from gossamer.experiment import Evaluation, Experiment, ExperimentError
from gossamer.optimizer import Constant, Cosine, Optimizer, Steps
from gossamer.run import Run, StopRequest, open_run, resume, simulate, write_report
from gossamer.tasks import Digits, Quadratic, Supervised

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
    "chosen",
    "open_run",
    "partial_average",
    "partitions",
    "resume",
    "simulate",
    "topologies",
    "write_report",
]
