"""The tasks. `TASKS` lists those that an experiment file can name; `Supervised` is the one for your own."""

from gossamer.tasks.digits import Digits
from gossamer.tasks.quadratic import Quadratic
from gossamer.tasks.supervised import Supervised

TASKS: dict[str, type] = {
    "digits": Digits,
    "quadratic": Quadratic,
}

__all__ = ["TASKS", "Digits", "Quadratic", "Supervised"]
