"""Eight-bit training against float: see docs/results/eight-bits.md.

    GOSSAMER_DATA=DIR python benchmarks/eight_bits.py [--seeds 3] [--rounds 100] [--rate 0.05] [--json]

Fashion-MNIST and the convolutions of GN-LeNet on a directed ring of eight nodes, SGD with batches of 32, a tenth of
each layer sent, averaging rates by "auto"; CHOCO and DeepSqueeze, each with push-sum; data skew 0 and 0.8. In float
with three normalizations; in eight bits, messages too, with Range-EvoNorm. What counts is the accuracy of the averaged
model, as in the paper. `--tune` instead tests learning rates on held-out training samples, with seed 100.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean, stdev

from gossamer import Evaluation, Experiment, simulate
from gossamer.algorithms import QuantSgp, SparsePush
from gossamer.compressors import Chain, Compression, LayerwiseTopK, Quantize
from gossamer.core import Algorithm
from gossamer.models import GnLeNet
from gossamer.optimizer import Optimizer
from gossamer.partition import Skew
from gossamer.tasks import FashionMnist
from gossamer.topologies import DirectedRing

NORMS = {
    "float, EvoNorm-S0": "evonorm-s0",
    "float, Range-EvoNorm": "range-evonorm",
    "8 bits, Range-EvoNorm": "range-evonorm",
    "float, batch norm": "batch",
}


def experiments(rounds: int, learning_rate: float) -> Iterator[tuple[dict[str, object], Experiment]]:
    for skew in (0.0, 0.8):
        for algorithm in ("choco", "deep-squeeze"):
            for name, norm in NORMS.items():
                eight_bits = name.startswith("8")
                compressor: Compression = LayerwiseTopK(0.1)
                if eight_bits:
                    compressor = Chain(compressor, Quantize(8))
                chosen: Algorithm = QuantSgp(compressor) if algorithm == "choco" else SparsePush(compressor, "auto")
                case: dict[str, object] = {"skew": skew, "algorithm": algorithm, "model": name}
                yield (
                    case,
                    Experiment(
                        nodes=8,
                        rounds=rounds,
                        local_steps=1,
                        batch_size=32,
                        task=FashionMnist(GnLeNet(norm), "int8" if eight_bits else "float32"),  # type: ignore[arg-type]
                        partition=Skew(skew),
                        topology=DirectedRing(),
                        algorithm=chosen,
                        optimizer=Optimizer(learning_rate),
                        evaluation=Evaluation(every=rounds, nodes=0),
                    ),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.05, help="the learning rate")
    parser.add_argument("--tune", action="store_true", help="test learning rates on held-out training samples")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    for rate in (0.05, 0.2, 0.4) if options.tune else (options.rate,):
        for case, experiment in experiments(options.rounds, rate):
            seeds = range(options.seeds)
            if options.tune:
                experiment, seeds = replace(experiment, evaluation=Evaluation(10**6, nodes=0, validation=0.1)), (100,)
            done = [simulate(replace(experiment, seed=seed)).result for seed in seeds]
            found = [result["accuracy_of_mean_model"] for result in done]
            row = case | {
                "learning_rate": rate,
                "accuracy": round(mean(found), 4),
                "deviation": round(stdev(found), 4) if len(found) > 1 else None,
                "accuracies": [round(accuracy, 4) for accuracy in found],
                "bytes": round(mean(result["bytes_total"] for result in done)),
                "seconds": round(sum(result["seconds"] for result in done), 1),
            }
            print(json.dumps(row) if options.json else "  ".join(f"{value}" for value in row.values()), flush=True)


if __name__ == "__main__":
    main()
