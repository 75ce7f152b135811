"""Linear, orthonormal maps of a model's flat vector: where a change of the model is concentrated in few numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pywt
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.kernels import wavelet


class LinearTransform:
    """A `core.Transform`: a linear, orthonormal map of each row, (B, D) -> (B, D), and its inverse."""

    def check(self, num_parameters: int) -> None:
        """ValueError if the transform would leave a model of this size as it is."""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def inverse(self, x: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Identity(LinearTransform):
    """The parameters themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    def inverse(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Wavelet(LinearTransform):
    """Discrete wavelet transform of the flat vector, periodized, so that D numbers give D coefficients.

    The first floor(D / 2^levels) * 2^levels entries are transformed; the few that remain pass through.
    """

    family: str = "sym2"  # an orthogonal family of PyWavelets
    levels: int = 4

    def __post_init__(self) -> None:
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
        return torch.from_numpy(wavelet.forward(x.contiguous().numpy(), self.levels, *_filters(self.family)))

    def inverse(self, x: Tensor) -> Tensor:
        return torch.from_numpy(wavelet.inverse(x.contiguous().numpy(), self.levels, *_filters(self.family)))


@dataclass(frozen=True)
class Fourier(LinearTransform):
    """Discrete cosine transform (type II) of the flat vector: frequencies, in real numbers and as many as parameters.

    A row at a time, since SciPy may take several rows of a block together and does not promise the same bits then.
    """

    def forward(self, x: Tensor) -> Tensor:
        from scipy.fft import dct  # here, since it takes a quarter of a second to load, and few runs need it

        return _each_row(dct, x)

    def inverse(self, x: Tensor) -> Tensor:
        from scipy.fft import idct

        return _each_row(idct, x)


TRANSFORMS: dict[str, type[LinearTransform]] = {"identity": Identity, "wavelet": Wavelet, "fourier": Fourier}


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
