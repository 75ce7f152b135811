"""Training in eight bits (Banner et al. 2018; Aketi, Kodge, Roy 2022): `to_int8(module)` converts any module's layers.

What is rounded to eight bits, each uniformly and with the range that it has at that moment:

    activations   what goes into a layer     0 .. 255 and a level for zero, a scale a sample    to the nearest
    weights       each tensor                -127 .. 127, one scale                             to the nearest
    gradients     what goes back to a layer  -127 .. 127, a scale a sample                      up or down at random

A layer's weights get their gradient from what came back before it is rounded ("gradient bifurcation"); the optimizer
and the exchange see the float master copy, which the parameters are. Rounding itself counts as the identity in the
gradient (straight-through); nothing is cut off, since ranges are taken from the numbers themselves.

Since each sample has its own scale, a sample's answer does not depend on the others. Random rounding draws one number
of torch's default generator a layer and step, and hashes the rest from it.
"""

from gossamer.models.low_precision.convert import to_int8

__all__ = ["to_int8"]
