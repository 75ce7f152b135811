"""The spectrum of the weights of many nodes, without a dense matrix."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import ArpackError, LinearOperator, eigs, eigsh, svds

from gossamer.core.rng import philox

TOLERANCE = 1e-12  # of what counts as normal


class Spectrum:
    """What `MixingMatrix` is asked about its weights."""

    def __init__(self, weights: NDArray[np.float64], senders: NDArray[np.int64], indptr: NDArray[np.int64]):
        self._nodes = len(indptr) - 1
        self._matrix = csr_array((weights, senders, indptr), shape=(self._nodes, self._nodes))

    def norm_of_identity_minus_w(self) -> float:
        away = eye_array(self._nodes, format="csr") - self._matrix
        return float(svds(away, k=1, return_singular_vectors=False)[0])

    def smallest_eigenvalue(self) -> float:
        return float(eigsh(self._matrix, k=1, which="SA", return_eigenvectors=False)[0])

    def second_magnitude(self, symmetric: bool) -> float | None:
        """The second largest magnitude of an eigenvalue of stochastic weights; None if it is not found."""
        try:
            return self._second_magnitude(symmetric)
        except ArpackError:  # it did not converge; the dense solver is slow but certain
            return None

    def _second_magnitude(self, symmetric: bool) -> float:
        # Subtracting 1/n everywhere sends the eigenvalue 1 of a stochastic matrix to 0 and leaves the others.
        n, matrix = self._nodes, self._matrix
        options = {
            "k": 1,
            "ncv": 100,
            "v0": philox(0, "spectral gap").random_raw(n) * 2.0**-64 - 0.5,
            "return_eigenvectors": False,
        }
        once = LinearOperator((n, n), lambda x: matrix @ x - x.mean(), dtype=np.float64)
        if symmetric:
            return float(np.abs(eigsh(once, **options)[0]))
        if abs(matrix @ matrix.T - matrix.T @ matrix).max() <= TOLERANCE:
            # Normal, as a directed ring's, whose eigenvalues are too alike in magnitude to be told apart by iteration;
            # those of W'W are the magnitudes squared.
            squared = LinearOperator((n, n), lambda x: matrix.T @ (matrix @ x) - x.mean(), dtype=np.float64)
            return float(np.sqrt(eigsh(squared, **options)[0]))
        return float(np.abs(eigs(once, maxiter=200, **options)[0]))
