"""Interactions are mixed derivatives: of products, and not of sums."""

from typing import Any

import dask.array as da
import numpy as np
import pytest

from daskkern import KernelModel, gradient_importance, interactions
from daskkern.errors import DataError, SpecError
from daskkern.kernels import CallableKernel, Gaussian, LinearKernel, Polynomial


def _product() -> KernelModel:
    """``x_0 x_1 = ((x_0 + x_1)^2 - (x_0 - x_1)^2) / 4``."""
    points = np.array([[1.0, 1, 0, 0], [1, -1, 0, 0]])
    return KernelModel(
        Polynomial(2, gamma=1.0, coef0=0.0), points, np.array([[0.25], [-0.25]]), "squared", "regression", None
    )


def test_a_product_interacts_and_a_sum_does_not(X: np.ndarray) -> None:
    found = interactions(_product(), X)
    order = [found.names.index(f"feature {j}") for j in range(4)]
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 1
    np.testing.assert_allclose(found.strengths[np.ix_(order, order)], expected, atol=1e-9)
    assert found.top(1) == [(*sorted(found.names[:2], key=found.names.index), pytest.approx(1.0))]
    linear = KernelModel(LinearKernel(), np.eye(4), np.full((4, 1), 2.0), "squared", "regression", None)
    np.testing.assert_allclose(interactions(linear, X).strengths, 0, atol=1e-9)
    np.testing.assert_allclose(gradient_importance(linear, X).alignments, 1)  # which are no interactions


@pytest.mark.parametrize("c", [1, 3])
def test_they_are_roots_of_mean_squared_mixed_differences(make, X: np.ndarray, c: int) -> None:
    model, h = make(c=c), 1e-3
    w = np.random.default_rng(2).uniform(0, 2, len(X))
    found = interactions(model, X, columns=[1, 3], sample_weight=w, step=1e-3)
    one, other = (
        h * scale * e for scale, e in zip(np.asarray(model.scaling.scale)[[1, 3]], np.eye(4)[[1, 3]], strict=True)
    )
    f = model.scores
    H = (f(X + one + other) - f(X + one - other) - f(X - one + other) + f(X - one - other)) / (4 * h * h)
    expected = np.sqrt((w[:, None] * H**2).sum() / w.sum())
    np.testing.assert_allclose(found.strengths, [[0, expected], [expected, 0]], rtol=1e-3)
    assert found.names == ("feature 1", "feature 3")


def test_features_of_a_column_add_up(make, X: np.ndarray) -> None:
    model = make()
    apart = interactions(model, X, columns=[0, 1, 2])
    found = interactions(model, X, columns=["feature 0", "colour"], groups={"colour": [1, 2]})
    assert found.names == ("feature 0", "colour")
    np.testing.assert_allclose(found.strengths[0, 1], np.hypot(apart.strengths[0, 1], apart.strengths[0, 2]))


def test_the_largest_gradients_decide_the_columns(make, X: np.ndarray) -> None:
    model = make()
    expected = [name for name, _ in gradient_importance(model, X, max_rows=None).top(2)]
    found = interactions(model, X, n_columns=2)
    assert list(found.names) == expected
    lazy = interactions(model, da.from_array(X, chunks=(25, 3)), n_columns=2)
    np.testing.assert_allclose(lazy.strengths, found.strengths)
    assert interactions(model, X, max_rows=10).n_rows == 10


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        ({"step": 0.0}, SpecError, "got step=0.0; give a positive number"),
        ({"n_columns": 0}, SpecError, "got n_columns=0"),
        ({"columns": ["x"]}, SpecError, "got column 'x'"),
        ({"sample_weight": np.zeros(60)}, DataError, "weights that add up to 0"),
    ],
)
def test_what_is_refused(make, X: np.ndarray, words: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        interactions(make(), X, **words)
    with pytest.raises(SpecError, match="permutation_importance needs none"):
        interactions(make(kernel=CallableKernel(lambda X, Z: X @ Z.T)), X)
    assert isinstance(make().kernel, Gaussian)
