"""The algorithms, one paper per file. `ALGORITHMS` lists those that an experiment file can name."""

from gossamer.algorithms.baselines import AdPsgd, AllReduce, Centralized, Epidemic, LocalOnly
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.clipped_gossip import ClippedGossip
from gossamer.algorithms.composition import Alias, Wrapper
from gossamer.algorithms.coordinate_median import CoordinateMedian
from gossamer.algorithms.d2 import D2
from gossamer.algorithms.dcd_ecd_psgd import DcdPsgd, EcdPsgd
from gossamer.algorithms.deep_squeeze import DeepSqueeze
from gossamer.algorithms.dpsgd import Dpsgd
from gossamer.algorithms.gradient_tracking import GradientTracking
from gossamer.algorithms.jwins import Jwins
from gossamer.algorithms.jwins_push import JwinsPush
from gossamer.algorithms.jwins_quantized import QuantizedJwins
from gossamer.algorithms.momentum import Momentum
from gossamer.algorithms.push import QuantSgp, Scsp, Sgp, SparsePush
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.quasi_global_momentum import QuasiGlobalMomentum
from gossamer.algorithms.random_sampling import RandomSampling
from gossamer.algorithms.relative_to_init import RelativeToInit
from gossamer.algorithms.silk import Silk
from gossamer.algorithms.skew_scout import SkewScout
from gossamer.core import Algorithm

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
    "push-sum": PushSum,
    "relative-to-init": RelativeToInit,
}

__all__ = [
    "ALGORITHMS",
    "D2",
    "AdPsgd",
    "Alias",
    "AllReduce",
    "Centralized",
    "Choco",
    "ClippedGossip",
    "CoordinateMedian",
    "DcdPsgd",
    "DeepSqueeze",
    "Dpsgd",
    "EcdPsgd",
    "Epidemic",
    "GradientTracking",
    "Jwins",
    "JwinsPush",
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
