"""Recipes: complete experiments with a name. Change one with `dataclasses.replace`, or `--set` on the command line."""

from collections.abc import Callable

from gossamer.experiments.experiment import Experiment
from gossamer.experiments.recipes.digits import dpsgd_digits, jwins_digits, random_sampling_digits, silk_digits
from gossamer.experiments.recipes.jwins import (
    cifar10_first,
    jwins_celeba,
    jwins_cifar10,
    jwins_femnist,
    jwins_movielens,
    jwins_shakespeare,
    reference_16,
)
from gossamer.experiments.recipes.low_precision import full_precision_cifar10, low_precision_cifar10
from gossamer.experiments.recipes.sparse_push import (
    scsp_ring,
    sgp_ring,
    sparse_push_cifar10,
    sparse_push_cifar10_skew,
    sparse_push_ring,
)

RECIPES: dict[str, Callable[[], Experiment]] = {
    "dpsgd-digits": dpsgd_digits,
    "random-sampling-digits": random_sampling_digits,
    "jwins-digits": jwins_digits,
    "silk-digits": silk_digits,
    "sgp-ring": sgp_ring,
    "sparse-push-ring": sparse_push_ring,
    "scsp-ring": scsp_ring,
    "jwins-cifar10": jwins_cifar10,
    "cifar10-first": cifar10_first,
    "reference-16": reference_16,
    "jwins-movielens": jwins_movielens,
    "jwins-shakespeare": jwins_shakespeare,
    "jwins-femnist": jwins_femnist,
    "jwins-celeba": jwins_celeba,
    "sparse-push-cifar10": sparse_push_cifar10,
    "sparse-push-cifar10-skew": sparse_push_cifar10_skew,
    "low-precision-cifar10": low_precision_cifar10,
    "full-precision-cifar10": full_precision_cifar10,
}
