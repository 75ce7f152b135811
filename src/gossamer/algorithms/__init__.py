"""The algorithms, one paper a file. `ALGORITHMS` lists those that an experiment file can name."""

from gossamer.algorithms.dpsgd import Dpsgd
from gossamer.algorithms.jwins import Jwins
from gossamer.algorithms.momentum import Momentum
from gossamer.algorithms.random_sampling import RandomSampling
from gossamer.core import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "dpsgd": Dpsgd,
    "random-sampling": RandomSampling,
    "jwins": Jwins,
}

__all__ = ["ALGORITHMS", "Dpsgd", "Jwins", "Momentum", "RandomSampling"]
