"""Linear, orthonormal maps of a model's flat vector: where a change of the model is concentrated in few numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pywt
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.core.kernels import njit
from gossamer.core.settings import check_types

Floats = NDArray[np.float32]


@njit(cache=True)
def _analyse(x: Floats, lo: Floats, hi: Floats, average: Floats, detail: Floats) -> None:
    n, taps = x.size, lo.size
    half = taps // 2
    for k in range(n // 2):
        average[k], detail[k] = 0, 0
        for m in range(taps):
            value = x[(2 * k + half - m) % n]
            average[k] += lo[m] * value
            detail[k] += hi[m] * value


@njit(cache=True)
def _analyse_4_taps(x: Floats, lo: Floats, hi: Floats, average: Floats, detail: Floats) -> None:
    l0, l1, l2, l3 = lo[0], lo[1], lo[2], lo[3]
    h0, h1, h2, h3 = hi[0], hi[1], hi[2], hi[3]
    n = average.size
    for k in range(n - 2):  # outputs 1 .. n - 2
        a, b, c, d = x[2 * k + 1], x[2 * k + 2], x[2 * k + 3], x[2 * k + 4]
        average[k + 1] = l3 * a + l2 * b + l1 * c + l0 * d
        detail[k + 1] = h3 * a + h2 * b + h1 * c + h0 * d
    for k in (0, n - 1):
        a, b, c, d = x[2 * k - 1], x[2 * k], x[2 * k + 1], x[(2 * k + 2) % (2 * n)]  # x[-1] is the row's end
        average[k] = l3 * a + l2 * b + l1 * c + l0 * d
        detail[k] = h3 * a + h2 * b + h1 * c + h0 * d


@njit(cache=True)
def _synthesise(average: Floats, detail: Floats, lo: Floats, hi: Floats, x: Floats) -> None:
    n, taps = x.size, lo.size
    half = taps // 2
    x[:] = 0
    for k in range(n // 2):
        for m in range(taps):
            x[(2 * k + half - m) % n] += lo[m] * average[k] + hi[m] * detail[k]


@njit(cache=True)
def _synthesise_4_taps(average: Floats, detail: Floats, lo: Floats, hi: Floats, x: Floats) -> None:
    l0, l1, l2, l3 = lo[0], lo[1], lo[2], lo[3]
    h0, h1, h2, h3 = hi[0], hi[1], hi[2], hi[3]
    n = average.size
    for k in range(n - 2):  # outputs 1 .. n - 2
        x[2 * k + 2] = l2 * average[k + 1] + h2 * detail[k + 1] + l0 * average[k] + h0 * detail[k]
        x[2 * k + 3] = l1 * average[k + 1] + h1 * detail[k + 1] + l3 * average[k + 2] + h3 * detail[k + 2]
    for k in (0, n - 1):
        before, after = k - 1, (k + 1) % n
        x[2 * k] = l2 * average[k] + h2 * detail[k] + l0 * average[before] + h0 * detail[before]
        x[2 * k + 1] = l1 * average[k] + h1 * detail[k] + l3 * average[after] + h3 * detail[after]


@njit(cache=True)
def forward_rows(rows: Floats, levels: int, lo: Floats, hi: Floats) -> Floats:
    """Coefficients of each row: [averages, details of the last level, ..., details of the first, untouched tail]."""
    num_rows, width = rows.shape
    length = width >> levels << levels
    out = rows.copy()
    scratch = np.empty(length, np.float32)
    for r in range(num_rows if length else 0):
        n = length
        for _ in range(levels):
            scratch[:n] = out[r, :n]
            if lo.size == 4:
                _analyse_4_taps(scratch[:n], lo, hi, out[r, : n // 2], out[r, n // 2 : n])
            else:
                _analyse(scratch[:n], lo, hi, out[r, : n // 2], out[r, n // 2 : n])
            n //= 2
    return out


@njit(cache=True)
def inverse_rows(rows: Floats, levels: int, lo: Floats, hi: Floats) -> Floats:
    """The rows whose coefficients these are."""
    num_rows, width = rows.shape
    length = width >> levels << levels
    out = rows.copy()
    scratch = np.empty(length, np.float32)
    for r in range(num_rows if length else 0):
        n = length >> levels
        for _ in range(levels):
            n *= 2
            scratch[:n] = out[r, :n]
            if lo.size == 4:
                _synthesise_4_taps(scratch[: n // 2], scratch[n // 2 : n], lo, hi, out[r, :n])
            else:
                _synthesise(scratch[: n // 2], scratch[n // 2 : n], lo, hi, out[r, :n])
    return out


class Transform:
    """A linear, orthonormal map of each row, (B, D) -> (B, D), and its inverse."""

    def check(self, num_parameters: int) -> None:
        """ValueError if the transform would leave a model of this size as it is."""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def inverse(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define inverse")


@dataclass(frozen=True)
class Identity(Transform):
    """The parameters themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    def inverse(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Wavelet(Transform):
    """Discrete wavelet transform of the flat vector, periodized, so that D numbers give D coefficients.

    The first floor(D / 2^levels) * 2^levels entries are transformed; the few that remain pass through.
    """

    family: str = "sym2"  # an orthogonal family of PyWavelets
    levels: int = 4

    def __post_init__(self) -> None:
        check_types(self)
        if self.family not in orthogonal_families():
            known = "haar, db2 .. db38, sym2 .. sym20 or coif1 .. coif17"
            raise ValueError(f"family must be an orthogonal wavelet ({known}), {self.family!r} was given")
        if not 1 <= self.levels <= 16:
            raise ValueError(f"levels must be from 1 to 16, {self.levels} was given")

    def check(self, num_parameters: int) -> None:
        if 2**self.levels > num_parameters:
            most = num_parameters.bit_length() - 1
            raise ValueError(f"levels must be at most {most} for {num_parameters} parameters, {self.levels} was given")

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(forward_rows(x.contiguous().numpy(), self.levels, *_filters(self.family)))

    def inverse(self, x: Tensor) -> Tensor:
        return torch.from_numpy(inverse_rows(x.contiguous().numpy(), self.levels, *_filters(self.family)))


@dataclass(frozen=True)
class Fourier(Transform):
    """Discrete cosine transform (type II) of the flat vector: frequencies, in real numbers and as many as parameters.

    A row at a time, since SciPy may take several rows of a block together and does not promise the same bits then.
    """

    def forward(self, x: Tensor) -> Tensor:
        from scipy.fft import dct  # here, since it takes a quarter of a second to load, and few runs need it

        return _each_row(dct, x)

    def inverse(self, x: Tensor) -> Tensor:
        from scipy.fft import idct

        return _each_row(idct, x)


TRANSFORMS: dict[str, type[Transform]] = {"identity": Identity, "wavelet": Wavelet, "fourier": Fourier}


def _each_row(transform: Callable[..., NDArray[np.float32]], x: Tensor) -> Tensor:
    out = np.empty(x.shape, np.float32)
    for row, target in zip(x.numpy(), out, strict=True):
        target[:] = transform(row, norm="ortho")
    return torch.from_numpy(out)


@cache
def orthogonal_families() -> frozenset[str]:
    names = pywt.wavelist(kind="discrete")
    return frozenset(n for n in names if pywt.Wavelet(n).orthogonal and n != "dmey")  # dmey is cut off at 62 taps


@cache
def _filters(family: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    filters = pywt.Wavelet(family)
    return np.array(filters.dec_lo, np.float32), np.array(filters.dec_hi, np.float32)
