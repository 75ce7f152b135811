"""What is sent in place of a vector: fewer of its entries, or coarser ones, or both.

A compressor C is a frozen dataclass whose fields are its settings. It chooses entries and coarsens what it chose, and
what it returns is exactly what receivers see. Its promise, in expectation over its own random draws and up to the
rounding of float32, for rows of `width` numbers, buckets of n:

    kind           E |C(x) - x|^2 <= (1 - delta) |x|^2   and, if unbiased, E C(x) = x and E |C(x) - x|^2 <= omega |x|^2
    none           unbiased      omega = 0
    top-k          contraction   delta = k / width
    layerwise      contraction   delta = the least k / size of any layer
    random-k       contraction   delta = k / width
    threshold      contraction   delta = 0: if nothing is over the threshold, nothing is sent
    bfloat16       contraction   delta = 1 - 1 / 257^2
    quantize       contraction   delta = 4 s^2 / (4 s^2 + n - 1), levels -s .. s
     stochastic    unbiased      omega = (sqrt(1 + (n - 1) / s^2) - 1) / 2
    qsgd, max      unbiased      the same
    qsgd, l2       unbiased      omega = n / (4 s^2) if n <= 4 s^2, else sqrt(n) / s - 1
    scaled         contraction   delta = 1 / (1 + omega), of the unbiased compressor in it
    sign           contraction   delta = 1 / n
    dead-zone      contraction   delta = about 0.8 k / width / (1 + k / 38,000), with the default offset
    chain          contraction   delta = the product of the two (the second's, if that is under 0)
"""

from gossamer.compressors.base import Chain, Compressor, Kind
from gossamer.compressors.quantizers import BFloat16, DeadZone, Qsgd, Quantize, Scaled, Sign
from gossamer.compressors.sparsifiers import (
    LayerwiseTopK,
    NoCompression,
    RandomK,
    Threshold,
    TopK,
    count,
    largest,
    random_entries,
)

COMPRESSORS: dict[str, type[Compressor]] = {
    "none": NoCompression,
    "top-k": TopK,
    "layerwise-top-k": LayerwiseTopK,
    "random-k": RandomK,
    "threshold": Threshold,
    "bfloat16": BFloat16,
    "quantize": Quantize,
    "qsgd": Qsgd,
    "scaled": Scaled,
    "sign": Sign,
    "dead-zone": DeadZone,
    "chain": Chain,
}

__all__ = [
    "COMPRESSORS",
    "BFloat16",
    "Chain",
    "Compressor",
    "DeadZone",
    "Kind",
    "LayerwiseTopK",
    "NoCompression",
    "Qsgd",
    "Quantize",
    "RandomK",
    "Scaled",
    "Sign",
    "Threshold",
    "TopK",
    "count",
    "largest",
    "random_entries",
]
