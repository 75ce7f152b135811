"""Eight-bit training against float: see docs/results/eight-bits.md.

    GOSSAMER_DATA=DIR python benchmarks/eight_bits.py [--seeds 3] [--rounds 1500] [--json]

MNIST and a network of two convolutions on a directed ring of eight nodes, SGD with batches of 16 and a learning rate
that falls along a cosine, a tenth of each layer sent, averaging rates by "auto"; CHOCO and DeepSqueeze, each with
push-sum; data skew 0 and 0.8. In float with EvoNorm-S0, at skew 0.8 also with batch norm; in eight bits, messages too,
with Range-EvoNorm. What counts is the accuracy of the averaged model, as in the paper; that of the nodes' own models is
given too. Every normalization has its own learning rate, the best of `--tune`: CHOCO on held-out training samples with
seed 100, the mean of both skews.

`--norms` instead compares batch norm with EvoNorm-S0 at skew 0.8 where images are harder: CIFAR-10, the convolutions of
GN-LeNet, 300 rounds, learning rate 0.05, 2,000 test images.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean, stdev
from typing import NamedTuple

from torch import nn

from gossamer import Evaluation, Experiment, simulate
from gossamer.algorithms import QuantSgp, SparsePush
from gossamer.compressors import Chain, Compressor, LayerwiseTopK, Quantize
from gossamer.data import Cifar10, Mnist
from gossamer.data.arrays import Precision
from gossamer.data.partition import Skew
from gossamer.graphs.topologies import DirectedRing
from gossamer.models import GnLeNet
from gossamer.models.architecture import Architecture
from gossamer.models.lenet import convolution
from gossamer.models.norms import Norm, activation, normalization
from gossamer.training.optimizer import Optimizer
from gossamer.training.schedules import Cosine


@dataclass(frozen=True)
class TwoConvolutions(Architecture):
    """Two 5x5 convolutions of 8 and 16 channels, each normalized, in groups of two, and halved; and a linear layer."""

    norm: Norm

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        channels, height, width = inputs
        layers: list[nn.Module] = []
        for out in (8, 16):
            layers += convolution(channels, out, 5, normalization(self.norm, out, out // 2), activation(self.norm))
            channels = out
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * (height // 4) * (width // 4), outputs))


class Model(NamedTuple):
    norm: Norm
    precision: Precision
    learning_rate: float


MODELS = {
    "float, EvoNorm-S0": Model("evonorm-s0", "float32", 0.1),
    "8 bits, Range-EvoNorm": Model("range-evonorm", "int8", 0.1),
    "float, batch norm": Model("batch", "float32", 0.1),
}
GRID = {"evonorm-s0": (0.05, 0.1), "range-evonorm": (0.05, 0.1), "batch": (0.05, 0.1)}


def experiment(skew: float, algorithm: str, model: Model, rounds: int) -> Experiment:
    compressor: Compressor = LayerwiseTopK(0.1)
    if model.precision == "int8":
        compressor = Chain(compressor, Quantize(8))
    return Experiment(
        nodes=8,
        rounds=rounds,
        local_steps=1,
        batch_size=16,
        task=Mnist(TwoConvolutions(model.norm), model.precision),
        partition=Skew(skew),
        topology=DirectedRing(),
        algorithm=QuantSgp(compressor) if algorithm == "choco" else SparsePush(compressor, "auto"),
        optimizer=Optimizer(model.learning_rate, schedule=Cosine(warmup=rounds // 20)),
        evaluation=Evaluation(every=rounds, samples="all", nodes="all"),
    )


def results(rounds: int) -> Iterator[tuple[dict[str, object], Experiment]]:
    """The table's lines."""
    for skew, algorithm, (name, model) in product((0.0, 0.8), ("choco", "deep-squeeze"), MODELS.items()):
        if model.norm == "batch" and skew == 0:
            continue  # it is for skewed data that it is looked at
        case: dict[str, object] = {"skew": skew, "algorithm": algorithm, "model": name}
        yield case | {"learning_rate": model.learning_rate}, experiment(skew, algorithm, model, rounds)


def norms(rounds: int) -> Iterator[tuple[dict[str, object], Experiment]]:
    """Batch norm and EvoNorm-S0 on CIFAR-10."""
    for algorithm, norm in product(("choco", "deep-squeeze"), ("evonorm-s0", "batch")):
        chosen = experiment(0.8, algorithm, Model(norm, "float32", 0.05), 300)
        task, evaluation = Cifar10(GnLeNet(norm)), Evaluation(every=300, samples=2000, nodes="all")
        yield {"skew": 0.8, "algorithm": algorithm, "norm": norm}, replace(chosen, task=task, evaluation=evaluation)


def trials(rounds: int) -> Iterator[tuple[dict[str, object], Experiment]]:
    """Learning rates to choose from, on samples that are held out from training."""
    for name, model in MODELS.items():
        for rate, skew in product(GRID[model.norm], (0.0, 0.8)):
            trial = experiment(skew, "choco", model._replace(learning_rate=rate), rounds)
            validation = Evaluation(every=rounds, samples="all", nodes="all", validation=0.1)
            yield {"skew": skew, "model": name, "learning_rate": rate}, replace(trial, evaluation=validation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--tune", action="store_true", help="test learning rates on held-out training samples")
    parser.add_argument("--norms", action="store_true", help="compare batch norm with EvoNorm-S0 on CIFAR-10")
    parser.add_argument("--json", action="store_true", help="one object per line")
    options = parser.parse_args()
    seeds = (100,) if options.tune else range(options.seeds)
    for case, chosen in (trials if options.tune else norms if options.norms else results)(options.rounds):
        done = [simulate(replace(chosen, seed=seed)).result for seed in seeds]
        found = [result["accuracy_of_mean_model"] for result in done]
        row = case | {
            "accuracy": round(mean(found), 4),
            "deviation": round(stdev(found), 4) if len(found) > 1 else None,
            "accuracies": [round(accuracy, 4) for accuracy in found],
            "accuracy_of_nodes": round(mean(result["accuracy_mean"] for result in done), 4),
            "bytes": round(mean(result["bytes_total"] for result in done)),
            "seconds": round(sum(result["seconds"] for result in done), 1),
        }
        print(json.dumps(row) if options.json else "  ".join(f"{value}" for value in row.values()), flush=True)


if __name__ == "__main__":
    main()
