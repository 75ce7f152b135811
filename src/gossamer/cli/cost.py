"""The command that tells what training a model costs, before it is trained."""

import json
from math import ceil
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.options import examples, json_option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor, nn

    from gossamer.training.cost import Cost

SAMPLES: dict[str, tuple[tuple[int, ...], int]] = {  # of models that are not for CIFAR's images
    "logistic-regression": ((64,), 10),
    "mlp": ((64,), 10),
    "femnist-cnn": ((1, 28, 28), 62),
    "celeba-cnn": ((3, 84, 84), 2),
    "stacked-lstm": ((80, 80), 80),
    "matrix-factorization": ((610, 9724), 1),
    "transformer": ((20000, 64), 4),
    "distilbert": ((30522, 128), 4),
}
TEXTS = ("stacked-lstm", "transformer", "distilbert")
# What wraps another, or sends nothing.
SILENT = ("push-sum", "relative-to-init", "drift-correction", "centralized", "local-only")
COMPARED = ["dpsgd", "random-sampling", "jwins", "choco", "deep-squeeze", "deep-squeeze-int8", "sgp", "sparse-push"]


@click.command(
    epilog=examples(
        "gossamer cost resnet20 --batch 32",
        "gossamer cost vgg11 --algorithm choco --algorithm jwins",
        "gossamer cost mlp --inputs 8,8 --outputs 10 --nodes 16 --json",
    )
)
@click.argument("model")
@click.option(
    "--batch", type=click.IntRange(1, 2**31), default=32, show_default=True, help="Samples per step and node."
)
@click.option("--precision", type=click.Choice(["float", "int8", "both"]), default="both", help="What the table shows.")
@click.option("--nodes", type=click.IntRange(min=3), default=8, show_default=True, help="Of the ring.")
@click.option("--samples", type=click.IntRange(min=1), default=50_000, show_default=True, help="All training samples.")
@click.option("--epochs", type=click.IntRange(min=1), default=200, show_default=True, help="Of the whole training.")
@click.option("--inputs", help="The shape of a sample, such as 3,32,32; by default that of the model's own data set.")
@click.option("--outputs", type=click.IntRange(min=1), help="Classes; by default those of the model's own data set.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the model: norm=group.")
@click.option("--algorithm", "algorithms", multiple=True, help="Whose messages to measure; may be given several times.")
@json_option
def cost(
    model: str,
    batch: int,
    precision: str,
    nodes: int,
    samples: int,
    epochs: int,
    inputs: str | None,
    outputs: int | None,
    settings: tuple[str, ...],
    algorithms: tuple[str, ...],
    as_json: bool,
) -> None:
    """What training MODEL costs: operations, energy, memory and bytes, in float against eight bits."""
    import torch

    from gossamer.cli.console import print_result
    from gossamer.training.cost import CHOCOS_COPIES, Cost, layers_of

    names = list(algorithms or COMPARED)
    _check(names)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape, classes = _sizes(model, inputs, outputs)
    module = _built(model, settings, shape, classes)
    sample = _sample(model, shape, 1)
    found = Cost(layers_of(module, sample, batch), sum(p.numel() for p in module.parameters()), CHOCOS_COPIES)
    result = {"model": model, "batch": batch, "inputs": list(shape), "outputs": classes, "parameters": 0}
    result |= _told(found) | _measured(module, _sample(model, shape, batch))
    result |= _traffic(module, names, nodes, ceil(samples / (batch * nodes)) * epochs) | {"epochs": epochs}
    print_result(json.dumps(result) if as_json else _tables(result, precision))


def _check(algorithms: list[str]) -> None:
    from gossamer.algorithms import ALGORITHMS
    from gossamer.experiments.experiment import ExperimentError
    from gossamer.experiments.toml import guess

    known = [*ALGORITHMS, "deep-squeeze-int8"]
    for name in algorithms:
        if name not in known:
            raise ExperimentError(
                f"--algorithm {name}: there is none{guess(name, known)}; take one of {', '.join(known)}"
            )
        if name in SILENT:
            raise ExperimentError(f"--algorithm {name}: it has no messages; take one such as {', '.join(COMPARED)}")


def _sizes(model: str, inputs: str | None, outputs: int | None) -> tuple[tuple[int, ...], int]:
    from gossamer.experiments.experiment import ExperimentError

    shape, classes = SAMPLES.get(model, ((3, 32, 32), 10))
    if inputs is not None:
        words = [word.strip() for word in inputs.split(",")]
        if not all(word.isdecimal() and word.isascii() and int(word[:9]) > 0 for word in words):
            raise ExperimentError(f"--inputs {inputs}: write a shape such as 3,32,32")
        shape = tuple(int(word) for word in words)
    return shape, classes if outputs is None else outputs


def _built(model: str, settings: tuple[str, ...], shape: tuple[int, ...], classes: int) -> "nn.Module":
    from gossamer.experiments import toml
    from gossamer.experiments.experiment import section
    from gossamer.models import Architecture

    document: dict[str, Any] = {"model": {"name": model}}
    for setting in settings:
        toml.change(document, f"model.{setting}")
    architecture = toml.read_named(Architecture, document["model"], "model")
    with section("model"):
        built: nn.Module = architecture.build(shape, classes)
    return built


def _sample(model: str, shape: tuple[int, ...], count: int) -> "Tensor":
    import torch

    if model in TEXTS:
        return torch.randint(shape[0], (count, shape[1]))
    if model == "matrix-factorization":
        return torch.stack([torch.randint(size, (count,)) for size in shape], 1)
    return torch.randn(count, *shape)


def _told(found: "Cost") -> dict[str, Any]:
    """What the formulas say."""
    result: dict[str, Any] = {"parameters": found.num_parameters}
    for what, inference in (("", False), ("inference_", True)):
        counted = found.operations(lambda layer, inference=inference: layer.inference if inference else layer.training)  # type: ignore[misc]
        result |= {f"{what}adds": counted.adds, f"{what}mults": counted.mults}
        for name, int8 in (("float", False), ("int8", True)):
            result[f"{what}energy_mj_{name}"] = found.energy_mj(int8, inference)
            size = found.inference_bytes(int8) if inference else found.training_bytes(int8)
            result[f"{what}memory_mb_{name}"] = size / 1e6
            result[f"weights_mb_{name}"] = found.weight_bytes(int8) / 1e6
        result[f"{what}energy_ratio"] = result[f"{what}energy_mj_float"] / result[f"{what}energy_mj_int8"]
    result["energy_ratio_with_rounding_in_float"] = found.ratio_with_rounding_in_float
    result["layers"] = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "parameters": layer.num_parameters,
            "adds": layer.training.adds,
            "mults": layer.training.mults,
            "rounding_adds": layer.rounding.adds,
            "rounding_mults": layer.rounding.mults,
            "energy_mj_float": layer.energy_mj(False),
            "energy_mj_int8": layer.energy_mj(True),
            "remembered": layer.num_remembered,
            "stays_float": layer.stays_float,
        }
        for layer in found.layers
    ]
    return result


def _measured(module: "nn.Module", batch: "Tensor") -> dict[str, Any]:
    """The peak of a real step: activations and gradients, and neither weights nor an algorithm's copies."""
    from gossamer.models.low_precision import to_int8
    from gossamer.training.cost import peak_bytes

    result: dict[str, Any] = {}
    for name, chosen in (("float", module), ("int8", to_int8(module))):

        def step(chosen: "nn.Module" = chosen) -> None:
            chosen(batch).square().mean().backward()
            chosen.zero_grad()

        result[f"measured_memory_mb_{name}"] = peak_bytes(step) / 1e6
    return result


def _traffic(module: "nn.Module", algorithms: list[str], nodes: int, iterations: int) -> dict[str, Any]:
    from gossamer.experiments.experiment import section
    from gossamer.training.cost import message_bytes

    plain = sum(p.numel() for p in module.parameters())
    result: dict[str, Any] = {"nodes": nodes, "iterations": iterations}
    for name, width in (("float", 4), ("int8", 1)):
        result[f"gb_{name}"] = width * plain * iterations / 1e9
    with section("--algorithm"):
        result["message_bytes"] = {name: message_bytes(name, module, nodes) for name in algorithms}
    return result


def _tables(result: dict[str, Any], precision: str) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table

    shown = ["float", "int8"] if precision == "both" else [precision]

    def table(title: str, *columns: str) -> Table:
        made = Table(title=title, title_justify="left", title_style="bold", box=None)
        for i, column in enumerate(columns):
            made.add_column(column, justify="left" if i == 0 else "right", no_wrap=i > 0)
        return made

    energies = [f"mJ {name}" for name in shown]
    title = f"{result['model']}, a step of {result['batch']} samples"
    by_layer = table(title, "layer", "kind", "parameters", "million mults", *energies)
    for layer in result["layers"]:
        by_layer.add_row(
            layer["name"], layer["kind"], f"{layer['parameters']:,}", f"{layer['mults'] / 1e6:,.2f}",
            *(f"{layer[f'energy_mj_{name}']:.4f}" for name in shown),
        )  # fmt: skip
    both = precision == "both"
    total = table("in all", "", *shown, *(["ratio"] if both else []))
    rows = {
        "energy of a step, mJ": "energy_mj",
        "energy of inference, mJ": "inference_energy_mj",
        "memory of training, MB": "memory_mb",
        "memory of a step, measured, MB": "measured_memory_mb",
        "memory of inference, MB": "inference_memory_mb",
        "weights, MB": "weights_mb",
        "all sent by a node to one neighbour, GB": "gb",
    }
    for words, key in rows.items():
        values = [result[f"{key}_{name}"] for name in shown]
        ratio = [f"{values[0] / values[1]:.1f}"] if both else []
        total.add_row(words, *(f"{value:,.2f}" for value in values), *ratio)
    total.add_row("parameters", *[f"{result['parameters']:,}"] * len(shown))
    sent = table("a message to one neighbour", "algorithm", "bytes", "share of float32")
    for name, size in result["message_bytes"].items():
        sent.add_row(name, f"{size:,.0f}", f"{size / (4 * result['parameters']):.1%}")
    return Group(by_layer, "", total, "", sent, "", NOTES.format(**result))


NOTES = (
    "Energy: operations by the formulas of Aketi et al. 2022, energy per operation by Horowitz 2014. Rounding counts "
    "as integer operations; as float operations the ratio is {energy_ratio_with_rounding_in_float:.1f}. Memory of "
    "training: three copies of the model, as CHOCO keeps, gradient, momentum, and what the backward pass needs. "
    "Measured: what torch holds of a real step, without the copies. GB: 4 bytes or 1 per parameter, in {iterations:,} "
    "iterations ({epochs} epochs). Messages: this project's encoder, frame included."
)
