"""Kernel principal components are those of scikit-learn, and of a matrix where it has none."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_circles
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from daskkern import KernelPCA, Landmarks, NystromFeatures, RandomFeatures
from daskkern.errors import DataError
from daskkern.kernels import Gaussian, Laplacian

DIGITS = load_digits(return_X_y=True)[0][:600] / 16


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("gaussian:2", {"kernel": "rbf", "gamma": 1 / 8}),
        ("linear", {"kernel": "linear"}),
        ("laplacian_l1:20", {"kernel": "laplacian", "gamma": 1 / 20}),
    ],
)
def test_all_rows_give_scikit_learns_components(ours: str, theirs: dict[str, object]) -> None:
    fitted = KernelPCA(4, ours, scale=None).fit(DIGITS[:400])
    if theirs["kernel"] == "laplacian":  # not a name that it knows
        K = _laplacian(DIGITS[:400], DIGITS[:400])
        expected = SklearnKernelPCA(4, kernel="precomputed").fit(K)
        other = expected.transform(_laplacian(DIGITS[400:], DIGITS[:400]))
    else:
        expected = SklearnKernelPCA(4, **theirs).fit(DIGITS[:400])
        other = expected.transform(DIGITS[400:])
    np.testing.assert_allclose(fitted.eigenvalues_, expected.eigenvalues_, rtol=1e-7)
    np.testing.assert_allclose(np.abs(fitted.transform(DIGITS[400:])), np.abs(other), atol=1e-6)


def _laplacian(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return np.exp(-np.abs(X[:, None] - Z[None]).sum(axis=2) / 20)


def test_shares_of_the_variance_are_those_of_pca() -> None:
    fitted = KernelPCA(5, "linear", scale=None).fit(DIGITS)
    np.testing.assert_allclose(
        fitted.explained_variance_ratio_, PCA(5).fit(DIGITS).explained_variance_ratio_, rtol=1e-8
    )
    every = KernelPCA(kernel=Gaussian(1.0), scale=None).fit(DIGITS[:100])
    assert every.eigenvalues_.size == 99  # one direction is lost to the mean
    assert every.explained_variance_ratio_.sum() == pytest.approx(1)
    assert list(KernelPCA(2).fit(DIGITS).get_feature_names_out()) == ["kernelpca0", "kernelpca1"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("basis", [Landmarks(150), NystromFeatures(150), RandomFeatures(1000)], ids=repr)
def test_few_columns_come_close_to_all_rows(basis: object) -> None:
    X = DIGITS[:400, 10:40]
    exact = KernelPCA(3, "gaussian:3", scale=None).fit(X)
    fitted = KernelPCA(3, "gaussian:3", basis=basis, scale=None).fit(X)
    np.testing.assert_allclose(fitted.eigenvalues_, exact.eigenvalues_, rtol=0.15)
    values, expected = fitted.transform(X), exact.transform(X)
    angles = np.abs((values * expected).sum(axis=0)) / np.linalg.norm(values, axis=0) / np.linalg.norm(expected, axis=0)
    assert angles.min() > 0.9


def test_the_users_own_landmarks_are_scaled_as_the_rows_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2)) * [1, 1000]
    own = KernelPCA(3, Laplacian("median"), Landmarks(points=X)).fit(X)
    np.testing.assert_allclose(own.eigenvalues_, KernelPCA(3, Laplacian("median")).fit(X).eigenvalues_, rtol=1e-8)


def test_circles_are_separated_by_a_linear_model_after_it() -> None:
    X, y = make_circles(600, factor=0.3, noise=0.05, random_state=0)
    model = make_pipeline(KernelPCA(4, "gaussian:0.5"), LogisticRegression()).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.99
    assert LogisticRegression().fit(X[:400], y[:400]).score(X[400:], y[400:]) < 0.7


def test_float32_has_as_many_digits() -> None:
    exact, single = (
        KernelPCA(3, "gaussian:3", scale=None, dtype=dtype).fit(DIGITS) for dtype in ("float64", "float32")
    )
    assert single.model_.points.dtype == np.float32
    np.testing.assert_allclose(single.eigenvalues_, exact.eigenvalues_, rtol=1e-4)
    np.testing.assert_allclose(single.transform(DIGITS), exact.transform(DIGITS), atol=2e-3)


def test_equal_rows_have_no_components() -> None:
    with pytest.raises(DataError, match="no components"):
        KernelPCA(kernel="gaussian:1", scale=None).fit(np.ones((20, 3)))
    with pytest.raises(DataError, match="0 on all landmarks"):
        KernelPCA(kernel="linear").fit(np.ones((20, 3)))
