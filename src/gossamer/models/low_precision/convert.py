"""From a module to the same module in eight bits."""

import copy

from torch import nn

from gossamer.models.low_precision.layers import Int8Conv, Int8Embedding, Int8Linear, Int8Sum
from gossamer.models.low_precision.norms import (
    Int8EvoNormS0,
    Int8GroupNorm,
    Int8LayerNorm,
    Int8RangeBatchNorm,
    Int8RangeEvoNorm,
)
from gossamer.models.norms import EvoNormS0, RangeBatchNorm, RangeEvoNorm
from gossamer.models.resnet import Sum


class _Conv1d(Int8Conv, nn.Conv1d):
    pass


class _Conv2d(Int8Conv, nn.Conv2d):
    pass


class _Conv3d(Int8Conv, nn.Conv3d):
    pass


LAYERS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: _Conv1d,
    nn.Conv2d: _Conv2d,
    nn.Conv3d: _Conv3d,
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
