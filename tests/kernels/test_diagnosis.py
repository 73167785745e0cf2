"""What is said of rows whose kernel matrix has no factor."""

import numpy as np
import pytest
from scipy import sparse

from daskkern import KernelClassifier
from daskkern.basis import AllRows, Landmarks
from daskkern.errors import DataError
from daskkern.kernels import (
    CallableKernel,
    Gaussian,
    Kernel,
    Laplacian,
    LinearKernel,
    Polynomial,
    diagnose,
    digits_note,
    length_scale_note,
)
from daskkern.kernels.formula import Expression
from daskkern.solvers import BlockCD, Direct, EigenPro, Falkon
from daskkern.systems.grid import Grid, Sums

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 6)).astype(np.float32)


def test_repeated_rows_are_counted() -> None:
    Z = np.concatenate([X, X[:40], -0.0 * X[:1], 0.0 * X[:2]])
    for rows in (Z, sparse.csr_matrix(Z)):
        why = diagnose(Gaussian(3.0), rows, np.float32)
        assert why.found == "42 of the 343 landmarks repeat others"
        assert why.remedy == "take distinct landmarks"


def test_a_feature_that_decides_all_distances_is_named() -> None:
    Z = X.copy()
    Z[:, 4] *= 2000
    why = diagnose(Gaussian(1e4), Z, np.float64)
    assert why.found.startswith("feature 4 has a standard deviation of 1.9")
    assert "times the median of the others, and decides all distances" in why.found
    assert "scale the features" in why.remedy


def test_a_length_scale_that_is_too_long_is_told_with_the_median_distance() -> None:
    why = diagnose(Gaussian(1e3), X, np.float32)
    assert why.found.startswith("the median kernel value of two landmarks is 1 - ")
    assert "(length scale 1e+03, median distance 3.28)" in why.found
    assert why.remedy == "take a shorter length scale"


def test_values_that_the_dtype_cannot_hold_are_told_with_their_error() -> None:
    why = diagnose(Laplacian(10.0), 1e5 * X, np.float32, "rows")
    assert why.found.startswith("values in float32 are wrong by up to 1: rows spread over 4.01e+05")
    assert "(length scale 10, median distance 3.28e+05)" in why.found
    assert why.remedy == "take a longer length scale or dtype float64"


@pytest.mark.parametrize("kernel", [Gaussian(2.0), 3.0 * Gaussian([1.0, 2, 3, 4, 5, 6]), LinearKernel()], ids=repr)
def test_rows_without_a_flaw_give_the_median_value_and_the_other_remedy(kernel: Kernel) -> None:
    why = diagnose(kernel, X, np.float32, otherwise="pray")
    assert why.found.startswith("the median kernel value of two landmarks is ")
    assert why.remedy == "pray"


def test_a_python_function_is_diagnosed_too() -> None:
    kernel = CallableKernel(lambda X, Z: np.ones((X.shape[0], Z.shape[0]), X.dtype))
    assert "is 1 - 0" in diagnose(kernel, X, np.float32).found


def test_infinite_features_are_the_first_cause() -> None:
    Z = X.copy()
    Z[3, 1] = np.inf
    assert diagnose(Gaussian(), Z, np.float32).found == "some landmarks have features that are not finite"


def test_a_length_scale_far_from_the_distances_is_told() -> None:
    near, far = length_scale_note(Gaussian(0.1), X), length_scale_note(3 * Laplacian(1e4), X)
    assert near.startswith("the median kernel value of two rows is ")
    assert "(length scale 0.1, median distance 3.28): most kernel values are near 0; take a longer length scale" in near
    assert far.endswith("most kernel values are near 1; take a shorter length scale, such as 'median'")
    assert "are near 0" in length_scale_note(Gaussian([1.0, 1, 1e-3, 1, 1, 1]), X)
    for kernel in (Gaussian(3.0), Laplacian(1.0), LinearKernel(), CallableKernel(_indefinite)):
        assert not length_scale_note(kernel, X)
    assert not length_scale_note(Gaussian(0.1), X[:10])
    assert not length_scale_note(Gaussian(3.0), sparse.csr_matrix(X + np.float32(1e3)))


@pytest.mark.parametrize("solver", [EigenPro(projection="exact"), Falkon()], ids=lambda solver: solver.name)
def test_a_fit_whose_landmarks_have_no_factor_says_why(solver: EigenPro | Falkon) -> None:
    points = np.linspace(0, 1e-4, 250)[:, None] * np.ones(3)
    kernel = CallableKernel(_indefinite)
    model = KernelClassifier(kernel, "squared", Landmarks(points=points), solver, max_epochs=1)
    with pytest.raises(
        DataError, match=r"landmarks are too dependent under the callable kernel.*: .*median kernel value"
    ):
        model.fit(X[:, :3], X[:, 0] > 0)


@pytest.mark.parametrize(
    ("basis", "solver", "alpha", "rows"),
    [
        (Landmarks(50), Direct(), 100.0, "landmarks"),
        (AllRows(), Direct(), 1e-9, "rows"),
        (AllRows(), BlockCD(), 1e-9, "rows"),
    ],
    ids=["landmarks", "all rows", "block"],
)
def test_normal_equations_without_a_factor_say_why(
    basis: object, solver: Direct | BlockCD, alpha: float, rows: str
) -> None:
    model = KernelClassifier(CallableKernel(_indefinite), "squared", basis, solver, alpha=alpha, max_epochs=1)
    with pytest.raises(DataError, match=f"median kernel value of two {rows} is .*take a larger alpha"):
        model.fit(X[:, :3], X[:, 0] > 0)


class Cap(Gaussian):
    """Not positive semi-definite: its matrix has as many negative eigenvalues as rows have features."""

    def profile(self, r: Expression, r2: Expression) -> Expression:
        return r2 * -1 + 1


def test_a_grid_says_why_its_landmarks_have_no_factor() -> None:
    nothing = Sums(np.eye(300), np.ones((300, 1)))
    with pytest.raises(
        DataError, match=r"under the gaussian kernel for a factor: the median kernel value .*take shorter length scales"
    ):
        Grid((Cap(30.0),), X).solutions(0, nothing, 300, [1e-6])


def _indefinite(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    distance = np.abs(X[:, None, 0] - Z[None, :, 0])
    return (1 - distance**4 - 0.5 * (distance > 0)).astype(X.dtype) * -1 + 2 * (distance == 0).astype(X.dtype)


def test_inner_products_without_digits_are_told() -> None:
    kernel, rows = Polynomial(2, gamma=0.1), np.random.default_rng(0).standard_normal((50, 4))
    assert digits_note(kernel, rows, "float32") == ""
    far = digits_note(kernel, rows + 1e6, "float32")
    assert far.startswith("the median kernel value of two centres is 1 - ")
    assert far.endswith("; centre the features (--scale standard)")
    assert digits_note(kernel, rows + 100, "float32") != ""
    assert digits_note(kernel, rows + 100, "float64") == ""
    assert digits_note(Laplacian(3.0), rows + 1e6, "float32") == ""


def test_a_feature_that_has_all_digits_of_inner_products_is_told() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 4)) * np.array([1, 1e6, 1, 1])
    assert digits_note(Polynomial(2, gamma=1e-12), rows, "float32").startswith("feature 1 has a standard deviation of")
    assert digits_note(Polynomial(2, gamma=1e-12), rows, "float64") == ""
