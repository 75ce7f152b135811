"""Load what workers would otherwise load each, once and before they fork: kernels, compiled or from numba's cache."""

import numpy as np
import torch

from gossamer import wire
from gossamer.algorithms.composition import Wrapper
from gossamer.compressors import largest
from gossamer.compressors.quantizers import LARGEST, quantize
from gossamer.core import Algorithm, Part, partial_average, sparse_part, where
from gossamer.core.inbox import BlockInbox
from gossamer.experiments.experiment import Experiment
from gossamer.simulator.block_runner import edges_of
from gossamer.transforms import Transform


def precompile(experiment: Experiment) -> None:
    """The kernels that a round of the experiment needs, and few others."""
    _average(experiment)
    if any(spec.values.startswith("int") for spec in experiment.algorithm.parts.values()):
        quantize(torch.ones(1, 2), None, bucket=0, norm=LARGEST, top=1, rng=None)
    _transform(experiment.algorithm)
    wire.precompile(counted=experiment.wire.mode == "count")


def _average(experiment: Experiment) -> None:
    """Carry a small message along the links of the first node."""
    x = torch.ones(1, 2)
    part = sparse_part(x, largest(x, torch.full((1, 1), 0.5)))
    assert part.sent is not None
    where(part.sent, x, x)
    edges = edges_of(experiment.delivery, 0, slice(0, 1))
    edges = edges._replace(positions=np.zeros_like(edges.positions))  # whoever sends
    partial_average(x, BlockInbox({"x": part}, edges, [0]), "x")
    if any(spec.values == "float64" for spec in experiment.algorithm.parts.values()):
        BlockInbox({"x": Part(x.double())}, edges, [0]).sum("x")


def _transform(algorithm: Algorithm) -> None:
    """There and back with a small model."""
    while isinstance(algorithm, Wrapper):
        algorithm = algorithm.inner
    transform = getattr(algorithm, "transform", None)
    if isinstance(transform, Transform):
        transform.inverse(transform.forward(torch.zeros(1, 4096)))
