"""Recipes: complete experiments with a name. Change one with `dataclasses.replace`, or `--set` on the command line."""

from collections.abc import Callable

from gossamer.experiment import Experiment
from gossamer.recipes.digits import dpsgd_digits, jwins_digits, random_sampling_digits, silk_digits
from gossamer.recipes.directed import scsp_ring, sgp_ring, sparse_push_ring

RECIPES: dict[str, Callable[[], Experiment]] = {
    "dpsgd-digits": dpsgd_digits,
    "random-sampling-digits": random_sampling_digits,
    "jwins-digits": jwins_digits,
    "silk-digits": silk_digits,
    "sgp-ring": sgp_ring,
    "sparse-push-ring": sparse_push_ring,
    "scsp-ring": scsp_ring,
}
