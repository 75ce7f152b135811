"""Graphs whose exchanges average exactly after a few rounds, for any number of nodes.

The Base-(k+1) graphs of Takezawa, Sato, Bao, Niwa and Yamada, "Beyond exponential graph: communication-efficient
topologies for decentralized learning via finite-time convergence" (NeurIPS 2023). No node ever has more than k
neighbours, and 2 log_{k+1}(n) + 2 rounds suffice.

Numbers without a prime factor over k+1 are easy (a hyper-hypercube, below). Others are written in base k+1, digit by
digit: n = a_1 (k+1)^p_1 + a_2 (k+1)^p_2 + ..., with a group of nodes V_1, V_2, ... for each digit. Every group averages
by itself. Then the groups after V_1 take from it until their mean is that of all; so is V_1's then, since nothing is
lost, and V_1 averages once more while the groups after V_2 take from V_2, and so on.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from gossamer.graphs.base import Topology, check
from gossamer.graphs.generators import Links, pairs
from gossamer.graphs.mixing_matrix import MixingMatrix

Nodes = NDArray[np.int64]
Round = list[tuple[Links, float]]  # links, and the weight that each of them has


@dataclass(frozen=True)
class BaseGraph(Topology):
    """A sequence of graphs with few links over which any number of nodes average exactly (Base-(k+1))."""

    degree: int = 1  # k: a node has at most so many neighbours at a time
    static = False

    def __post_init__(self) -> None:
        check(self.degree >= 1, "degree", "at least 1", self.degree)

    def period(self, nodes: int, seed: int) -> int:
        return len(_mixings(nodes, self.degree))

    def representative_rounds(self, nodes: int, seed: int) -> tuple[int, ...]:
        return tuple(range(self.period(nodes, seed)))

    def at(self, nodes: int, seed: int, round: int) -> MixingMatrix:
        mixings = _mixings(nodes, self.degree)
        return mixings[round % len(mixings)]


@lru_cache(maxsize=2)
def _mixings(nodes: int, degree: int) -> list[MixingMatrix]:
    check(nodes >= 1, "nodes", "at least 1", nodes)
    rounds = _base(np.arange(nodes), degree + 1) or [[]]
    return [_mixing(round, nodes) for round in rounds]


def _mixing(round: Round, nodes: int) -> MixingMatrix:
    none = (np.empty((0, 2), np.int64), 0.0)
    links, weights = zip(*[none, *round], strict=True)
    each = np.concatenate([np.full(len(part), weight) for part, weight in zip(links, weights, strict=True)])
    return MixingMatrix.weighted(np.concatenate(links), each, nodes)


def _base(nodes: Nodes, base: int) -> list[Round]:
    """The paper's Base-(k+1) graph: the simple one, or one for each of several equal groups and then across them."""
    simple, groups = _simple_base(nodes, base), _smooth_part(len(nodes), base)
    grid = nodes.reshape(groups, -1)
    within = [_simple_base(group, base) for group in grid]
    factored = [*_together(within), *_together([_hyper_hypercube(column, base) for column in grid.T])]
    return factored if len(factored) < len(simple) else simple


def _simple_base(nodes: Nodes, base: int) -> list[Round]:
    """The paper's simple Base-(k+1) graph."""
    if _factors(len(nodes), base) is not None:
        return _hyper_hypercube(nodes, base)
    groups, rest = [], nodes
    for digit, power in _digits(len(nodes), base):
        groups.append(rest[: digit * power].reshape(digit, power))
        rest = rest[digit * power :]
    alone = [_hyper_hypercube(group.ravel(), base) for group in groups]
    schedules, start = list(alone), len(alone[0])
    for place, cells in enumerate(groups[:-1]):
        later = np.concatenate([group.ravel() for group in groups[place + 1 :]])
        weight = cells.size / (len(cells) * (cells.size + len(later)))
        taking: Round = [(pairs(later, cell[: len(later)]), weight) for cell in cells]
        again = _together([_hyper_hypercube(cell, base) for cell in cells])
        schedules.append([*([] for _ in range(start + place)), taking, *again])
    return _together(schedules)


def _hyper_hypercube(nodes: Nodes, base: int) -> list[Round]:
    """Exact averaging over groups whose sizes multiply to the number of nodes: a digit of a node's place at a time."""
    rounds, stride, factors = [], 1, _factors(len(nodes), base)
    assert factors is not None
    for size in factors:
        grid = nodes.reshape(-1, size, stride)
        ends = [(grid[:, a].ravel(), grid[:, b].ravel()) for a in range(size) for b in range(a + 1, size)]
        rounds.append([(pairs(*end), 1 / size) for end in ends])
        stride *= size
    return rounds


def _together(schedules: list[list[Round]]) -> list[Round]:
    """Schedules of different nodes, or of different times, as one."""
    rounds: list[Round] = [[] for _ in range(max(map(len, schedules)))]
    for schedule in schedules:
        for links, more in zip(rounds, schedule, strict=False):  # some are shorter
            links.extend(more)
    return rounds


@cache
def _factors(number: int, most: int) -> tuple[int, ...] | None:
    """The fewest factors, each at most `most`; None if a prime factor is larger."""
    if number == 1:
        return ()
    rests = [(size, _factors(number // size, most)) for size in range(2, min(number, most) + 1) if number % size == 0]
    found = [(*rest, size) for size, rest in rests if rest is not None]
    return min(found, key=len, default=None)


def _digits(number: int, base: int) -> list[tuple[int, int]]:
    """The digits of a number that are not 0, the highest first, and the power of the base that each stands for."""
    found, power = [], 1
    while number:
        number, digit = divmod(number, base)
        found.append((digit, power))
        power *= base
    return [(digit, power) for digit, power in reversed(found) if digit]


def _smooth_part(number: int, base: int) -> int:
    """The largest divisor of a number whose prime factors are at most `base`."""
    part = 1
    for factor in range(2, base + 1):
        while number % factor == 0:
            number, part = number // factor, part * factor
    return part
