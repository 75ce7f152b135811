"""The tasks. `TASKS` lists those that an experiment file can name; `Supervised` is the one for your own."""

from gossamer.tasks.cifar import Cifar10, Cifar100
from gossamer.tasks.digits import Digits
from gossamer.tasks.hugging_face import HuggingFace
from gossamer.tasks.idx import Emnist, FashionMnist, Mnist
from gossamer.tasks.images import ImageFolder, Imagenette
from gossamer.tasks.leaf import CelebA, Femnist
from gossamer.tasks.movielens import MovieLens
from gossamer.tasks.qmnist import Qmnist
from gossamer.tasks.quadratic import Quadratic
from gossamer.tasks.shakespeare import Shakespeare
from gossamer.tasks.supervised import Supervised
from gossamer.tasks.synthetic import Synthetic
from gossamer.tasks.table import Table
from gossamer.tasks.text import AgNews, SentenceLength

TASKS: dict[str, type] = {
    "digits": Digits,
    "quadratic": Quadratic,
    "synthetic": Synthetic,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "emnist": Emnist,
    "qmnist": Qmnist,
    "femnist": Femnist,
    "celeba": CelebA,
    "imagenette": Imagenette,
    "shakespeare": Shakespeare,
    "ag-news": AgNews,
    "sentence-length": SentenceLength,
    "movielens": MovieLens,
    "image-folder": ImageFolder,
    "table": Table,
    "hugging-face": HuggingFace,
}

__all__ = [
    "TASKS",
    "AgNews",
    "CelebA",
    "Cifar10",
    "Cifar100",
    "Digits",
    "Emnist",
    "FashionMnist",
    "Femnist",
    "HuggingFace",
    "ImageFolder",
    "Imagenette",
    "Mnist",
    "MovieLens",
    "Qmnist",
    "Quadratic",
    "SentenceLength",
    "Shakespeare",
    "Supervised",
    "Synthetic",
    "Table",
]
