"""How exactly ratings can be predicted at all: matrix factorization trained on all of MovieLens in one place.

    python benchmarks/movielens.py DIRECTORY [--epochs 25]

DIRECTORY holds ml-latest-small. Prints the mean square error and the share of test ratings that are predicted exactly,
and to within half a star, one star and so on; beside it, what answering the mean rating every time would give.
"""

import argparse
import os

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.data import MovieLens
from gossamer.data.movielens import within
from gossamer.data.sources import VARIABLE

TOLERANCES = (0.0, 0.5, 1.0, 1.5, 2.0)


def row(name: str, output: Tensor, target: Tensor) -> str:
    shares = " | ".join(f"{within(stars, output, target).mean():.1%}" for stars in TOLERANCES)
    return f"| {name} | {functional.mse_loss(output, target):.3f} | {shares} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--epochs", type=int, default=25)
    arguments = parser.parse_args()
    os.environ[VARIABLE] = arguments.directory
    torch.manual_seed(0)
    task = MovieLens().load()
    (pairs, stars), (test_pairs, test_stars) = task.train, task.test
    optimizer = torch.optim.Adam(task.module.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(arguments.epochs):
        for batch in torch.randperm(len(pairs)).split(512):
            optimizer.zero_grad()
            functional.mse_loss(task.module(pairs[batch]), stars[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        predicted = task.module(test_pairs)
    print("| | mean square error | exact | 0.5 | 1.0 | 1.5 | 2.0 stars |\n| --- | --- | --- | --- | --- | --- | --- |")
    print(row(f"matrix factorization, {arguments.epochs} epochs", predicted, test_stars))
    print(row("the mean rating", stars.mean().expand_as(test_stars), test_stars))


if __name__ == "__main__":
    main()
