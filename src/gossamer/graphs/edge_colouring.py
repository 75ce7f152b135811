"""The links of a graph as pairings: a proper edge colouring, in which links that share a node differ in colour.

As many colours as the largest degree are needed, and one more always suffices (Vizing 1964). The fewer are tried first,
because links then return sooner: every bipartite graph can do with them (König 1916), and most others can. Where that
does not succeed, the algorithm of Misra and Gries (1992) takes the one more.
"""

from collections import deque
from itertools import count, pairwise

import numpy as np

from gossamer.core.rng import permutation, philox
from gossamer.graphs.generators import Links

NOBODY = -1
DRAWS = 10  # orders of the links, in search of one that needs no additional colour; of many links fewer
MANY = 40_000  # links
DISPLACED = 20  # links: an order that displaces more seldom succeeds


def edge_colouring(links: Links, nodes: int) -> list[Links]:
    """The different links of an undirected graph as pairings, each link in one of them."""
    if not len(links):
        return [links]
    degree = int(np.bincount(links.ravel(), minlength=nodes).max())
    colouring = None
    if len(links) <= degree * (nodes // 2):  # more do not fit into so many pairings
        draws = max(1, min(DRAWS, MANY // len(links)))
        orders = [permutation(philox(0, "edge colouring", round=draw), len(links)) for draw in range(draws)]
        tried = (_with_degree(links[order].tolist(), nodes, degree) for order in orders)
        colouring = next((found for found in tried if found), None)
    return (colouring or _with_one_more(links.tolist(), nodes, degree)).pairings()


def _with_degree(links: list[list[int]], nodes: int, degree: int) -> "_Colouring | None":
    """As many colours as the largest degree, if that succeeds: a link that finds no colour takes another's."""
    colouring, waiting = _Colouring(nodes, degree), deque(links)
    for _ in range(len(links) + DISPLACED):
        if not waiting:
            break
        one, other = waiting.popleft()
        colour = colouring.free_of_both(one, other)
        if colour is None:
            colour = colouring.free(other)
            if colouring.swap(one, colour, colouring.free(one)) == other:
                displaced = colouring.partner[other][colour]
                colouring.part(other, displaced, colour)
                waiting.append([displaced, other])
        colouring.join(one, other, colour)
    return None if waiting else colouring


def _with_one_more(links: list[list[int]], nodes: int, degree: int) -> "_Colouring":
    colouring = _Colouring(nodes, degree + 1)
    for one, other in links:
        colour = colouring.free_of_both(one, other)
        if colour is None:
            colouring.add(one, other)
        else:
            colouring.join(one, other, colour)
    return colouring


class _Colouring:
    """Whom each node meets in each colour."""

    def __init__(self, nodes: int, colours: int):
        self.partner = [[NOBODY] * colours for _ in range(nodes)]

    def free(self, node: int) -> int:
        """A colour in which a node meets nobody."""
        return self.partner[node].index(NOBODY)

    def free_of_both(self, one: int, other: int) -> int | None:
        """A colour in which neither of two nodes meets anybody."""
        both = enumerate(zip(self.partner[one], self.partner[other], strict=True))
        return next((colour for colour, met in both if met == (NOBODY, NOBODY)), None)

    def join(self, one: int, other: int, colour: int) -> None:
        assert self.partner[one][colour] == self.partner[other][colour] == NOBODY
        self.partner[one][colour], self.partner[other][colour] = other, one

    def part(self, one: int, other: int, colour: int) -> None:
        self.partner[one][colour] = self.partner[other][colour] = NOBODY

    def swap(self, start: int, first: int, second: int) -> int:
        """Exchange two colours along the path from a node that has the first and not the second; where it ends."""
        path = [start]
        for step in count():
            following = self.partner[path[-1]][(first, second)[step % 2]]
            if following == NOBODY:
                break
            path.append(following)
        for step, ends in enumerate(pairwise(path)):
            self.part(*ends, (first, second)[step % 2])
        for step, ends in enumerate(pairwise(path)):
            self.join(*ends, (second, first)[step % 2])
        return path[-1]

    def add(self, hub: int, other: int) -> None:
        """Colour a link where every node has a colour free (Misra and Gries)."""
        fan = self._fan(hub, other)
        colour = self.free(fan[-1])
        if self.partner[hub][colour] != NOBODY:
            self.swap(hub, colour, self.free(hub))
        end = 0  # the path may have changed colours in the fan: it is good up to the first end that the colour suits
        while self.partner[fan[end]][colour] != NOBODY:
            end += 1
        colours = [self.partner[hub].index(node) for node in fan[1 : end + 1]]
        for node, taken in zip(fan[1 : end + 1], colours, strict=True):
            self.part(hub, node, taken)
        for node, taken in zip(fan[: end + 1], [*colours, colour], strict=True):
            self.join(hub, node, taken)

    def _fan(self, hub: int, first: int) -> list[int]:
        """Neighbours of a node, as many as can be, each of whose links to it has a colour that the one before lacks."""
        fan = [first]
        while True:
            lacking = (colour for colour, met in enumerate(self.partner[fan[-1]]) if met == NOBODY)
            following = (self.partner[hub][colour] for colour in lacking)
            added = next((node for node in following if node != NOBODY and node not in fan), None)
            if added is None:
                return fan
            fan.append(added)

    def pairings(self) -> list[Links]:
        """The links of each colour that has any."""
        partner = np.array(self.partner)
        nodes = np.arange(len(partner))
        each = [nodes[partner[:, colour] > nodes] for colour in range(partner.shape[1])]
        return [np.stack([one, partner[one, colour]], axis=1) for colour, one in enumerate(each) if len(one)]
