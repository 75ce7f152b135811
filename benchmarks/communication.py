"""What sharing costs beside training: the communication part of a JWINS round, and the papers' pipeline beside it.

    python benchmarks/communication.py [--quick] [--json]

96 nodes on a random 4-regular graph train GN-LeNet (89,834 parameters) on made-up images, three local steps of batch 8
a round, in the simulator itself with one worker; clocks around its parts tell where the time goes. In turn with every
round, seven node-rounds of the papers' pipeline, rewritten from its description, run on models of that round: three
forward transforms of PyWavelets and one inverse, padded; torch.topk and a sort of the indices; Elias-gamma and fpzip,
encoded once and decoded for every neighbour; one dense copy per neighbour. One JSON object per line:

    stage       the seconds of a round in each part of it, and its share of the round; "communication" is their sum
    share       of the communication part in the round: the median over rounds
    reference   the seconds of a node-round of the papers' pipeline, of ours, and how many times faster ours is

Times are those of the processor in one thread, so that others on the machine disturb them little; trust the ratios.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import thread_time
from typing import Any

import pywt
import torch
from torch import Tensor

from gossamer import Evaluation, Experiment, Optimizer, Supervised
from gossamer.algorithms import Jwins, jwins
from gossamer.algorithms.jwins import PAPER_CUTOFF
from gossamer.core.inbox import BlockInbox
from gossamer.graphs.topologies import RandomRegular
from gossamer.models import GnLeNet
from gossamer.simulator.allocator import tune_malloc
from gossamer.simulator.block_runner import BlockRunner
from gossamer.simulator.simulation import Simulation
from gossamer.training.block import Block
from gossamer.transforms import Wavelet
from gossamer.wire import Codec
from wire import elias_decode, elias_encode

NODES, DEGREE, LOCAL_STEPS, BATCH_SIZE = 96, 4, 3, 8
FRACTIONS = PAPER_CUTOFF.fractions  # after each round of ours, a node-round of the papers' pipeline with each of them

# -- where the simulator's time goes -----------------------------------------------------------------------------------


class Clock:
    """Time by stage: that of a part within another counts for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = [0.0]  # of each part under way, what its own parts took

    def wrap(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            self._inside.append(0.0)
            start = thread_time()
            try:
                return work(*arguments, **options)
            finally:
                taken = thread_time() - start
                self.seconds[stage] += taken - self._inside.pop()
                self._inside[-1] += taken

        return timed


PARTS: tuple[tuple[Any, str, str], ...] = (
    (Block, "train", "training"),
    (Wavelet, "forward", "transform"),
    (Wavelet, "inverse", "transform back"),
    (jwins, "largest", "select"),
    (Codec, "num_bytes", "count bytes"),
    (BlockInbox, "sum", "mix"),
    (BlockInbox, "coverage", "mix"),
    (jwins, "partial_average", "mix"),
    (Jwins, "share", "score"),
    (BlockRunner, "outgoing", "carry"),
    (BlockRunner, "incoming", "carry"),
    (Simulation, "step", "carry"),
)
COMMUNICATION = ("transform", "score", "select", "count bytes", "carry", "mix", "transform back")


@contextmanager
def clocks() -> Iterator[Clock]:
    """Clocks around the simulator's parts, for as long as this lasts."""
    clock, before = Clock(), [getattr(owner, name) for owner, name, _ in PARTS]
    for (owner, name, stage), work in zip(PARTS, before, strict=True):
        setattr(owner, name, clock.wrap(stage, work))
    try:
        yield clock
    finally:
        for (owner, name, _), work in zip(PARTS, before, strict=True):
            setattr(owner, name, work)


def experiment(nodes: int, rounds: int) -> Experiment:
    random = torch.Generator().manual_seed(0)
    images = torch.randn(8 * nodes, 3, 32, 32, generator=random)
    labels = torch.randint(10, (len(images),), generator=random)
    data = images, labels
    return Experiment(
        nodes=nodes,
        rounds=rounds,
        local_steps=LOCAL_STEPS,
        batch_size=BATCH_SIZE,
        task=Supervised(lambda: GnLeNet().build((3, 32, 32), 10), data, data),
        topology=RandomRegular(degree=DEGREE),
        algorithm=Jwins(),
        optimizer=Optimizer(learning_rate=0.01),
        evaluation=Evaluation(every=10 * rounds, nodes=0, samples=1),
    )


# -- the papers' pipeline, from its description: slow in the same way, not the same code -------------------------------


def papers_forward(x: Tensor) -> tuple[Tensor, Any]:
    coefficients, slices = pywt.coeffs_to_array(pywt.wavedec(x.numpy(), "sym2", mode="symmetric", level=4))
    return torch.from_numpy(coefficients), slices


def papers_inverse(coefficients: Tensor, slices: Any, width: int) -> Tensor:
    bands = pywt.array_to_coeffs(coefficients.numpy(), slices, output_format="wavedec")
    return torch.from_numpy(pywt.waverec(bands, "sym2", mode="symmetric"))[:width]


class PapersNode:
    """One node of the papers' implementation; its neighbours send it what it sends itself."""

    def __init__(self, start: Tensor, fpzip: Any):
        self._start, self._fpzip = start, fpzip
        self._scores = torch.zeros_like(papers_forward(start)[0])

    def round(self, x: Tensor, fraction: float) -> Tensor:
        """Share x, the model after the local steps, and average it with what DEGREE neighbours sent."""
        fpzip = self._fpzip
        self._scores += papers_forward(x - self._start)[0]
        coefficients, slices = papers_forward(x)
        _, found = torch.topk(self._scores.abs(), round(fraction * len(self._scores)), sorted=False)
        positions, _ = torch.sort(found)
        sent = coefficients[positions].numpy()
        message = elias_encode(positions.numpy()), fpzip.compress(sent, precision=0, order="C")
        total = torch.zeros_like(coefficients)
        for _ in range(DEGREE):
            places, values = elias_decode(*message[0]), fpzip.decompress(message[1], order="C").ravel()
            theirs = coefficients.clone()
            theirs[torch.from_numpy(places)] = torch.from_numpy(values)
            total += theirs / (DEGREE + 1)
        total += coefficients / (DEGREE + 1)
        averaged = papers_inverse(total, slices, len(x))
        self._scores[positions] = 0
        self._scores += papers_forward(averaged - self._start)[0]
        self._start = averaged
        return averaged


def fpzip_if_there() -> Any:
    try:
        import fpzip
    except ModuleNotFoundError:
        print("fpzip is not installed: the papers' pipeline is left out (pip install fpzip)", file=sys.stderr)
        return None
    return fpzip


# -- measuring ---------------------------------------------------------------------------------------------------------


def run(rounds: int) -> Iterator[dict[str, Any]]:
    fpzip = fpzip_if_there()
    by_round: list[dict[str, float]] = []
    papers_seconds: list[float] = []
    with clocks() as clock, Simulation(experiment(NODES, rounds + 1), workers=1) as simulation:
        nodes = [PapersNode(model, fpzip) for model in simulation.models()[: len(FRACTIONS)].clone()] if fpzip else []
        for number in range(rounds + 1):
            clock.seconds.clear()
            simulation.step()
            if number:  # the first round also loads kernels and touches memory
                by_round.append(dict(clock.seconds))
            for node, model, fraction in zip(nodes, simulation.models().clone(), FRACTIONS, strict=False):
                start = thread_time()
                averaged = node.round(model, fraction)
                papers_seconds.append(thread_time() - start)
                assert torch.allclose(averaged, model, atol=1e-5), "the average of equal models is not that model"
    whole = median(sum(seconds.values()) for seconds in by_round)
    ours = median(sum(seconds[stage] for stage in COMMUNICATION) for seconds in by_round)
    for stage in (*COMMUNICATION, "training"):
        seconds = median(found[stage] for found in by_round)
        yield {"measure": "stage", "stage": stage, "seconds": round(seconds, 4), "share": round(seconds / whole, 4)}
    yield {"measure": "stage", "stage": "communication", "seconds": round(ours, 4), "share": round(ours / whole, 4)}
    shares = [sum(s[stage] for stage in COMMUNICATION) / sum(s.values()) for s in by_round]
    yield {"measure": "share", "share": round(median(shares), 4), "goal": 0.12}
    if fpzip:
        papers = sum(papers_seconds) / len(papers_seconds)
        yield {
            "measure": "reference",
            "papers_seconds": round(papers, 5),
            "seconds": round(ours / NODES, 5),
            "times_faster": round(papers / (ours / NODES), 1),
            "goal": 20,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds in place of fourteen")
    parser.add_argument("--json", action="store_true", help="one JSON object per line in place of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tune_malloc()  # as workers do
    for row in run(3 if options.quick else 14):
        if options.json:
            print(json.dumps(row), flush=True)
        elif row["measure"] == "stage":
            print(f"{row['stage']:16} {1000 * row['seconds']:9.1f} ms {row['share']:8.1%}", flush=True)
        else:
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
