"""Transforms: each against a plain version of itself, and all against what a transform must be."""

import numpy as np
import pytest
import pywt
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.transforms import TRANSFORMS, Fourier, Transform, Wavelet, orthogonal_families

numbers = st.floats(-1e3, 1e3, width=32)
rows = hnp.arrays(np.float32, st.tuples(st.integers(0, 3), st.integers(1, 300)), elements=numbers)
families = st.sampled_from(["sym2", "haar", "db2", "db3", "sym4", "sym8", "coif1", "db10"])


@settings(deadline=None)
@given(rows, families, st.integers(1, 6))
def test_a_wavelet_transform_has_an_inverse_and_keeps_lengths(x: np.ndarray, family: str, levels: int) -> None:
    transform, tensor = Wavelet(family, levels), torch.from_numpy(x)
    there = transform.forward(tensor)
    size = float(np.abs(x).max(initial=1))
    torch.testing.assert_close(transform.inverse(there), tensor, atol=3e-5 * size, rtol=0)
    torch.testing.assert_close(there.norm(dim=1), tensor.norm(dim=1), rtol=1e-5, atol=1e-5 * size)


@settings(deadline=None)
@given(rows, families, st.integers(1, 5))
@pytest.mark.filterwarnings("ignore:Level value")
def test_a_wavelet_transform_is_that_of_pywavelets(x: np.ndarray, family: str, levels: int) -> None:
    length = x.shape[1] >> levels << levels
    assume(len(x) and length)
    expected = np.concatenate(pywt.wavedec(x[0, :length].astype(float), family, "periodization", levels))
    found = Wavelet(family, levels).forward(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found[0, :length], expected, atol=1e-5 * np.abs(x).max(initial=1))
    np.testing.assert_array_equal(found[:, length:], x[:, length:])


def test_every_family_that_is_offered_is_orthonormal() -> None:
    x = torch.randn(1, 512, generator=torch.Generator().manual_seed(0))
    for family in orthogonal_families():
        transform = Wavelet(family, 2)
        torch.testing.assert_close(transform.inverse(transform.forward(x)), x, atol=1e-4, rtol=0)


def test_a_transform_leaves_its_input_alone() -> None:
    x = torch.randn(2, 64)
    before = x.clone()
    for transform in (kind() for kind in TRANSFORMS.values()):
        transform.inverse(transform.forward(x))
        assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("family", "levels", "message"),
    [("bior2.2", 4, "bior2.2"), ("dmey", 4, "dmey"), ("sym2", 0, "levels"), ("sym2", 99, "levels")],
)
def test_a_wavelet_that_would_not_do_is_refused(family: str, levels: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Wavelet(family, levels)


def cosines(width: int) -> np.ndarray:
    """The orthonormal matrix of the cosine transform, one frequency per row."""
    frequency, position = np.arange(width)[:, None], np.arange(width)[None]
    matrix = np.cos(np.pi * frequency * (2 * position + 1) / (2 * width)) * np.sqrt(2 / width)
    matrix[0] /= np.sqrt(2)
    return matrix


@settings(deadline=None)
@given(rows)
def test_the_fourier_transform_is_a_matrix_of_cosines_and_its_inverse_the_transpose(x: np.ndarray) -> None:
    matrix, tensor, size = cosines(x.shape[1]), torch.from_numpy(x), np.abs(x).max(initial=1)
    np.testing.assert_allclose(Fourier().forward(tensor).numpy(), x @ matrix.T, atol=1e-5 * size * x.shape[1] ** 0.5)
    np.testing.assert_allclose(Fourier().inverse(tensor).numpy(), x @ matrix, atol=1e-5 * size * x.shape[1] ** 0.5)
    torch.testing.assert_close(
        Fourier().inverse(Fourier().forward(tensor)), tensor, atol=float(1e-5 * size * x.shape[1] ** 0.5), rtol=0
    )


def test_a_constant_is_one_frequency() -> None:
    found = Fourier().forward(torch.full((1, 100), 3.0))
    assert found[0, 0].item() == pytest.approx(30)
    assert found[0, 1:].abs().max() < 1e-5


@pytest.mark.parametrize("width", [1, 53, 1037, 4096])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_bits_of_a_row_do_not_depend_on_the_rows_beside_it(name: str, width: int) -> None:
    transform: Transform = TRANSFORMS[name]()
    x = torch.randn(13, width, generator=torch.Generator().manual_seed(width))
    for go in (transform.forward, transform.inverse):
        whole = go(x)
        assert whole.dtype == torch.float32
        for size in (1, 4, 5):
            assert torch.equal(whole, torch.cat([go(x[i : i + size]) for i in range(0, 13, size)]))
