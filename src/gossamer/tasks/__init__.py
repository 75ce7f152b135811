"""The tasks. `TASKS` lists those that an experiment file can name; `Supervised` is the one for your own."""

from gossamer.tasks.cifar import Cifar10, Cifar100
from gossamer.tasks.digits import Digits
from gossamer.tasks.idx import Emnist, FashionMnist, Mnist
from gossamer.tasks.movielens import MovieLens
from gossamer.tasks.quadratic import Quadratic
from gossamer.tasks.supervised import Supervised

TASKS: dict[str, type] = {
    "digits": Digits,
    "quadratic": Quadratic,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "emnist": Emnist,
    "movielens": MovieLens,
}

__all__ = [
    "TASKS",
    "Cifar10",
    "Cifar100",
    "Digits",
    "Emnist",
    "FashionMnist",
    "Mnist",
    "MovieLens",
    "Quadratic",
    "Supervised",
]
