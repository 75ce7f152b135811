"""The weights with which the nodes mix in one round: the matrix W of the papers, kept sparse.

The spectra of many nodes are found without a dense matrix, by SciPy, which is imported only then: it takes 20 MB and a
quarter of a second, and few runs need it.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.core.rng import philox
from gossamer.graphs.generators import Links, connected, pairs

MANY = 500  # nodes: above, spectra are found by iteration
TOLERANCE = 1e-12  # of what counts as symmetric, as normal and as summing to 1


@dataclass(frozen=True, eq=False)
class MixingMatrix:
    """The weights of one round, row by row: w_ij is the weight of sender j at receiver i."""

    indptr: NDArray[np.int64]  # (n + 1,): receiver i's entries are indptr[i] .. indptr[i + 1]
    senders: NDArray[np.int64]  # (nnz,): ascending within a receiver, its own number among them
    weights: NDArray[np.float64]  # (nnz,)
    period: int = 1  # after so many exchanges the topology's graphs return; 0: never

    def __post_init__(self) -> None:
        for array in (self.indptr, self.senders, self.weights):
            array.setflags(write=False)  # a mixing is cached, so many hold the same one

    @classmethod
    def metropolis(cls, edges: Links, n: int) -> "MixingMatrix":
        """Of an undirected graph: w_ij = 1 / (1 + max(degree_i, degree_j)), and w_ii what is left of 1."""
        indptr, receivers, senders = _entries(np.concatenate([edges, edges[:, ::-1]]), n)
        sizes, own = np.diff(indptr), receivers == senders  # sizes are the degrees, and 1 for the node itself
        weights = np.where(own, 0, 1 / np.maximum(sizes[receivers], sizes[senders]))
        weights[own] = 1 - np.bincount(receivers, weights)
        return cls(indptr, senders, weights)

    @classmethod
    def weighted(cls, edges: Links, weights: NDArray[np.float64], n: int) -> "MixingMatrix":
        """Of an undirected graph whose links, each given once, have these weights; w_ii is what is left of 1."""
        both = np.concatenate([edges, edges[:, ::-1]])
        indptr, receivers, senders = _entries(both, n)
        own, values = receivers == senders, np.zeros(len(receivers))
        values[~own] = np.tile(weights, 2)[np.argsort(both[:, 1] * n + both[:, 0])]
        values[own] = 1 - np.bincount(receivers, values)
        return cls(indptr, senders, values)

    @classmethod
    def uniform_out(cls, edges: Links, n: int) -> "MixingMatrix":
        """Of a directed graph: sender j gives 1 / (1 + outdegree_j) to itself and to each of its receivers."""
        indptr, _, senders = _entries(edges, n)
        return cls(indptr, senders, (1 / np.bincount(senders))[senders])

    @classmethod
    def with_shares(cls, edges: Links, shares: NDArray[np.float64]) -> "MixingMatrix":
        """Of a directed graph: sender j keeps 1 - shares[j] and divides shares[j] equally among its receivers."""
        indptr, receivers, senders = _entries(edges, len(shares))
        each = shares / np.maximum(np.bincount(senders) - 1, 1)
        return cls(indptr, senders, np.where(receivers == senders, 1 - shares[senders], each[senders]))

    @property
    def nodes(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def num_receivers(self) -> NDArray[np.int64]:
        """(n,): how many other nodes each sender reaches, which is how many copies of its message travel."""
        return np.bincount(self.senders, minlength=self.nodes) - 1

    @cached_property
    def receivers(self) -> NDArray[np.int64]:
        """(nnz,): whose weight each is."""
        return np.repeat(np.arange(self.nodes), np.diff(self.indptr))

    def row(self, receiver: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The senders that reach a node, itself included, ascending, and their weights."""
        here = slice(self.indptr[receiver], self.indptr[receiver + 1])
        return self.senders[here], self.weights[here]

    def weight(self, receiver: int, sender: int) -> float | None:
        """w_ij; None if there is no such link."""
        senders, weights = self.row(receiver)
        at = int(np.searchsorted(senders, sender))
        return float(weights[at]) if at < len(senders) and senders[at] == sender else None

    def dense(self) -> NDArray[np.float64]:
        """(n, n)."""
        dense = np.zeros((self.nodes, self.nodes))
        dense[self.receivers, self.senders] = self.weights
        return dense

    @cached_property
    def symmetric(self) -> bool:
        keys, turned = (a * self.nodes + b for a, b in ((self.receivers, self.senders), (self.senders, self.receivers)))
        places = np.minimum(np.searchsorted(keys, turned), len(keys) - 1)
        others = np.where(keys[places] == turned, self.weights[places], 0)
        return bool(np.abs(self.weights - others).max() <= TOLERANCE)

    @cached_property
    def row_stochastic(self) -> bool:
        """Do the weights at every receiver sum to 1?"""
        return self._are_one(self.receivers)

    @cached_property
    def column_stochastic(self) -> bool:
        """Do the weights of every sender sum to 1?"""
        return self._are_one(self.senders)

    def _are_one(self, whose: NDArray[np.int64]) -> bool:
        sums = np.bincount(whose, self.weights, minlength=self.nodes)
        return bool(np.abs(sums - 1).max() <= TOLERANCE)

    def strongly_connected(self) -> bool:
        """Does what any node sends reach every other, sooner or later?"""
        return connected(pairs(self.senders, self.receivers), self.nodes, directed=True)

    def norm_of_identity_minus_w(self) -> float:
        """The spectral norm of I - W: how far an exchange can move the nodes' models, against their distances."""
        if self.nodes > MANY:
            from scipy.sparse import eye_array
            from scipy.sparse.linalg import svds

            away = eye_array(self.nodes, format="csr") - self._sparse()
            return float(svds(away, k=1, v0=self._start(), return_singular_vectors=False)[0])
        return float(np.linalg.norm(np.eye(self.nodes) - self.dense(), 2))

    def smallest_eigenvalue(self) -> float:
        """Of symmetric weights."""
        assert self.symmetric
        if self.nodes > MANY:
            from scipy.sparse.linalg import eigsh

            return float(eigsh(self._sparse(), k=1, which="SA", v0=self._start(), return_eigenvectors=False)[0])
        return float(np.linalg.eigvalsh(self.dense())[0])

    def spectral_gap(self) -> float:
        """1 - the second largest magnitude of an eigenvalue: how fast gossip forgets where it started."""
        assert self.row_stochastic or self.column_stochastic
        if self.nodes > MANY:
            from scipy.sparse.linalg import ArpackError

            with suppress(ArpackError):  # it did not converge; the dense solver is slow but certain
                return 1 - self._second_magnitude()
        # Subtracting 1/n everywhere sends the eigenvalue 1 of a stochastic matrix to 0 and leaves the others.
        deflated = self.dense() - 1 / self.nodes
        values = np.linalg.eigvalsh(deflated) if self.symmetric else np.linalg.eigvals(deflated)
        return float(1 - np.abs(values).max())

    def _second_magnitude(self) -> float:
        """The second largest magnitude of an eigenvalue of stochastic weights, by iteration."""
        from scipy.sparse.linalg import LinearOperator, eigs, eigsh

        n, matrix = self.nodes, self._sparse()
        options = {"k": 1, "ncv": 100, "v0": self._start(), "return_eigenvectors": False}
        once = LinearOperator((n, n), lambda x: matrix @ x - x.mean(), dtype=np.float64)  # deflated as above
        if self.symmetric:
            return float(np.abs(eigsh(once, **options)[0]))
        if abs(matrix @ matrix.T - matrix.T @ matrix).max() <= TOLERANCE:
            # Normal, as a directed ring's, whose eigenvalues are too alike in magnitude to be told apart by iteration;
            # those of W'W are the magnitudes squared.
            squared = LinearOperator((n, n), lambda x: matrix.T @ (matrix @ x) - x.mean(), dtype=np.float64)
            return float(np.sqrt(eigsh(squared, **options)[0]))
        return float(np.abs(eigs(once, maxiter=200, **options)[0]))

    def _start(self) -> NDArray[np.floating[Any]]:
        """Where iterations start: at the same vector in every process, so that all find the same to the last bit."""
        return philox(0, "spectral gap").random_raw(self.nodes) * 2.0**-64 - 0.5

    def _sparse(self) -> Any:
        """A matrix of SciPy."""
        from scipy.sparse import csr_array

        return csr_array((self.weights, self.senders, self.indptr), shape=(self.nodes, self.nodes))


def _entries(edges: Links, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row bounds, receivers and senders of the links and of every node to itself, each once and in order."""
    keys = np.sort(np.append(edges[:, 1] * n + edges[:, 0], np.arange(n) * (n + 1)))
    receivers, senders = np.divmod(keys[np.append(True, np.diff(keys) > 0)], n)
    return np.append(0, np.cumsum(np.bincount(receivers))), receivers, senders
