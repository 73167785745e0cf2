"""The bound on the error of kernel values, against the errors that there are."""

import numpy as np
import pytest
from scipy import sparse

from daskkern.arrays import HostArray
from daskkern.kernels import (
    ArcCosine,
    Cauchy,
    Gaussian,
    Kernel,
    Laplacian,
    LinearKernel,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from daskkern.kernels.formula import evaluate
from daskkern.kernels.rounding import ROUGH_TOLERANCE, TOLERANCE

KERNELS = [Laplacian(10.0), Gaussian(10.0), Matern(10.0, 1.5), Matern(10.0, 2.5), Cauchy(10.0), RationalQuadratic(10.0)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.name}{getattr(kernel, 'nu', '')}")


def _rows(m: int, d: int = 8, spread: float = 1.0, seed: int = 0) -> HostArray:
    X = np.random.default_rng(seed).standard_normal((m, d))
    X[:, d // 2] *= spread
    return X.astype(np.float32)


@each_kernel
@pytest.mark.parametrize("spread", [1.0, 1e2, 1e3, 1e4])
def test_errors_in_float32_are_within_the_bound(kernel: Kernel, spread: float) -> None:
    X, Z = _rows(600, spread=spread, seed=1), _rows(300, spread=spread)
    squared = ((X**2).sum(axis=1, dtype="f4")[:, None] + (Z**2).sum(axis=1, dtype="f4")) - 2 * X @ Z.T
    found = _of_squares(kernel, squared)
    gaps = X.astype(np.float64)[:, None] - Z
    worst = float(np.abs(found - _of_squares(kernel, (gaps**2).sum(axis=2))).max())
    assert worst <= 2 * kernel.rounding(Z).error  # the bound is that of 99 % of the rows


def test_the_bound_says_where_float32_does_not_serve() -> None:
    assert [Laplacian(10.0).rounding(_rows(500, spread=sd)).is_within_tolerance for sd in (1.0, 10.0, 1e3)] == [
        True,
        True,
        False,
    ]
    assert [Gaussian(10.0).rounding(_rows(500, spread=sd)).is_within_tolerance for sd in (1.0, 1e2, 1e3)] == [
        True,
        True,
        False,
    ]
    assert Laplacian(1e4).rounding(_rows(500, spread=1e4)).is_within_tolerance
    assert Laplacian(10.0).rounding(_rows(500, spread=1e4), np.float64).is_within_tolerance
    assert Laplacian(10.0).rounding(_rows(500, spread=1e4)).error > 0.9


@pytest.mark.parametrize("d", [2, 10, 100, 1000])
@pytest.mark.parametrize("kernel", [Gaussian("median"), Laplacian("median"), Matern("median", 1.5)], ids=repr)
def test_standardised_columns_pass(kernel: Kernel, d: int) -> None:
    X = _rows(1000, d)
    assert kernel.resolve(X).rounding(X).is_within_tolerance


def test_rows_far_from_the_origin_count_from_their_mean() -> None:
    assert Gaussian(10.0).rounding(_rows(500) + 1e6).spread < 20


def test_one_row_far_out_counts_with_a_tenth_of_its_norm() -> None:
    Z = _rows(1000)
    Z[7] = 1e3
    assert Gaussian().rounding(Z).spread == pytest.approx(100 * 8**0.5, rel=1e-3)


def test_only_distances_are_judged_and_sums_as_a_whole() -> None:
    Z = _rows(100, spread=1e5)
    assert (
        LinearKernel().rounding(Z).error
        == Polynomial(2, gamma=1.0).rounding(Z).error
        == ArcCosine(1).rounding(Z).error
        == 0
    )
    both = Gaussian(1e6) + Gaussian(1.0)
    assert both.rounding(Z).error == pytest.approx(0.5, rel=0.01)
    assert (7 * Gaussian(1.0)).rounding(Z) == Gaussian(1.0).rounding(Z)


def test_kernels_with_an_infinite_slope_have_a_tolerance_of_their_own() -> None:
    assert Laplacian().rounding(_rows(9)).tolerance == ROUGH_TOLERANCE
    assert {kernel.rounding(_rows(9)).tolerance for kernel in KERNELS[1:]} == {TOLERANCE}


def test_length_scales_per_feature_and_sparse_rows_are_seen_as_the_formula_sees_them() -> None:
    Z = _rows(100, 4, spread=1e4)
    assert Laplacian([1.0, 1.0, 1e4, 1.0]).rounding(Z).is_within_tolerance
    assert not Laplacian([1.0, 1.0, 1.0, 1.0]).rounding(Z).is_within_tolerance
    assert Gaussian(2.0).rounding(sparse.csr_matrix(Z)).error == pytest.approx(Gaussian(2.0).rounding(Z).error)


def _of_squares(kernel: Kernel, squared: HostArray) -> HostArray:
    s = np.maximum(squared.astype(np.float64), 0)
    return np.asarray(evaluate(kernel.program, {"squared_distance": s, "distance": np.sqrt(s)}, np))
