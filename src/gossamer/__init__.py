"""Train one model together on many devices: no server, no raw data leaving a device, few bytes over the network.

    import gossamer as gs

Every public name is here: all that an experiment file can name (`gs.Jwins`, `gs.Ring`, `gs.TopK`, ...), the types that
one writes an algorithm with, and what runs experiments. `gs.core` explains the parts; start there. A name is imported
when it is first used, because torch takes seconds and `gossamer --help` needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # the same names as in the tables below, for type checkers and editors
    # fmt: off
    # isort: off
    from gossamer.algorithms import (
        AdPsgd, Alias, AllReduce, Centralized, Cga, Choco, ClippedGossip, CompCga, CoordinateMedian, D2, DcdPsgd,
        DeepSqueeze, Dpsgd, DriftCorrection, EcdPsgd, Epidemic, GradientTracking, Jwins, JwinsPush, Lace, LocalOnly,
        Momentum, PushSum, QuantSgp, QuantizedJwins, QuasiGlobalMomentum, RandomSampling, RelativeToInit, Scsp, Sgp,
        Silk, SkewScout, SparsePush, Wrapper,
    )
    from gossamer.compressors import (
        BFloat16, Chain, Compressor, DeadZone, LayerwiseTopK, NoCompression, Qsgd, Quantize, RandomK, Scaled, Sign,
        Threshold, TopK,
    )
    from gossamer.transforms import Fourier, Identity, Transform, Wavelet
    from gossamer.graphs.topologies import (
        BaseGraph, Cycle, DirectedRandom, DirectedRing, EdgeList, ErdosRenyi, FourNodeRing, FullyConnected, Matchings,
        OnePeerExponential, RandomMatching, RandomRegular, Redrawn, Ring, SmallWorld, Star, Topology, Torus,
    )
    from gossamer.graphs.clock import Clock, Distribution, LogNormal, Uniform
    from gossamer.graphs.faults import Faults
    from gossamer.data import (
        AgNews, CelebA, Cifar10, Cifar100, Digits, Emnist, FashionMnist, Femnist, HuggingFace, ImageFolder, Imagenette,
        Mnist, MovieLens, Qmnist, Quadratic, SentenceLength, Shakespeare, Supervised, Synthetic, Table,
    )
    from gossamer.data.partition import ByClient, Dirichlet, Iid, LabelCuts, LabelShards, Partition, Skew
    from gossamer.models import (
        Architecture, CelebaCnn, DistilBert, FemnistCnn, GnLeNet, LogisticRegression, MatrixFactorization, Mlp,
        ResNet18, ResNet20, ResNet54, ResNet110, StackedLstm, Transformer, Vgg11,
    )
    from gossamer.models.low_precision import to_int8
    from gossamer.training.optimizer import SGD, Adam, AdamW, LocalOptimizer, Optimizer
    from gossamer.training.schedules import Constant, Cosine, Linear, Plateau, Schedule, Steps
    from gossamer.training.privacy import Privacy
    from gossamer.core import (
        Algorithm, Inbox, Message, Part, PartSpec, Quantized, Round, Streams, Task, partial_average, sparse_part, where,
    )
    from gossamer.experiments.auto import Auto
    from gossamer.experiments.experiment import Evaluation, Experiment, ExperimentError, Wire
    from gossamer.experiments.grid import grid
    from gossamer.experiments.toml import read_experiment
    from gossamer.runs.callbacks import BestCheckpoint, EarlyStopping
    from gossamer.runs.comparison import Comparison, Difference, Estimate, SettingSummary, ToTarget
    from gossamer.runs.run import Result, Run, open_run, write_report
    from gossamer.simulator.audit import Audit, audit
    from gossamer.simulator.compare import compare
    from gossamer.simulator.plan import Plan, plan
    from gossamer.runs.loggers import MLflowLogger, TensorBoardLogger, WandbLogger
    from gossamer.simulator.pack import pack
    from gossamer.simulator.simulate import StopRequest, resume, settle, simulate
    from gossamer.simulator.sweep import sweep
    from gossamer.peers.config import PeerConfig, Timeouts
    from gossamer.peers.doctor import examine_peer
    from gossamer.peers.peer import Signals, run_peer
    from gossamer import algorithms
    from gossamer import compressors
    from gossamer import core
    from gossamer import models
    from gossamer.data import partition as partitions
    from gossamer.experiments import recipes as recipes
    from gossamer import data as tasks
    from gossamer.graphs import topologies as topologies
    from gossamer import transforms
    # isort: on
    # fmt: on

_MODULES = {  # by what they are called here
    "algorithms": "algorithms",
    "compressors": "compressors",
    "core": "core",
    "models": "models",
    "partitions": "data.partition",
    "recipes": "experiments.recipes",
    "tasks": "data",
    "topologies": "graphs.topologies",
    "transforms": "transforms",
}
_NAMES = {  # by the module that has them
    "algorithms": (
        "AdPsgd Alias AllReduce Centralized Cga Choco ClippedGossip CompCga CoordinateMedian D2 DcdPsgd DeepSqueeze "
        "Dpsgd DriftCorrection EcdPsgd Epidemic GradientTracking Jwins JwinsPush Lace LocalOnly Momentum PushSum "
        "QuantSgp QuantizedJwins QuasiGlobalMomentum RandomSampling RelativeToInit Scsp Sgp Silk SkewScout "
        "SparsePush Wrapper"
    ),
    "compressors": (
        "BFloat16 Chain Compressor DeadZone LayerwiseTopK NoCompression Qsgd Quantize RandomK Scaled Sign Threshold "
        "TopK"
    ),
    "transforms": "Fourier Identity Transform Wavelet",
    "graphs.topologies": (
        "BaseGraph Cycle DirectedRandom DirectedRing EdgeList ErdosRenyi FourNodeRing FullyConnected Matchings "
        "OnePeerExponential RandomMatching RandomRegular Redrawn Ring SmallWorld Star Topology Torus"
    ),
    "graphs.clock": "Clock Distribution LogNormal Uniform",
    "graphs.faults": "Faults",
    "data": (
        "AgNews CelebA Cifar10 Cifar100 Digits Emnist FashionMnist Femnist HuggingFace ImageFolder Imagenette "
        "Mnist MovieLens Qmnist Quadratic SentenceLength Shakespeare Supervised Synthetic Table"
    ),
    "data.partition": "ByClient Dirichlet Iid LabelCuts LabelShards Partition Skew",
    "models": (
        "Architecture CelebaCnn DistilBert FemnistCnn GnLeNet LogisticRegression MatrixFactorization Mlp ResNet18 "
        "ResNet20 ResNet54 ResNet110 StackedLstm Transformer Vgg11"
    ),
    "models.low_precision": "to_int8",
    "training.optimizer": "SGD Adam AdamW LocalOptimizer Optimizer",
    "training.schedules": "Constant Cosine Linear Plateau Schedule Steps",
    "training.privacy": "Privacy",
    "core": "Algorithm Inbox Message Part PartSpec Quantized Round Streams Task partial_average sparse_part where",
    "experiments.auto": "Auto",
    "experiments.experiment": "Evaluation Experiment ExperimentError Wire",
    "experiments.grid": "grid",
    "experiments.toml": "read_experiment",
    "runs.callbacks": "BestCheckpoint EarlyStopping",
    "runs.comparison": "Comparison Difference Estimate SettingSummary ToTarget",
    "runs.run": "Result Run open_run write_report",
    "simulator.compare": "compare",
    "simulator.plan": "Plan plan",
    "runs.loggers": "MLflowLogger TensorBoardLogger WandbLogger",
    "simulator.pack": "pack",
    "simulator.simulate": "StopRequest resume settle simulate",
    "simulator.audit": "Audit audit",
    "simulator.sweep": "sweep",
    "peers.config": "PeerConfig Timeouts",
    "peers.doctor": "examine_peer",
    "peers.peer": "Signals run_peer",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022 - in alphabetical order; written out, since type checkers compute nothing
    "AdPsgd", "Adam", "AdamW", "AgNews", "Algorithm", "Alias", "AllReduce", "Architecture", "Audit", "Auto", "BFloat16",
    "BaseGraph", "BestCheckpoint", "ByClient", "CelebA", "CelebaCnn", "Centralized", "Cga", "Chain", "Choco", "Cifar10",
    "Cifar100", "ClippedGossip", "Clock", "CompCga", "Comparison", "Compressor", "Constant", "CoordinateMedian",
    "Cosine", "Cycle", "D2", "DcdPsgd", "DeadZone", "DeepSqueeze", "Difference", "Digits", "DirectedRandom",
    "DirectedRing", "Dirichlet", "DistilBert", "Distribution", "Dpsgd", "DriftCorrection", "EarlyStopping", "EcdPsgd",
    "EdgeList", "Emnist", "Epidemic", "ErdosRenyi", "Estimate", "Evaluation", "Experiment", "ExperimentError",
    "FashionMnist", "Faults", "Femnist", "FemnistCnn", "FourNodeRing", "Fourier", "FullyConnected", "GnLeNet",
    "GradientTracking", "HuggingFace", "Identity", "Iid", "ImageFolder", "Imagenette", "Inbox", "Jwins", "JwinsPush",
    "LabelCuts", "LabelShards", "Lace", "LayerwiseTopK", "Linear", "LocalOnly", "LocalOptimizer", "LogNormal",
    "LogisticRegression", "MLflowLogger", "Matchings", "MatrixFactorization", "Message", "Mlp", "Mnist", "Momentum",
    "MovieLens", "NoCompression", "OnePeerExponential", "Optimizer", "Part", "PartSpec", "Partition", "PeerConfig",
    "Plan", "Plateau", "Privacy", "PushSum", "Qmnist", "Qsgd", "Quadratic", "QuantSgp", "Quantize", "Quantized",
    "QuantizedJwins", "QuasiGlobalMomentum", "RandomK", "RandomMatching", "RandomRegular", "RandomSampling", "Redrawn",
    "RelativeToInit", "ResNet110", "ResNet18", "ResNet20", "ResNet54", "Result", "Ring", "Round", "Run", "SGD",
    "Scaled", "Schedule", "Scsp", "SentenceLength", "SettingSummary", "Sgp", "Shakespeare", "Sign", "Signals", "Silk",
    "Skew", "SkewScout", "SmallWorld", "SparsePush", "StackedLstm", "Star", "Steps", "StopRequest", "Streams",
    "Supervised", "Synthetic", "Table", "Task", "TensorBoardLogger", "Threshold", "Timeouts", "ToTarget", "TopK",
    "Topology", "Torus", "Transform", "Transformer", "Uniform", "Vgg11", "WandbLogger", "Wavelet", "Wire", "Wrapper",
    "__version__", "algorithms", "audit", "compare", "compressors", "core", "examine_peer", "grid", "models",
    "open_run", "pack", "partial_average", "partitions", "plan", "read_experiment", "recipes", "resume", "run_peer",
    "settle", "simulate", "sparse_part", "sweep", "tasks", "to_int8", "topologies", "transforms", "where",
    "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = import_module(f"gossamer.{_MODULES[name]}")
    elif name in _HOMES:
        found = getattr(import_module(f"gossamer.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
    globals()[name] = found  # this function is asked only once
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
