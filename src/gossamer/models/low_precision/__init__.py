"""Training in eight bits (Banner et al. 2018; Aketi, Kodge, Roy 2022): `to_int8(module)` converts any module's layers.

What is rounded to eight bits, each uniformly and with the range that it has at that moment:

    activations   what goes into a layer     0 .. 255, one zero point and scale per sample    to nearest
    weights       each tensor                -127 .. 127, one scale per tensor                to nearest
    gradients     what goes back to a layer  -127 .. 127, one scale per sample                up or down at random

A layer's weights get their gradient from what came back before it is rounded ("gradient bifurcation"); the optimizer
and the exchange see the float master copy, which the parameters are. Rounding itself counts as the identity in the
gradient (straight-through); nothing is cut off, since ranges are taken from the numbers themselves.

Since each sample has its own scale, a sample's answer does not depend on the others. Random rounding draws one number
of torch's default generator per layer and step, and hashes the rest from it.
"""

import copy

from torch import nn

from gossamer.models.low_precision.layers import (
    Int8Conv1d,
    Int8Conv2d,
    Int8Conv3d,
    Int8Embedding,
    Int8EvoNormS0,
    Int8GroupNorm,
    Int8LayerNorm,
    Int8Linear,
    Int8RangeBatchNorm,
    Int8RangeEvoNorm,
    Int8Sum,
)
from gossamer.models.norms import EvoNormS0, RangeBatchNorm, RangeEvoNorm
from gossamer.models.resnet import Sum

LAYERS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: Int8Conv1d,
    nn.Conv2d: Int8Conv2d,
    nn.Conv3d: Int8Conv3d,
    nn.Linear: Int8Linear,
    nn.Embedding: Int8Embedding,
    nn.GroupNorm: Int8GroupNorm,
    nn.LayerNorm: Int8LayerNorm,
    Sum: Int8Sum,
    EvoNormS0: Int8EvoNormS0,
    RangeEvoNorm: Int8RangeEvoNorm,
    RangeBatchNorm: Int8RangeBatchNorm,
}
"""What is converted to what. Layers of other kinds, and of classes derived from these, stay as they are."""


def to_int8(module: nn.Module) -> nn.Module:
    """A copy of the module whose layers compute in eight bits; parameters keep names, order and float values."""
    converted = copy.deepcopy(module)
    for layer in converted.modules():
        if type(layer) in LAYERS and not _is_special(layer):
            layer.__class__ = LAYERS[type(layer)]  # all its hooks, settings and tensors stay where they are
    return converted


def _is_special(layer: nn.Module) -> bool:
    """An embedding that changes its weights as it reads them, or whose gradient is sparse."""
    return isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.sparse)
