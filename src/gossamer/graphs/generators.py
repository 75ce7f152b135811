"""Links of graphs that are drawn at random or read from a file.

Drawn from the raw words of `rng.philox` and not by a graph library: every peer must draw the same graph, and the
draws of a library change from version to version.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.core.rng import permutation

Links = NDArray[np.int64]  # (m, 2): sender and receiver; of an undirected graph the two ends, in any order
MAX_DRAWS = 100  # of a random graph, in search of a connected one


def pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> Links:
    return np.stack([first, second], axis=1)


def ring(order: NDArray[np.int64]) -> Links:
    return pairs(order, np.roll(order, -1))


def connected(links: Links, nodes: int, directed: bool = False) -> bool:
    """Does every node reach every other?"""
    back = links[:, ::-1]
    if directed:
        return _reaches_all(links, nodes) and _reaches_all(back, nodes)
    return _reaches_all(np.concatenate([links, back]), nodes)


def _reaches_all(links: Links, nodes: int) -> bool:
    """Are there ways along the links from the first node to all others?"""
    links = links[np.argsort(links[:, 0])]
    starts, receivers = np.searchsorted(links[:, 0], np.arange(nodes + 1)).tolist(), links[:, 1].tolist()
    reached, at = {0}, [0]
    while at and len(reached) < nodes:
        node = at.pop()
        new = set(receivers[starts[node] : starts[node + 1]]) - reached
        reached |= new
        at.extend(new)
    return len(reached) == nodes


def first_connected(draw: Callable[[], Links], nodes: int, what: str, advice: str) -> Links:
    """The first connected graph of repeated draws, of so many at most."""
    for _ in range(MAX_DRAWS):
        links = draw()
        if connected(links, nodes):
            return links
    raise ValueError(f"{what} of {nodes} nodes was not connected in {MAX_DRAWS} draws; {advice}")


def _uniform(bits: np.random.Philox, length: int) -> NDArray[np.float64]:
    return np.asarray(bits.random_raw(length) >> np.uint64(11), np.float64) * 2.0**-53


def regular(nodes: int, degree: int, bits: np.random.Philox) -> Links:
    """Pair the nodes' free ends at random, and those of forbidden pairs again (after Steger and Wormald, 1999).

    Any regular graph can come out, all nearly as likely where the degree is small beside the number of nodes.
    """
    if 2 * degree > nodes - 1:  # few pairs remain allowed towards the end: draw the links that are missing instead
        first, second = np.triu_indices(nodes, 1)
        missing = np.sort(regular(nodes, nodes - 1 - degree, bits), axis=1)
        keep = ~np.isin(first * nodes + second, missing[:, 0] * nodes + missing[:, 1])
        return pairs(first[keep], second[keep])
    while True:
        ends, taken = np.repeat(np.arange(nodes), degree), np.empty(0, np.int64)
        for _ in range(30):  # then the few free ends that remain may have no allowed pair: begin again
            ends_of = np.sort(ends[permutation(bits, len(ends))].reshape(-1, 2), axis=1)
            keys = ends_of[:, 0] * nodes + ends_of[:, 1]
            new = np.zeros(len(keys), bool)
            new[np.unique(keys, return_index=True)[1]] = True
            new &= (ends_of[:, 0] != ends_of[:, 1]) & ~np.isin(keys, taken)
            taken, ends = np.append(taken, keys[new]), ends_of[~new].ravel()
            if not len(ends):
                return pairs(*np.divmod(taken, nodes))


def erdos_renyi(nodes: int, probability: float, bits: np.random.Philox) -> Links:
    """Any two nodes with the same probability."""
    first, second = np.triu_indices(nodes, 1)
    linked = np.flatnonzero(_uniform(bits, len(first)) < probability)
    return pairs(first[linked], second[linked])


def small_world(nodes: int, degree: int, rewire: float, bits: np.random.Philox) -> Links:
    """A ring lattice each of whose links leads anywhere else with probability `rewire`."""
    near, hops = np.arange(nodes), range(1, degree // 2 + 1)
    links = np.concatenate([pairs(near, (near + hop) % nodes) for hop in hops])
    taken = [{i} for i in range(nodes)]  # oneself and one's neighbours
    for i, j in links.tolist():
        taken[i].add(j)
        taken[j].add(i)
    for link in np.flatnonzero(_uniform(bits, len(links)) < rewire):
        i, j = map(int, links[link])
        if len(taken[i]) == nodes:  # there is nowhere else to lead
            continue
        new = i
        while new in taken[i]:
            new = int(bits.random_raw()) % nodes
        taken[i].remove(j)
        taken[j].remove(i)
        taken[i].add(new)
        taken[new].add(i)
        links[link, 1] = new
    return links


def directed_random(nodes: int, out_degree: int, bits: np.random.Philox) -> Links:
    """From every node to the next one of a random ring and to distinct others at random.

    The ring makes it strongly connected. Without it a graph of 96 nodes that send to two others each is so once in
    a million draws: some node is nobody's choice.
    """
    order = permutation(bits, nodes)
    hops = np.ones((nodes, out_degree), np.int64)  # along the ring: different hops, different receivers
    for column in range(1, out_degree):  # Floyd's sampling of distinct numbers, here of 2 .. nodes - 1
        last = nodes - out_degree + column
        hop = (2 + bits.random_raw(nodes) % np.uint64(last - 1)).astype(np.int64)
        seen = (hops[:, :column] == hop[:, None]).any(axis=1)
        hops[:, column] = np.where(seen, last, hop)
    receivers = order[(np.arange(nodes)[:, None] + hops) % nodes]
    return pairs(np.repeat(order, out_degree), receivers.ravel())


def read_file(path: str, expected: str, what: str = "graph") -> tuple[str, str]:
    """The text of a graph's or a trace's file, and its digest, which must be the expected one unless that is empty."""
    try:
        content = Path(path).read_bytes()
        text, digest = content.decode(), sha256(content).hexdigest()[:16]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"the {what} {path} cannot be read: {reason}") from error
    if expected not in ("", digest):
        raise ValueError(
            f"the {what} {path} is not the one whose digest is {expected}; put that back, or start a new run"
        )
    return text, digest


def read_links(path: str, nodes: int, directed: bool, digest: str) -> Links:
    """The links of a connected graph's file: first line the number of nodes, then a line "i j" per link."""
    lines = read_file(path, digest)[0].splitlines()
    if not lines or not lines[0].strip().isdecimal():
        raise ValueError(f"line 1 of the graph {path} must be its number of nodes")
    if int(lines[0]) != nodes:
        raise ValueError(f"the graph {path} has {int(lines[0])} nodes, the experiment {nodes}; make them equal")
    found = []
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if words and (len(words) != 2 or not all(word.isdecimal() and int(word) < nodes for word in words)):
            must = f'must be two nodes "i j" between 0 and {nodes - 1}'
            raise ValueError(f"line {number} of the graph {path} {must}, {line.strip()[:40]!r} was found")
        found += [int(word) for word in words]
    links = np.array(found, np.int64).reshape(-1, 2)
    if not connected(links, nodes, directed):
        kind = "strongly connected" if directed else "connected"
        raise ValueError(f"the graph {path} is not {kind}; add links until every node reaches every other")
    return links
