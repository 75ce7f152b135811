"""The tasks. `TASKS` lists those that an experiment file can name; `Supervised` is the one for your own."""

from gossamer.data.cifar import Cifar10, Cifar100
from gossamer.data.hugging_face import HuggingFace
from gossamer.data.images import ImageFolder, Imagenette
from gossamer.data.leaf import CelebA, Femnist, Shakespeare
from gossamer.data.mnist import Emnist, FashionMnist, Mnist, Qmnist
from gossamer.data.movielens import MovieLens
from gossamer.data.supervised import Supervised
from gossamer.data.table import Table
from gossamer.data.text import AgNews, SentenceLength
from gossamer.data.toy import Digits, Quadratic, Synthetic

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
