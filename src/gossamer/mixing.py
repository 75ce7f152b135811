"""The weights with which the nodes mix in one round: the matrix W of the papers, kept sparse."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, LinearOperator, eigs, eigsh, svds

from gossamer.graphs import Links
from gossamer.rng import philox

TOLERANCE = 1e-12  # of what counts as symmetric and as summing to 1


@dataclass(frozen=True, eq=False)
class Mixing:
    """The weights of one round, row by row: w_ij is the weight of sender j at receiver i."""

    indptr: NDArray[np.int64]  # (n + 1,): receiver i's entries are indptr[i] .. indptr[i + 1]
    senders: NDArray[np.int64]  # (nnz,): ascending within a receiver, its own number among them
    weights: NDArray[np.float64]  # (nnz,)

    def __post_init__(self) -> None:
        for array in (self.indptr, self.senders, self.weights):
            array.setflags(write=False)  # a mixing is cached, so many hold the same one

    @classmethod
    def metropolis(cls, edges: Links, n: int) -> "Mixing":
        """Of an undirected graph: w_ij = 1 / (1 + max(degree_i, degree_j)), and w_ii what is left of 1."""
        indptr, receivers, senders = _entries(np.concatenate([edges, edges[:, ::-1]]), n)
        sizes, own = np.diff(indptr), receivers == senders  # sizes are the degrees, and 1 for the node itself
        weights = np.where(own, 0, 1 / np.maximum(sizes[receivers], sizes[senders]))
        weights[own] = 1 - np.bincount(receivers, weights)
        return cls(indptr, senders, weights)

    @classmethod
    def uniform_out(cls, edges: Links, n: int) -> "Mixing":
        """Of a directed graph: sender j gives 1 / (1 + outdegree_j) to itself and to each of its receivers."""
        indptr, _, senders = _entries(edges, n)
        return cls(indptr, senders, (1 / np.bincount(senders))[senders])

    @classmethod
    def with_shares(cls, edges: Links, shares: NDArray[np.float64]) -> "Mixing":
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
    def _matrix(self) -> csr_array:
        return csr_array((self.weights, self.senders, self.indptr), shape=(self.nodes, self.nodes))

    def dense(self) -> NDArray[np.float64]:
        """(n, n)."""
        dense: NDArray[np.float64] = self._matrix.toarray()
        return dense

    @cached_property
    def symmetric(self) -> bool:
        return bool(abs(self._matrix - self._matrix.T).max() <= TOLERANCE)

    @cached_property
    def row_stochastic(self) -> bool:
        """Do the weights at every receiver sum to 1?"""
        return bool(np.abs(self._matrix.sum(axis=1) - 1).max() <= TOLERANCE)

    @cached_property
    def column_stochastic(self) -> bool:
        """Do the weights of every sender sum to 1?"""
        return bool(np.abs(self._matrix.sum(axis=0) - 1).max() <= TOLERANCE)

    def strongly_connected(self) -> bool:
        """Does what any node sends reach every other, sooner or later?"""
        return bool(connected_components(self._matrix, connection="strong", return_labels=False) == 1)

    def largest_move(self) -> float:
        """The spectral norm of I - W: how far an exchange can move the nodes' models, against their distances."""
        away = eye_array(self.nodes, format="csr") - self._matrix
        return float(svds(away, k=1, return_singular_vectors=False)[0] if self.nodes > 500 else norm(away.toarray(), 2))

    def smallest_eigenvalue(self) -> float:
        """Of symmetric weights."""
        assert self.symmetric
        if self.nodes > 500:
            return float(eigsh(self._matrix, k=1, which="SA", return_eigenvectors=False)[0])
        return float(np.linalg.eigvalsh(self.dense())[0])

    def spectral_gap(self) -> float:
        """1 - the second largest magnitude of an eigenvalue: how fast gossip forgets where it started."""
        assert self.row_stochastic or self.column_stochastic
        n = self.nodes
        # Subtracting 1/n everywhere sends the eigenvalue 1 of a stochastic matrix to 0 and leaves the others.
        if n > 500:
            try:
                return 1 - self._second_magnitude()
            except ArpackError:
                pass  # it did not converge; the dense solver is slow but certain
        deflated = self.dense() - 1 / n
        values = np.linalg.eigvalsh(deflated) if self.symmetric else np.linalg.eigvals(deflated)
        return float(1 - np.abs(values).max())

    def _second_magnitude(self) -> float:
        """The same without a dense matrix."""
        n, matrix = self.nodes, self._matrix
        options = {
            "k": 1,
            "ncv": 100,
            "v0": philox(0, "spectral gap").random_raw(n) * 2.0**-64 - 0.5,
            "return_eigenvectors": False,
        }
        once = LinearOperator((n, n), lambda x: matrix @ x - x.mean(), dtype=np.float64)
        if self.symmetric:
            return float(np.abs(eigsh(once, **options)[0]))
        if abs(matrix @ matrix.T - matrix.T @ matrix).max() <= TOLERANCE:
            # Normal, as a directed ring's, whose eigenvalues are too alike in magnitude to be told apart by iteration;
            # those of W'W are the magnitudes squared.
            squared = LinearOperator((n, n), lambda x: matrix.T @ (matrix @ x) - x.mean(), dtype=np.float64)
            return float(np.sqrt(eigsh(squared, **options)[0]))
        return float(np.abs(eigs(once, maxiter=200, **options)[0]))


def _entries(edges: Links, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row bounds, receivers and senders of the links and of every node to itself, each once and in order."""
    keys = np.sort(np.append(edges[:, 1] * n + edges[:, 0], np.arange(n) * (n + 1)))
    receivers, senders = np.divmod(keys[np.append(True, np.diff(keys) > 0)], n)
    return np.append(0, np.cumsum(np.bincount(receivers))), receivers, senders
