"""What eight bits cost in time, on one thread: python benchmarks/low_precision.py [--batch 32] [--repeat 20] [--json]

A training step (forward, loss, backward) of each model in float and in eight bits, taken in turns so that both see the
same machine, and the median of each. Then a forward pass in eight bits with floats that hold whole numbers against
one in integers (int8 x int8 -> int32), which gives the same bits.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn
from torch.nn import functional

from gossamer.models import GnLeNet, ResNet20
from gossamer.models.low_precision import products, to_int8
from gossamer.models.low_precision.rounding import quantize_activations, quantize_weights

MODELS = {
    "gn-lenet, evonorm-s0": GnLeNet("evonorm-s0"),
    "gn-lenet, range-evonorm": GnLeNet("range-evonorm"),
    "gn-lenet, group": GnLeNet(),
    "resnet20, evonorm-s0": ResNet20("evonorm-s0"),
    "resnet20, range-evonorm": ResNet20("range-evonorm"),
}


LAYERS = {  # channels, outputs, kernel (0: linear), side, batch
    "conv of gn-lenet": (32, 32, 5, 16, 32),
    "conv of resnet20": (64, 64, 3, 8, 32),
    "conv of resnet18": (256, 256, 3, 8, 32),
    "conv of vgg11": (512, 512, 3, 4, 32),
    "last of gn-lenet": (1024, 10, 0, 1, 32),
    "hidden of femnist-cnn": (3136, 2048, 0, 1, 32),
    "inner of distilbert": (768, 3072, 0, 1, 512),
}


def step(module: nn.Module, batch: int) -> Callable[[], None]:
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def run() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        functional.cross_entropy(module(images), labels).backward()

    return run


def in_turns(runs: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The median milliseconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeat + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn >= 2:  # the first compile and warm
                taken[name].append(1000 * (time.perf_counter() - start))
    return {name: median(times) for name, times in taken.items()}


def products_in_turns(name: str, repeat: int) -> dict[str, float]:
    """Sums of products of one layer, as floats that hold whole numbers and as integers."""
    channels, outputs, kernel, side, batch = LAYERS[name]
    kernels, sides = ([kernel, kernel], [side, side]) if kernel else ([], [])
    weight, _ = quantize_weights(torch.randn(outputs, channels, *kernels))
    numbers, levels = quantize_activations(torch.randn(batch, channels, *sides))
    if not kernel:
        runs = {
            "floats": lambda: products.linear(numbers, weight),
            "integers": lambda: products.int_linear(levels, weight),
        }
        taken = products.int_linear_pays(batch, weight)
    else:
        plain = products.ConvSettings([1, 1], [kernel // 2] * 2, [1, 1], 1)
        runs = {
            "floats": lambda: products.convolution(numbers, weight, plain),
            "integers": lambda: products.int_convolution(levels, weight, plain),
        }
        taken = products.int_convolution_pays(weight, plain)
    assert torch.equal(runs["floats"](), runs["integers"]())
    return in_turns(runs, repeat) | {"integers_taken": taken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, model in MODELS.items():
        module = model.build((3, 32, 32), 10)
        runs = {"float": step(module, options.batch), "int8": step(to_int8(module), options.batch)}
        found = in_turns(runs, options.repeat)
        line = {"case": name, "batch": options.batch}
        line |= {f"step_ms_{key}": round(value, 2) for key, value in found.items()}
        line["ratio"] = round(found["int8"] / found["float"], 2)
        show(line, options.json)
    for name in LAYERS:
        found = products_in_turns(name, options.repeat)
        line = {"case": name, **{f"ms_{key}": round(found[key], 2) for key in ("floats", "integers")}}
        line |= {"ratio": round(found["integers"] / found["floats"], 2), "integers_taken": found["integers_taken"]}
        show(line, options.json)


def show(line: dict[str, object], as_json: bool) -> None:
    print(json.dumps(line) if as_json else "  ".join(f"{key} {value}" for key, value in line.items()), flush=True)


if __name__ == "__main__":
    main()
