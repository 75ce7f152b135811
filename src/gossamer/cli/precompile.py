"""The command that compiles all kernels before they are needed: in an image, or after an installation."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.options import examples

if TYPE_CHECKING:
    from gossamer.data import Supervised
    from gossamer.experiments.experiment import Experiment


@click.command(epilog=examples("gossamer precompile", "NUMBA_CACHE_DIR=/var/cache/numba gossamer precompile"))
def precompile() -> None:
    """Compile all kernels into the cache, and tell where it is; what is there already is not compiled again."""
    from gossamer.core import kernels, rng
    from gossamer.simulator.simulation import Simulation

    kernels.compilation.tell = lambda text: None  # the lines below say it
    started = time.monotonic()
    for what, experiment in experiments():
        click.echo(f"compiling: {what}", err=True)
        with Simulation(experiment, workers=1) as simulation:
            simulation.step()
    where = kernels.cache_directory(rng.fill_words)
    if where is None:
        from gossamer.experiments.experiment import ExperimentError

        raise ExperimentError("no directory for compiled kernels is writable; NUMBA_CACHE_DIR names one")
    shown = "beside the sources" if where.endswith("__pycache__") else f"in {where.rpartition('/')[0]}"
    click.echo(f"compiled in {time.monotonic() - started:.0f} s; kept {shown}", err=True)


def experiments() -> Iterator[tuple[str, "Experiment"]]:
    """Small ones that together use every kernel, and what is new in each."""
    import gossamer as gs

    small: dict[str, Any] = {"nodes": 5, "rounds": 1, "topology": gs.Ring(), "partition": gs.Iid()}
    encode = gs.Wire("encode")
    yield "messages", gs.Experiment(**small, wire=encode)
    sharing = (gs.Jwins(), gs.QuantizedJwins(), gs.QuantSgp(), gs.RandomSampling(), gs.Choco(), gs.Sgp())
    for algorithm in (*sharing, gs.Choco(gs.DeadZone(), 0.5)):
        yield type(algorithm).__name__, gs.Experiment(**small, algorithm=algorithm, wire=encode)
    yield "Cga", gs.Experiment(**small, algorithm=gs.Cga(), local_steps=1)
    for norm in ("group", "evonorm-s0"):
        model = gs.GnLeNet() if norm == "group" else gs.ResNet20(norm="evonorm-s0")
        yield f"images, {norm} norm", gs.Experiment(**small, task=_images(model), fast=True, batch_size=2)
    yield "eight bits", gs.Experiment(**small, task=_images(gs.ResNet20(norm="evonorm-s0"), int8=True), batch_size=2)
    yield "ratings", gs.Experiment(**small, task=_ratings())


def _images(model: Any, int8: bool = False) -> "Supervised":
    import torch

    import gossamer as gs
    from gossamer.data.arrays import Normalize

    data = torch.arange(10 * 3 * 32 * 32).remainder(251).to(torch.uint8).view(10, 3, 32, 32), torch.arange(10)

    def build() -> Any:
        return gs.to_int8(model.build((3, 32, 32), 10)) if int8 else model.build((3, 32, 32), 10)

    return gs.Supervised(build, data, data, prepare=Normalize())


def _ratings() -> "Supervised":
    import torch
    from torch.nn import functional

    import gossamer as gs

    data = torch.arange(20).remainder(4).view(10, 2), torch.ones(10)
    model = gs.MatrixFactorization()
    return gs.Supervised(
        lambda: model.build((4, 4), 1), data, data, functional.mse_loss, lambda x, y: (x - y).abs(), metric="error"
    )
