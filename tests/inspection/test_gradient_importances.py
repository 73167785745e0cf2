"""Importances from gradients of fitted models: against differences of predictions, and what must hold of them."""

from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern import KernelClassifier, KernelModel, KernelRegressor, RandomFeatures, gradient_importance
from daskkern.data.schema.schema import Scaling
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError, SpecError
from daskkern.kernels import CallableKernel, Gaussian, L1Laplacian, Laplacian, LinearKernel, Polynomial

COLOUR = {"colour": [1, 2]}


def _jacobians(model: KernelModel, X: np.ndarray) -> np.ndarray:
    """Return differences of the scores (n, c, d) for steps of the scaled features."""
    step, scale = 1e-6, np.asarray(model.scaling.scale or np.ones(X.shape[1]))
    moves = [(model.scores(X + s * step * e) - model.scores(X - s * step * e)) / (2 * step) for s, e in
             zip(scale, np.eye(X.shape[1]), strict=True)]  # fmt: skip
    return np.stack(moves, axis=2)


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_they_are_means_of_squared_differences(make, X: np.ndarray, c: int, weighted: bool) -> None:
    model = make(c=c)
    w = np.random.default_rng(2).uniform(0, 2, len(X)) if weighted else np.ones(len(X))
    J = _jacobians(model, X)
    M = np.einsum("i,icj,ick->jk", w / w.sum(), J, J)
    found = gradient_importance(model, X, sample_weight=w if weighted else None)
    np.testing.assert_allclose(found.products, M, atol=1e-7 * np.abs(M).max())
    np.testing.assert_allclose(found.importances, M.diagonal() / np.trace(M), rtol=1e-6)
    np.testing.assert_allclose(found.slopes, np.sqrt(M.diagonal()), rtol=1e-6)
    roots = np.sqrt(M.diagonal())
    np.testing.assert_allclose(found.alignments, M / np.outer(roots, roots), atol=1e-6)
    assert found.n_rows == 60


def test_features_of_a_column_are_one(make, X: np.ndarray) -> None:
    model = make()
    apart, found = gradient_importance(model, X), gradient_importance(model, X, groups=COLOUR)
    assert found.names == ("feature 0", "colour", "feature 3")
    np.testing.assert_allclose(
        found.importances, [apart.importances[0], apart.importances[1:3].sum(), apart.importances[3]]
    )
    M, r = found.products, found.alignments
    assert M is not None
    np.testing.assert_allclose(r[0, 1], np.linalg.norm(M[0, 1:3]) / np.sqrt(M[0, 0] * np.trace(M[1:3, 1:3])))
    np.testing.assert_allclose(r, r.T)
    assert (np.abs(r) <= 1).all()
    np.testing.assert_array_equal(r.diagonal(), 1)
    pairs = found.top_pairs(2)
    assert len(pairs) == 2
    assert {name for pair in pairs for name in pair[:2]} <= set(found.names)
    assert found.top(1) == [(found.names[int(found.importances.argmax())], found.importances.max())]


def test_a_sum_of_two_features_aligns_them_though_it_has_no_interaction(X: np.ndarray) -> None:
    coef = np.array([[2.0], [2.0], [0.0], [0.0]])
    model = KernelModel(LinearKernel(), np.eye(4), coef, "squared", "regression", None)
    found = gradient_importance(model, X)
    np.testing.assert_allclose(found.importances, [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(found.alignments[:2, :2], 1)
    np.testing.assert_array_equal(found.alignments[2:], 0)
    assert found.top_pairs(1) == [("feature 0", "feature 1", pytest.approx(1.0))]


def test_a_product_of_two_features_does_not_align_them_though_they_interact() -> None:
    X = np.random.default_rng(3).standard_normal((4000, 2))  # x y = ((x + y)^2 - (x - y)^2) / 4
    model = KernelModel(
        Polynomial(2, gamma=1.0, coef0=0.0), np.array([[1.0, 1], [1, -1]]), np.array([[0.25], [-0.25]]), "squared",
        "regression", None,
    )  # fmt: skip
    np.testing.assert_allclose(model.predict(X), X[:, 0] * X[:, 1], atol=1e-12)
    assert abs(gradient_importance(model, X, max_rows=None).alignments[0, 1]) < 0.06


def test_a_constant_model_depends_on_nothing(make, X: np.ndarray) -> None:
    found = gradient_importance(replace(make(), coef=np.zeros((30, 1))), X)
    np.testing.assert_array_equal(found.importances, 0)
    np.testing.assert_array_equal(found.alignments, 0)


@given(order=st.permutations(range(4)), factor=st.floats(0.01, 100))
@settings(max_examples=15, deadline=None)
def test_the_order_and_the_units_of_features_do_not_matter(order: list[int], factor: float) -> None:
    rng = np.random.default_rng(4)
    X, points, coef = rng.standard_normal((20, 4)), rng.standard_normal((9, 4)), rng.standard_normal((9, 1))
    scaling = Scaling("standard", (0.0, 1, 2, 3), (1.0, 2, 3, 4))
    turned = Scaling(
        "standard", tuple(factor * scaling.shift[k] for k in order), tuple(factor * scaling.scale[k] for k in order)
    )
    one = KernelModel(Gaussian(1.5), points, coef, "squared", "regression", None, scaling)
    other = KernelModel(Gaussian(1.5), points[:, order], coef, "squared", "regression", None, turned)
    before, after = gradient_importance(one, X), gradient_importance(other, factor * X[:, order])
    np.testing.assert_allclose(after.squares, before.squares[order], rtol=1e-7)
    np.testing.assert_allclose(after.products, before.products[np.ix_(order, order)], rtol=1e-6, atol=1e-9)


@given(factor=st.floats(0.01, 100))
@settings(max_examples=10, deadline=None)
def test_larger_scores_have_larger_slopes_and_equal_shares(factor: float) -> None:
    rng = np.random.default_rng(5)
    X, points, coef = rng.standard_normal((20, 3)), rng.standard_normal((9, 3)), rng.standard_normal((9, 2))
    one, other = (KernelModel(Laplacian(1.5), points, a, "squared", "regression", None) for a in (coef, factor * coef))
    before, after = gradient_importance(one, X), gradient_importance(other, X)
    np.testing.assert_allclose(after.slopes, factor * before.slopes, rtol=1e-9)
    np.testing.assert_allclose(after.importances, before.importances, rtol=1e-9)


def test_landmarks_have_no_part_in_their_own_gradient_where_the_kernel_has_a_kink() -> None:
    points = np.random.default_rng(6).standard_normal((5, 3))
    for kernel in (Laplacian(1.0), L1Laplacian(1.0)):
        model = KernelModel(kernel, points, np.ones((5, 1)), "squared", "regression", None)
        found = gradient_importance(model, points)
        J = np.array([
            kernel.gradient_matvec(points[[i]], np.delete(points, i, axis=0), np.ones((4, 1)))[0, 0] for i in range(5)
        ])  # fmt: skip
        np.testing.assert_allclose(found.squares, (J**2).mean(axis=0), rtol=1e-9)


@pytest.fixture
def stored(tmp_path: Path, X: np.ndarray) -> str:
    weight = np.random.default_rng(2).uniform(0, 2, len(X))
    with StoreWriter(
        tmp_path / "s",
        n_features=4,
        dtype="float64",
        chunk_rows=25,
        task="regression",
        scale="standard",
        has_weight=True,
    ) as writer:
        writer.append(X, X[:, 0], weight)
    return str(tmp_path / "s")


def test_lazy_rows_and_stores_have_those_of_arrays(make, X: np.ndarray, stored: str) -> None:
    model = make()
    expected = gradient_importance(model, X, max_rows=None)
    lazy = da.from_array(X, chunks=(17, 3))
    np.testing.assert_allclose(gradient_importance(model, lazy, max_rows=None).products, expected.products, rtol=1e-12)
    weight = np.random.default_rng(2).uniform(0, 2, len(X))
    expected = gradient_importance(model, X.astype(np.float32), sample_weight=weight)
    found = gradient_importance(model, stored, max_rows=None)
    np.testing.assert_allclose(found.products, expected.products, rtol=1e-5)
    some = [gradient_importance(model, rows, max_rows=20, random_state=3).squares for rows in (X, lazy)]
    np.testing.assert_allclose(some[0], some[1], rtol=1e-12)
    assert gradient_importance(model, stored, max_rows=20).n_rows == 20


def test_rows_are_sampled_by_the_seed(make, X: np.ndarray) -> None:
    model = make()
    one, same, other = (gradient_importance(model, X, max_rows=10, random_state=seed).squares for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


def test_sparse_rows_have_a_diagonal_only() -> None:
    rng = np.random.default_rng(7)
    X, points = (scipy.sparse.random_array((40, 6), density=0.4, format="csr", rng=rng) for _ in range(2))
    model = KernelModel(Gaussian(1.0), points, rng.standard_normal((40, 1)), "squared", "regression", None)
    dense = replace(model, points=points.toarray())
    found = gradient_importance(model, X)
    assert found.products is None
    np.testing.assert_allclose(found.squares, gradient_importance(dense, X.toarray()).squares, rtol=1e-9)
    with pytest.raises(SpecError, match="products of gradients were not computed"):
        found.top_pairs(3)
    with pytest.raises(SpecError, match="got pairs=True for sparse rows"):
        gradient_importance(model, X, pairs=True)


def test_wide_rows_have_pairs_only_on_request(make) -> None:
    model, X = make(600), np.random.default_rng(8).standard_normal((5, 600))
    found = gradient_importance(model, X)
    assert found.products is None
    asked = gradient_importance(model, X, pairs=True)
    np.testing.assert_allclose(asked.squares, found.squares, rtol=1e-10)
    assert gradient_importance(make(), X[:, :4], pairs=False).products is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("estimator", "strong"),
    [
        (KernelRegressor(max_epochs=3), [0, 1]),
        (KernelRegressor("arc_cosine:1", max_epochs=3), [0, 1]),
        (KernelClassifier(Gaussian(2.0), basis=RandomFeatures(300), solver="eigenpro", max_epochs=3), [0, 1]),
        (
            KernelClassifier(
                loss="multiclass_hinge",
                solver="amm",
                basis=RandomFeatures(100),
                alpha=1e-3,
                max_epochs=3,
                scale="standard",
            ),
            [0, 1],
        ),
    ],
    ids=["auto", "arc cosine", "random features", "amm"],
)
def test_fitted_models_of_every_kind_find_the_features_that_count(estimator, strong: list[int]) -> None:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((400, 5))
    y = np.sin(X[:, 0]) + X[:, 1]
    fitted = estimator.fit(X, y if isinstance(estimator, KernelRegressor) else np.digitize(y, [-0.5, 0.5]))
    found = gradient_importance(fitted, X, max_rows=100)
    assert sorted(np.argsort(-found.importances)[:2].tolist()) == strong
    J = _jacobians(
        replace(fitted.model_, points=fitted.model_.points.astype("f8"), coef=fitted.model_.coef.astype("f8")), X[:20]
    )
    expected = np.einsum("icj,icj->j", J, J) / 20
    np.testing.assert_allclose(gradient_importance(fitted, X[:20]).squares, expected, rtol=0.02)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"kernel": CallableKernel(lambda X, Z: X @ Z.T)}, SpecError, "permutation_importance needs none"),
        ({}, DataError, "NaN"),
        ({}, SpecError, "got max_rows=0"),
        ({}, DataError, "weights that add up to 0"),
        ({}, DataError, "one finite number of 0 or more"),
        ({}, DataError, "sample_weight has 3"),
    ],
)
def test_what_is_refused(make, X: np.ndarray, change: dict, error: type[Exception], sentence: str) -> None:
    words: dict = {"max_rows": 0} if "max_rows" in sentence else {}
    if "NaN" in sentence:
        X = np.where(np.arange(4) == 1, np.nan, X)
    weights = {"add up": np.zeros(60), "one finite": np.full(60, -1.0), "has 3": np.ones(3)}
    for key, weight in weights.items():
        words |= {"sample_weight": weight} if key in sentence else {}
    with pytest.raises(error, match=sentence):
        gradient_importance(make(**change), X, **words)


def test_what_is_no_model_is_refused(X: np.ndarray) -> None:
    with pytest.raises(SpecError, match="got a KernelRegressor; expected a fitted estimator"):
        gradient_importance(KernelRegressor(), X)
