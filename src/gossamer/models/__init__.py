"""The models that an experiment file can name, each a family in a file of its own.

An `Architecture` is a frozen dataclass of hyper-parameters; `build(inputs, outputs)` makes the module. `inputs` tells
what one sample is, and so what the module takes for B of them:

    images     (channels, height, width)        float (B, channels, height, width)
    vectors    any shape                        float (B, ...)
    texts      (number of symbols, length)      int64 (B, length), each from 0 to under the number of symbols
    ratings    (number of users, of items)      int64 (B, 2), a user and an item

The module gives (B, outputs), one number per class; for ratings (B,).

Convolutional models take a `norm`: see `gossamer.models.norms`. Of all these, only "batch" and "range-batch" let the
samples of a minibatch meet, and only in training.
"""

from gossamer.models.architecture import Architecture
from gossamer.models.leaf import CelebaCnn, FemnistCnn, StackedLstm
from gossamer.models.lenet import GnLeNet
from gossamer.models.matrix_factorization import MatrixFactorization
from gossamer.models.mlp import LogisticRegression, Mlp
from gossamer.models.resnet import ResNet18, ResNet20, ResNet54, ResNet110
from gossamer.models.transformer import DistilBert, Transformer
from gossamer.models.vgg import Vgg11

MODELS: dict[str, type[Architecture]] = {
    "logistic-regression": LogisticRegression,
    "mlp": Mlp,
    "gn-lenet": GnLeNet,
    "femnist-cnn": FemnistCnn,
    "celeba-cnn": CelebaCnn,
    "stacked-lstm": StackedLstm,
    "matrix-factorization": MatrixFactorization,
    "resnet20": ResNet20,
    "resnet54": ResNet54,
    "resnet110": ResNet110,
    "resnet18": ResNet18,
    "vgg11": Vgg11,
    "transformer": Transformer,
    "distilbert": DistilBert,
}

__all__ = [
    "MODELS",
    "Architecture",
    "CelebaCnn",
    "DistilBert",
    "FemnistCnn",
    "GnLeNet",
    "LogisticRegression",
    "MatrixFactorization",
    "Mlp",
    "ResNet18",
    "ResNet20",
    "ResNet54",
    "ResNet110",
    "StackedLstm",
    "Transformer",
    "Vgg11",
]
